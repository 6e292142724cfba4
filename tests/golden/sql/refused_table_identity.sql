--fail=line 6, column 13: the SELECT leaves out 'window_end'; a table tells results apart by 'user', 'window_start', 'window_end': select all of them, or write to files
CREATE STREAM clicks (ts TIMESTAMP, user STRING, price DOUBLE, WATERMARK FOR ts AS ts)
WITH (connector = 'files', path = 'clicks', format = 'json');
CREATE SINK results WITH (connector = 'console');
CREATE SINK kept WITH (connector = 'duckdb', path = 'kept.duckdb', table = 'kept');
INSERT INTO kept SELECT user, window_start, count(*) AS n FROM clicks GROUP BY user, TUMBLE(ts, INTERVAL '1' MINUTE);
