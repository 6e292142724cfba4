--fail=line 5, column 40: the text ends inside a quote or a comment
CREATE STREAM clicks (ts TIMESTAMP, user STRING, price DOUBLE, WATERMARK FOR ts AS ts)
WITH (connector = 'files', path = 'clicks', format = 'json');
CREATE SINK results WITH (connector = 'console');
SELECT * FROM clicks WHERE user = 'ann;
