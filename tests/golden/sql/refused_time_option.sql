--fail=line 7, column 5: WATERMARK FOR says 'ts', the option 'at'
CREATE STREAM clicks (ts TIMESTAMP, user STRING, price DOUBLE, WATERMARK FOR ts AS ts)
WITH (connector = 'files', path = 'clicks', format = 'json');
CREATE SINK results WITH (connector = 'console');
CREATE STREAM s (ts TIMESTAMP, at TIMESTAMP, WATERMARK FOR ts AS ts) WITH (
    connector = 'rate',
    'eventtime.column' = 'at'
);
