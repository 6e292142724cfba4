--fail=line 5, column 11: ROW_NUMBER(…) OVER is not supported: instead of OVER, the greatest and the latest of a window are max(…) and last(…)
CREATE STREAM clicks (ts TIMESTAMP, user STRING, price DOUBLE, WATERMARK FOR ts AS ts)
WITH (connector = 'files', path = 'clicks', format = 'json');
CREATE SINK results WITH (connector = 'console');
SELECT *, ROW_NUMBER() OVER (PARTITION BY user ORDER BY price DESC) AS place FROM clicks;
