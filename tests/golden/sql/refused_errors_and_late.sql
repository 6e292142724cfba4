--fail=line 6, column 115: sink 'rest' takes the late rows: invalid ones need another
CREATE STREAM clicks (ts TIMESTAMP, user STRING, price DOUBLE, WATERMARK FOR ts AS ts)
WITH (connector = 'files', path = 'clicks', format = 'json');
CREATE SINK results WITH (connector = 'console');
CREATE SINK rest WITH (connector = 'discard');
SELECT user, count(*) AS n FROM clicks GROUP BY user, TUMBLE(ts, INTERVAL '1' MINUTE) LATE DATA TO rest ERRORS TO rest;
