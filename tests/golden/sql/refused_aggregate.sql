--fail=line 5, column 14: MODE(price) is no aggregate of windows; there are count, sum,
CREATE STREAM clicks (ts TIMESTAMP, user STRING, price DOUBLE, WATERMARK FOR ts AS ts)
WITH (connector = 'files', path = 'clicks', format = 'json');
CREATE SINK results WITH (connector = 'console');
SELECT user, mode(price) AS often FROM clicks GROUP BY user, tumblingwindow('ss', 10);
