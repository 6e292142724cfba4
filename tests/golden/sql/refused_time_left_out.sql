--fail=line 6, column 50: the event time 'ts' of stream 'clicks' is not among the columns: select it
CREATE STREAM clicks (ts TIMESTAMP, user STRING, price DOUBLE, WATERMARK FOR ts AS ts)
WITH (connector = 'files', path = 'clicks', format = 'json');
CREATE SINK results WITH (connector = 'console');
SELECT count(*) AS n
FROM (SELECT user FROM clicks) AS users GROUP BY tumblingwindow('ss', 1);
