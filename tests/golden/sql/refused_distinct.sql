--fail=line 5, column 8: DISTINCT: a stream has no end; count(DISTINCT …) counts within a window
CREATE STREAM clicks (ts TIMESTAMP, user STRING, price DOUBLE, WATERMARK FOR ts AS ts)
WITH (connector = 'files', path = 'clicks', format = 'json');
CREATE SINK results WITH (connector = 'console');
SELECT DISTINCT user FROM clicks;
