--fail=line 5, column 14: 'price' is not among the results (user, window_start, window_end): add it to GROUP BY, or take an aggregate of it, such as last(price)
CREATE STREAM clicks (ts TIMESTAMP, user STRING, price DOUBLE, WATERMARK FOR ts AS ts)
WITH (connector = 'files', path = 'clicks', format = 'json');
CREATE SINK results WITH (connector = 'console');
SELECT user, price, count(*) AS n FROM clicks GROUP BY user, tumblingwindow('ss', 10);
