--fail=line 5, column 22: EMIT goes with a window in GROUP BY
CREATE STREAM clicks (ts TIMESTAMP, user STRING, price DOUBLE, WATERMARK FOR ts AS ts)
WITH (connector = 'files', path = 'clicks', format = 'json');
CREATE SINK results WITH (connector = 'console');
SELECT * FROM clicks EMIT CHANGES;
