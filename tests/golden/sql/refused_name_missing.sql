--fail=line 5, column 8: count(*) + 1 needs a name: write count(*) + 1 AS name
CREATE STREAM clicks (ts TIMESTAMP, user STRING, price DOUBLE, WATERMARK FOR ts AS ts)
WITH (connector = 'files', path = 'clicks', format = 'json');
CREATE SINK results WITH (connector = 'console');
SELECT count(*) + 1 FROM clicks GROUP BY tumblingwindow('ss', 1);
