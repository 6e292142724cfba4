--fail=line 5, column 12: the type of hash(user) is not known without Spark: write CAST(hash(user) AS type), or compile with a session
CREATE STREAM clicks (ts TIMESTAMP, user STRING, price DOUBLE, WATERMARK FOR ts AS ts)
WITH (connector = 'files', path = 'clicks', format = 'json');
CREATE SINK results WITH (connector = 'console');
SELECT max(hash(user)) AS h FROM clicks GROUP BY tumblingwindow('ss', 10);
