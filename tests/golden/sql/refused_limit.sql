--fail=line 5, column 22: LIMIT: a stream has no end, so a query over it has no limit
CREATE STREAM clicks (ts TIMESTAMP, user STRING, price DOUBLE, WATERMARK FOR ts AS ts)
WITH (connector = 'files', path = 'clicks', format = 'json');
CREATE SINK results WITH (connector = 'console');
SELECT * FROM clicks LIMIT 10;
