--fail=line 5, column 8: sum(…) OVER is not supported: instead of OVER, slidingwindow(…) in GROUP BY looks around each row
CREATE STREAM clicks (ts TIMESTAMP, user STRING, price DOUBLE, WATERMARK FOR ts AS ts)
WITH (connector = 'files', path = 'clicks', format = 'json');
CREATE SINK results WITH (connector = 'console');
SELECT sum(price) OVER (PARTITION BY user) AS s FROM clicks;
