--fail=line 9, column 24: a LEFT JOIN compares an expression of one side with one of the other, of one type: write right.ts < left.ts + INTERVAL '5' SECOND, not right.ts - left.ts < INTERVAL '5' SECOND
CREATE STREAM clicks (ts TIMESTAMP, user STRING, price DOUBLE, WATERMARK FOR ts AS ts)
WITH (connector = 'files', path = 'clicks', format = 'json');
CREATE SINK results WITH (connector = 'console');
CREATE STREAM views (ts TIMESTAMP, user STRING, price DOUBLE, WATERMARK FOR ts AS ts)
WITH (connector = 'files', path = 'views', format = 'json');
SELECT c.price FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) AS c
LEFT JOIN TABLE(TUMBLE(TABLE views, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) AS v
ON c.user = v.user AND v.price - c.price > 1;
