-- Keys, arguments and results that Spark computes, with its own functions.
CREATE STREAM orders (
    at TIMESTAMP, item STRUCT<name: STRING, tags: ARRAY<STRING>>, price DOUBLE, amount INT, paid BOOLEAN,
    WATERMARK FOR at AS at
) WITH (connector = 'files', path = 'orders', format = 'json', maxFilesPerTrigger = 1);
CREATE SINK results WITH (connector = 'console');
CREATE VIEW named AS
SELECT at, lower(item.name) AS name, size(item.tags) AS tags, price * amount AS worth, paid FROM orders
WHERE item IS NOT NULL;

INSERT INTO results
SELECT
    upper(name) AS name,
    date_format(window_end, 'HH:mm:ss') AS till,
    sum(worth) AS worth,
    sum(worth) FILTER (WHERE paid) AS paid,
    count_if(NOT paid) AS open,
    CASE WHEN sum(tags) > 2 THEN 'many' ELSE 'few' END AS tags
FROM named
WHERE worth BETWEEN 1 AND 100
GROUP BY name, TUMBLE(at, INTERVAL '10' SECOND, INTERVAL '5' SECOND);
