-- Every aggregate there is.
CREATE STREAM samples (ts TIMESTAMP, x DOUBLE, n BIGINT, WATERMARK FOR ts AS ts)
WITH (connector = 'files', path = 'samples', format = 'json', maxFilesPerTrigger = 1);
CREATE SINK results WITH (connector = 'console');

INSERT INTO results
SELECT
    count(*) AS `rows`, count(x) AS xs, sum(n) AS total, min(x) AS low, max(x) AS high,
    avg(x) AS mean, round(var_samp(x), 3) AS var, var_pop(x) AS varp,
    round(stddev(x), 3) AS sd, round(stddev_pop(x), 3) AS sdp,
    first(n) AS earliest, last(n) AS latest, count(DISTINCT n) AS kinds, collect_list(n) AS ns,
    approx_count_distinct(n) AS approx, round(percentile(x, 0.5)) AS half, round(approx_percentile(x, 0.99)) AS p99
FROM samples
GROUP BY TUMBLE(ts, INTERVAL '10' SECOND);
