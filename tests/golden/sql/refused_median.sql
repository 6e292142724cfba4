--fail=line 5, column 14: half=median(price) cannot be computed from partial results, which windows are built of; use a mergeable one, such as percentile(column, 0.5)
CREATE STREAM clicks (ts TIMESTAMP, user STRING, price DOUBLE, WATERMARK FOR ts AS ts)
WITH (connector = 'files', path = 'clicks', format = 'json');
CREATE SINK results WITH (connector = 'console');
SELECT user, median(price) AS half FROM clicks GROUP BY user, tumblingwindow('ss', 10);
