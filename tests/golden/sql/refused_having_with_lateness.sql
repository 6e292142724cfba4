--fail=line 6, column 8: HAVING with ALLOW LATENESS: a result that no longer meets it would stay, as plain rows cannot take it back; use EMIT CHANGES, or EMIT ON WINDOW CLOSE for one row a window
CREATE STREAM clicks (ts TIMESTAMP, user STRING, price DOUBLE, WATERMARK FOR ts AS ts)
WITH (connector = 'files', path = 'clicks', format = 'json');
CREATE SINK results WITH (connector = 'console');
SELECT count(*) AS n, window_start FROM clicks GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE)
HAVING n < 5 ALLOW LATENESS INTERVAL '5' SECOND;
