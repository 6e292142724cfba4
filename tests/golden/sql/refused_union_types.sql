--fail=line 9, column 16: UNION ALL needs the same types on both sides: column 'user' is string here and int64 there; CAST one of them
CREATE STREAM clicks (ts TIMESTAMP, user STRING, price DOUBLE, WATERMARK FOR ts AS ts)
WITH (connector = 'files', path = 'clicks', format = 'json');
CREATE SINK results WITH (connector = 'console');
CREATE STREAM views (ts TIMESTAMP, user STRING, price DOUBLE, WATERMARK FOR ts AS ts)
WITH (connector = 'files', path = 'views', format = 'json');
SELECT user, count(*) AS n
FROM (SELECT ts, user FROM clicks UNION ALL SELECT ts, CAST(price AS BIGINT) FROM views)
GROUP BY user, tumblingwindow('ss', 1);
