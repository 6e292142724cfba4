-- Sessions that grow, and merge when a row between them comes: both are taken back, one is put out.
CREATE STREAM clicks (
    ts TIMESTAMP,
    user STRING,
    price DOUBLE,
    WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH (connector = 'files', path = 'clicks', format = 'json', maxFilesPerTrigger = 1);
CREATE SINK results WITH (connector = 'console');

INSERT INTO results
SELECT user, window_start, window_end, count(*) AS clicks, sum(price) AS spent
FROM clicks
GROUP BY user, SESSION(ts, INTERVAL '5' SECOND)
EMIT CHANGES
ALLOW LATENESS INTERVAL '30' SECOND;
