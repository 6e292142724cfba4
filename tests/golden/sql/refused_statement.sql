--fail=line 5, column 1: a statement starts with CREATE, INSERT, SELECT or WITH, found 'DROP'
CREATE STREAM clicks (ts TIMESTAMP, user STRING, price DOUBLE, WATERMARK FOR ts AS ts)
WITH (connector = 'files', path = 'clicks', format = 'json');
CREATE SINK results WITH (connector = 'console');
DROP TABLE clicks;
