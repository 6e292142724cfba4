--fail=line 5, column 55: no window 'TUMBEL'; did you mean 'tumble'?
CREATE STREAM clicks (ts TIMESTAMP, user STRING, price DOUBLE, WATERMARK FOR ts AS ts)
WITH (connector = 'files', path = 'clicks', format = 'json');
CREATE SINK results WITH (connector = 'console');
SELECT user, count(*) AS n FROM clicks GROUP BY user, TUMBEL(ts, INTERVAL '1' MINUTE);
