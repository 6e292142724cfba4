--fail=a unit of time is one of 'ms', 'ss', 'mi', 'hh', 'dd'
CREATE STREAM clicks (ts TIMESTAMP, user STRING, price DOUBLE, WATERMARK FOR ts AS ts)
WITH (connector = 'files', path = 'clicks', format = 'json');
CREATE SINK results WITH (connector = 'console');
SELECT count(*) AS n FROM clicks GROUP BY tumblingwindow('s', 10);
