--fail=line 5, column 55: Spark's window(time, size[, slide]) is TUMBLE(time, INTERVAL …) here, or HOP(time, slide, size) where it slides; window.start is window_start, window.end is window_end
CREATE STREAM clicks (ts TIMESTAMP, user STRING, price DOUBLE, WATERMARK FOR ts AS ts)
WITH (connector = 'files', path = 'clicks', format = 'json');
CREATE SINK results WITH (connector = 'console');
SELECT user, count(*) AS n FROM clicks GROUP BY user, window(ts, '1 hour');
