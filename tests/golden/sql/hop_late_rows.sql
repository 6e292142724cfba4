-- Overlapping windows; rows that come too late for all of theirs leave, whole, by a sink of their own.
CREATE STREAM clicks (
    ts TIMESTAMP,
    user STRING,
    price DOUBLE,
    WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH (connector = 'files', path = 'clicks', format = 'json', maxFilesPerTrigger = 1);
CREATE SINK results WITH (connector = 'console');
CREATE SINK too_late WITH (connector = 'discard');

INSERT INTO results
SELECT user, window_start, window_end, max(price) AS most
FROM clicks
GROUP BY user, HOP(ts, INTERVAL '10' SECOND, INTERVAL '20' SECOND)
LATE DATA TO too_late;
