--fail=sessions are those of the keys: PARTITION BY and GROUP BY have to name the same columns, here () and (user)
CREATE STREAM clicks (ts TIMESTAMP, user STRING, price DOUBLE, WATERMARK FOR ts AS ts)
WITH (connector = 'files', path = 'clicks', format = 'json');
CREATE SINK results WITH (connector = 'console');
SELECT user, count(*) AS n FROM TABLE(SESSION(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
GROUP BY user, window_start, window_end;
