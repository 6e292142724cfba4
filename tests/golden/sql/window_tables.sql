-- Windows as tables, as Flink writes them.
CREATE STREAM clicks (
    ts TIMESTAMP,
    user STRING,
    price DOUBLE,
    WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH (connector = 'files', path = 'clicks', format = 'json', maxFilesPerTrigger = 1);
CREATE SINK results WITH (connector = 'console');

INSERT INTO results
SELECT window_start, window_end, s.user, count(*) AS clicks
FROM TABLE(SESSION(TABLE clicks PARTITION BY user, DESCRIPTOR(ts), INTERVAL '5' SECOND)) AS s
WHERE s.price >= 1
GROUP BY s.user, window_start, window_end
EMIT ON WINDOW CLOSE;
