--fail=line 6, column 41: the arguments of TUMBLE are DATA => …, TIMECOL => …, SIZE => …, OFFSET => …
CREATE STREAM clicks (ts TIMESTAMP, user STRING, price DOUBLE, WATERMARK FOR ts AS ts)
WITH (connector = 'files', path = 'clicks', format = 'json');
CREATE SINK results WITH (connector = 'console');
SELECT window_start, count(*) AS n
FROM TABLE(TUMBLE(DATA => TABLE clicks, TIME => DESCRIPTOR(ts), SIZE => INTERVAL '1' HOUR))
GROUP BY window_start, window_end;
