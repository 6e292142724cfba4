--fail=line 6, column 1: on_watermark() with ALLOW LATENESS 5 seconds: late rows can merge sessions that have been emitted, and plain rows cannot take them back; use EMIT CHANGES
CREATE STREAM clicks (ts TIMESTAMP, user STRING, price DOUBLE, WATERMARK FOR ts AS ts)
WITH (connector = 'files', path = 'clicks', format = 'json');
CREATE SINK results WITH (connector = 'console');
SELECT count(*) AS n FROM clicks GROUP BY SESSION(ts, INTERVAL '1' MINUTE)
ALLOW LATENESS INTERVAL '5' SECOND;
