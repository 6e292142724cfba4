--fail=line 5, column 50: windows are over the event time, ts
CREATE STREAM clicks (ts TIMESTAMP, user STRING, price DOUBLE, WATERMARK FOR ts AS ts)
WITH (connector = 'files', path = 'clicks', format = 'json');
CREATE SINK results WITH (connector = 'console');
SELECT count(*) AS n FROM clicks GROUP BY TUMBLE(user, INTERVAL '1' MINUTE);
