-- Each reading beside what came up to ten seconds before it and five seconds after it.
CREATE STREAM readings (ms BIGINT, sensor STRING, value DOUBLE)
WITH (
    connector = 'files', path = 'readings', format = 'json', maxFilesPerTrigger = 1,
    'eventtime.column' = 'ms', 'eventtime.type' = 'unixtimestamp_ms', 'eventtime.lateTolerance' = '2 s'
);
CREATE SINK results WITH (connector = 'console');

INSERT INTO results
SELECT sensor, event_time, value, avg(value) AS around, count(*) - 1 AS others
FROM readings
GROUP BY sensor, slidingwindow('ss', 10, 5);
