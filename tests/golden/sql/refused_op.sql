--fail=the column 'op' says which rows take back others: take another name
CREATE STREAM clicks (ts TIMESTAMP, user STRING, price DOUBLE, WATERMARK FOR ts AS ts)
WITH (connector = 'files', path = 'clicks', format = 'json');
SELECT user AS op, count(*) AS n FROM clicks GROUP BY user, tumblingwindow('ss', 1) EMIT CHANGES;
