--fail=line 5, column 14: TUMBLE_START(…) is a column here: write window_start, without arguments
CREATE STREAM clicks (ts TIMESTAMP, user STRING, price DOUBLE, WATERMARK FOR ts AS ts)
WITH (connector = 'files', path = 'clicks', format = 'json');
CREATE SINK results WITH (connector = 'console');
SELECT user, TUMBLE_START(ts, INTERVAL '1' MINUTE) AS since, count(*) AS n FROM clicks GROUP BY user, TUMBLE(ts, INTERVAL '1' MINUTE);
