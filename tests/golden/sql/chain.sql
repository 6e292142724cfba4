-- Panes of panes: the busiest ten seconds of each half minute.
CREATE STREAM clicks (
    ts TIMESTAMP,
    user STRING,
    price DOUBLE,
    WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH (connector = 'files', path = 'clicks', format = 'json', maxFilesPerTrigger = 1);
CREATE SINK results WITH (connector = 'console');
CREATE VIEW by_ten AS
SELECT user, window_end AS till, count(*) AS clicks
FROM clicks
GROUP BY user, TUMBLE(ts, INTERVAL '10' SECOND);

INSERT INTO results
SELECT window_start, window_end, max(clicks) AS busiest, count(*) AS panes
FROM by_ten
GROUP BY TUMBLE(till, INTERVAL '30' SECOND);
