--fail=line 6, column 42: ERRORS TO goes with a window or ORDER BY: rows that only pass are written as they are
CREATE STREAM clicks (ts TIMESTAMP, user STRING, price DOUBLE, WATERMARK FOR ts AS ts)
WITH (connector = 'files', path = 'clicks', format = 'json');
CREATE SINK results WITH (connector = 'console');
CREATE SINK rest WITH (connector = 'discard');
INSERT INTO results SELECT * FROM clicks ERRORS TO rest;
