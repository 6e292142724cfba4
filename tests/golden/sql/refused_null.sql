--fail=line 6, column 9: null has no type: write CAST(null AS type)
CREATE STREAM clicks (ts TIMESTAMP, user STRING, price DOUBLE, WATERMARK FOR ts AS ts)
WITH (connector = 'files', path = 'clicks', format = 'json');
CREATE SINK results WITH (connector = 'console');
SELECT user,
    max(null) AS most FROM clicks GROUP BY user, TUMBLE(ts, INTERVAL '1' MINUTE);
