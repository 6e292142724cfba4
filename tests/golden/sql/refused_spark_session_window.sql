--fail=line 5, column 55: Spark's session_window(time, gap) is SESSION(time, INTERVAL …) here
CREATE STREAM clicks (ts TIMESTAMP, user STRING, price DOUBLE, WATERMARK FOR ts AS ts)
WITH (connector = 'files', path = 'clicks', format = 'json');
CREATE SINK results WITH (connector = 'console');
SELECT user, count(*) AS n FROM clicks GROUP BY user, session_window(ts, '5 minutes');
