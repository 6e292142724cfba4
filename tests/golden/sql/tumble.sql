-- Counts and sums by user and pane; what Spark computes stands before and after the windows.
CREATE STREAM clicks (
    ts TIMESTAMP,
    user STRING,
    price DOUBLE,
    WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH (connector = 'files', path = 'clicks', format = 'json', maxFilesPerTrigger = 1);
CREATE SINK results WITH (connector = 'console');

INSERT INTO results
SELECT
    user,
    window_start AS since,
    window_end AS till,
    count(*) AS clicks,
    sum(price) AS spent,
    round(sum(price) / count(*), 2) AS each
FROM clicks
WHERE price > 0
GROUP BY user, TUMBLE(ts, INTERVAL '10' SECOND)
HAVING clicks > 1 OR spent > 5;
