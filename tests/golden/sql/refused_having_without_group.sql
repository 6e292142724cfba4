--fail=line 5, column 29: HAVING needs a GROUP BY with a window; use WHERE
CREATE STREAM clicks (ts TIMESTAMP, user STRING, price DOUBLE, WATERMARK FOR ts AS ts)
WITH (connector = 'files', path = 'clicks', format = 'json');
CREATE SINK results WITH (connector = 'console');
SELECT * FROM clicks HAVING price > 1;
