--fail=line 5, column 8: s=sum(user): column 'user' is string; sum() adds up numbers
CREATE STREAM clicks (ts TIMESTAMP, user STRING, price DOUBLE, WATERMARK FOR ts AS ts)
WITH (connector = 'files', path = 'clicks', format = 'json');
CREATE SINK results WITH (connector = 'console');
SELECT sum(user) AS s FROM clicks GROUP BY tumblingwindow('ss', 10);
