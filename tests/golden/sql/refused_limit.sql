--fail=line 5, column 28: LIMIT: a query over a stream has no such clause
CREATE STREAM clicks (ts TIMESTAMP, user STRING, price DOUBLE, WATERMARK FOR ts AS ts)
WITH (connector = 'files', path = 'clicks', format = 'json');
CREATE SINK results WITH (connector = 'console');
SELECT * FROM clicks LIMIT 10;
