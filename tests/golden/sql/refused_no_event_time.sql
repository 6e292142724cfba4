--fail=line 7, column 42: stream 'plain' has no event time: declare WATERMARK FOR column AS column, or 'eventtime.column'; 'eventtime.enabled' = 'false' counts rows at the time they arrive
CREATE STREAM clicks (ts TIMESTAMP, user STRING, price DOUBLE, WATERMARK FOR ts AS ts)
WITH (connector = 'files', path = 'clicks', format = 'json');
CREATE SINK results WITH (connector = 'console');
CREATE STREAM plain (a INT) WITH (connector = 'rate');

SELECT count(*) AS n FROM plain GROUP BY tumblingwindow('ss', 1);
