--fail=line 5, column 12: the type of HASH(user) is not known before Spark runs: write CAST(HASH(user) AS type)
CREATE STREAM clicks (ts TIMESTAMP, user STRING, price DOUBLE, WATERMARK FOR ts AS ts)
WITH (connector = 'files', path = 'clicks', format = 'json');
CREATE SINK results WITH (connector = 'console');
SELECT max(hash(user)) AS h FROM clicks GROUP BY tumblingwindow('ss', 10);
