--fail=line 5, column 13: sink 'results' takes the invalid rows: results need another one
CREATE STREAM clicks (ts TIMESTAMP, user STRING, price DOUBLE, WATERMARK FOR ts AS ts)
WITH (connector = 'files', path = 'clicks', format = 'json');
CREATE SINK results WITH (connector = 'console');
INSERT INTO results SELECT user, count(*) AS n FROM clicks GROUP BY user, TUMBLE(ts, INTERVAL '1' MINUTE) ERRORS TO results;
