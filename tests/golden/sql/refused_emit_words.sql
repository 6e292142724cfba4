--fail=line 5, column 34: EMIT is followed by one of ON WATERMARK, ON WINDOW CLOSE, ON UPDATE, CHANGES, FINAL or EVERY INTERVAL …, found 'CHANGE'
CREATE STREAM clicks (ts TIMESTAMP, user STRING, price DOUBLE, WATERMARK FOR ts AS ts)
WITH (connector = 'files', path = 'clicks', format = 'json');
CREATE SINK results WITH (connector = 'console');
SELECT count(*) FROM clicks EMIT CHANGE;
