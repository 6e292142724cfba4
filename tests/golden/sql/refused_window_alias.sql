--fail=line 5, column 8: a window stands in GROUP BY itself, as TUMBLE(ts, INTERVAL '1' MINUTE); SELECT has its bounds, window_start and window_end
CREATE STREAM clicks (ts TIMESTAMP, user STRING, price DOUBLE, WATERMARK FOR ts AS ts)
WITH (connector = 'files', path = 'clicks', format = 'json');
CREATE SINK results WITH (connector = 'console');
SELECT TUMBLE(ts, INTERVAL '1' MINUTE) AS w, count(*) AS n FROM clicks GROUP BY w;
