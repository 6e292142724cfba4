-- Updates in place: -U and +U, and -D for what a merge leaves over.
CREATE STREAM clicks (
    ts TIMESTAMP,
    user STRING,
    price DOUBLE,
    WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH (connector = 'files', path = 'clicks', format = 'json', maxFilesPerTrigger = 1);
CREATE SINK results WITH (connector = 'console');

INSERT INTO results
SELECT user, window_start, window_end, count(*) AS clicks
FROM clicks
GROUP BY user, sessionwindow('ss', 5)
EMIT ON UPDATE;
