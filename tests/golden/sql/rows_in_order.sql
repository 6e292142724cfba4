-- Rows in the order of event time; late ones are moved to the watermark.
CREATE STREAM clicks (
    ts TIMESTAMP,
    user STRING,
    price DOUBLE,
    WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH (connector = 'files', path = 'clicks', format = 'json', maxFilesPerTrigger = 1);
CREATE SINK results WITH (connector = 'console');

INSERT INTO results
SELECT ts, user
FROM clicks
ORDER BY ts
REASSIGN LATE WITHIN INTERVAL '10' SECOND;
