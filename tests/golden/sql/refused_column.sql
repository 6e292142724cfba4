--fail=line 6, column 40: no column 'usr'; did you mean 'user'? available: 'ts', 'user', 'price'
CREATE STREAM clicks (ts TIMESTAMP, user STRING, price DOUBLE, WATERMARK FOR ts AS ts)
WITH (connector = 'files', path = 'clicks', format = 'json');
CREATE SINK results WITH (connector = 'console');
INSERT INTO results
SELECT count(*) AS n FROM clicks WHERE usr = 'ann' GROUP BY user, TUMBLE(ts, INTERVAL '1' MINUTE);
