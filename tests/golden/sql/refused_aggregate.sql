--fail=line 5, column 14: mode(price) is no aggregate of windows; there are count, sum, min, max, avg, var_samp, var_pop, stddev_samp, stddev_pop, first, last, count(distinct …), count_if, collect_list, approx_count_distinct, percentile, approx_percentile
CREATE STREAM clicks (ts TIMESTAMP, user STRING, price DOUBLE, WATERMARK FOR ts AS ts)
WITH (connector = 'files', path = 'clicks', format = 'json');
CREATE SINK results WITH (connector = 'console');
SELECT user, mode(price) AS often FROM clicks GROUP BY user, tumblingwindow('ss', 10);
