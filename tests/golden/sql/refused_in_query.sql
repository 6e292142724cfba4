--fail=line 7, column 33: IN (SELECT …) is not supported: join the streams in windows, with JOIN … ON …; in a LEFT JOIN the other side's columns are NULL where nothing met the row
CREATE STREAM clicks (ts TIMESTAMP, user STRING, price DOUBLE, WATERMARK FOR ts AS ts)
WITH (connector = 'files', path = 'clicks', format = 'json');
CREATE SINK results WITH (connector = 'console');
CREATE STREAM views (ts TIMESTAMP, user STRING, price DOUBLE, WATERMARK FOR ts AS ts)
WITH (connector = 'files', path = 'views', format = 'json');
SELECT * FROM clicks WHERE user IN (SELECT user FROM views);
