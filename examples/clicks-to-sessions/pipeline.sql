-- Clicks of a user that lie at most ten minutes apart are one session. The click of 12:08 comes a file
-- later than that of 12:16: it ties two sessions together, and both are taken back for the one they are.

CREATE STREAM clicks (
    ts TIMESTAMP,
    user STRING,
    page STRING,
    WATERMARK FOR ts AS ts - INTERVAL '15' MINUTE
) WITH (
    connector = 'files',
    format = 'json',
    path = 'clicks',
    maxFilesPerTrigger = 1
);

CREATE SINK sessions WITH (connector = 'files', format = 'json', path = 'out/sessions');

INSERT INTO sessions
SELECT user, window_start, window_end, count(*) AS clicks, first(page) AS landed_on
FROM clicks
GROUP BY user, SESSION(ts, INTERVAL '10' MINUTE)
EMIT CHANGES;
