--fail=line 7, column 15: a query inside an expression is not supported: make it a view, and join it
CREATE STREAM clicks (ts TIMESTAMP, user STRING, price DOUBLE, WATERMARK FOR ts AS ts)
WITH (connector = 'files', path = 'clicks', format = 'json');
CREATE SINK results WITH (connector = 'console');
CREATE STREAM views (ts TIMESTAMP, user STRING, price DOUBLE, WATERMARK FOR ts AS ts)
WITH (connector = 'files', path = 'views', format = 'json');
SELECT user, (SELECT max(price) FROM views) AS most FROM clicks;
