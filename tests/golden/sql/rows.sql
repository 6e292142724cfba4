-- Without a window rows pass as they come.
CREATE STREAM clicks (
    ts TIMESTAMP,
    user STRING,
    price DOUBLE,
    WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH (connector = 'files', path = 'clicks', format = 'json', maxFilesPerTrigger = 1);
CREATE SINK results WITH (connector = 'console');

INSERT INTO results
SELECT ts, concat(user, '!') AS who, price * 100 AS cents
FROM clicks
WHERE user LIKE 'a%';
