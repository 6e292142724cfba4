-- Two streams as one: W is the lower of theirs.
CREATE STREAM clicks (
    ts TIMESTAMP,
    user STRING,
    price DOUBLE,
    WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH (connector = 'files', path = 'clicks', format = 'json', maxFilesPerTrigger = 1);
CREATE SINK results WITH (connector = 'console');
CREATE STREAM calls (at TIMESTAMP, caller STRING, seconds BIGINT, WATERMARK FOR at AS at)
WITH (connector = 'files', path = 'calls', format = 'json', maxFilesPerTrigger = 1);
CREATE VIEW activity AS
SELECT ts, user, 'click' AS kind FROM clicks
UNION ALL
SELECT at, caller, 'call' FROM calls WHERE seconds > 10;

INSERT INTO results
SELECT user, window_start, window_end, count(*) AS n, count(DISTINCT kind) AS kinds
FROM activity
GROUP BY user, tumblingwindow('SS', 10)
EMIT FINAL;
