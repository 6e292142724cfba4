--fail=the size of TUMBLE: cannot read '1 MONTH' as a duration; write a number and a unit
CREATE STREAM clicks (ts TIMESTAMP, user STRING, price DOUBLE, WATERMARK FOR ts AS ts)
WITH (connector = 'files', path = 'clicks', format = 'json');
CREATE SINK results WITH (connector = 'console');
SELECT count(*) AS n FROM clicks GROUP BY TUMBLE(ts, INTERVAL '1' MONTH);
