--fail=line 5, column 13: no sink 'result'; did you mean 'results'? available: 'results'
CREATE STREAM clicks (ts TIMESTAMP, user STRING, price DOUBLE, WATERMARK FOR ts AS ts)
WITH (connector = 'files', path = 'clicks', format = 'json');
CREATE SINK results WITH (connector = 'console');
INSERT INTO result SELECT * FROM clicks;
