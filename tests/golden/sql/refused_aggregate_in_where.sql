--fail=line 5, column 44: WHERE comes before the windows: use HAVING
CREATE STREAM clicks (ts TIMESTAMP, user STRING, price DOUBLE, WATERMARK FOR ts AS ts)
WITH (connector = 'files', path = 'clicks', format = 'json');
CREATE SINK results WITH (connector = 'console');
SELECT count(*) AS n FROM clicks WHERE 1 < count(*) GROUP BY tumblingwindow('ss', 1);
