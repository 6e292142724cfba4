--fail=line 5, column 15: no stream or view 'click'; did you mean 'clicks'? available: 'clicks'
CREATE STREAM clicks (ts TIMESTAMP, user STRING, price DOUBLE, WATERMARK FOR ts AS ts)
WITH (connector = 'files', path = 'clicks', format = 'json');
CREATE SINK results WITH (connector = 'console');
SELECT * FROM click;
