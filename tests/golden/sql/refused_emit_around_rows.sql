--fail=changelog over sliding(10 seconds): each row has one result, which is final; leave EMIT out
CREATE STREAM clicks (ts TIMESTAMP, user STRING, price DOUBLE, WATERMARK FOR ts AS ts)
WITH (connector = 'files', path = 'clicks', format = 'json');
CREATE SINK results WITH (connector = 'console');
SELECT count(*) AS n FROM clicks GROUP BY slidingwindow('ss', 10) EMIT CHANGES;
