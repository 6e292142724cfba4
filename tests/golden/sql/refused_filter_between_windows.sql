--fail=between two windows rows cannot be filtered: WHERE and HAVING go with the last one
CREATE STREAM clicks (ts TIMESTAMP, user STRING, price DOUBLE, WATERMARK FOR ts AS ts)
WITH (connector = 'files', path = 'clicks', format = 'json');
CREATE SINK results WITH (connector = 'console');
CREATE VIEW minutes AS SELECT count(*) AS n FROM clicks GROUP BY tumblingwindow('mi', 1);
SELECT max(n) AS most FROM minutes WHERE n > 1 GROUP BY tumblingwindow('hh', 1);
