--fail=line 5, column 8: CREATE is followed by STREAM (what is read), SINK (what is written) or VIEW, found 'TABLE'
CREATE STREAM clicks (ts TIMESTAMP, user STRING, price DOUBLE, WATERMARK FOR ts AS ts)
WITH (connector = 'files', path = 'clicks', format = 'json');
CREATE SINK results WITH (connector = 'console');
CREATE TABLE t (a INT);
