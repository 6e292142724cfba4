--fail=results of changelog take others back, and cannot go on as events; use EMIT ON WINDOW CLOSE
CREATE STREAM clicks (ts TIMESTAMP, user STRING, price DOUBLE, WATERMARK FOR ts AS ts)
WITH (connector = 'files', path = 'clicks', format = 'json');
CREATE SINK results WITH (connector = 'console');
CREATE VIEW minutes AS SELECT count(*) AS n FROM clicks GROUP BY tumblingwindow('mi', 1) EMIT CHANGES;
SELECT max(n) AS most FROM minutes GROUP BY tumblingwindow('hh', 1);
