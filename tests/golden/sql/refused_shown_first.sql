--fail=line 5, column 1: a SELECT that is only shown is the last statement: use INSERT INTO
CREATE STREAM clicks (ts TIMESTAMP, user STRING, price DOUBLE, WATERMARK FOR ts AS ts)
WITH (connector = 'files', path = 'clicks', format = 'json');
CREATE SINK results WITH (connector = 'console');
SELECT * FROM clicks; SELECT user FROM clicks;
