--fail=line 6, column 10: aggregates need a window: add one to GROUP BY (TUMBLE(time, size[, offset]),
CREATE STREAM clicks (ts TIMESTAMP, user STRING, price DOUBLE, WATERMARK FOR ts AS ts)
WITH (connector = 'files', path = 'clicks', format = 'json');
CREATE SINK results WITH (connector = 'console');
SELECT user, count(*) AS n FROM clicks
GROUP BY user;
