--fail=line 6, column 10: GROUPING SETS is not supported: write a query for each set of keys
CREATE STREAM clicks (ts TIMESTAMP, user STRING, price DOUBLE, WATERMARK FOR ts AS ts)
WITH (connector = 'files', path = 'clicks', format = 'json');
CREATE SINK results WITH (connector = 'console');
SELECT user, count(*) AS n FROM clicks
GROUP BY GROUPING SETS ((user), ()), TUMBLE(ts, INTERVAL '1' MINUTE);
