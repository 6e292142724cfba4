--fail=line 6, column 59: connector 'files' has no option 'pathh'; did you mean 'path'?
CREATE STREAM clicks (ts TIMESTAMP, user STRING, price DOUBLE, WATERMARK FOR ts AS ts)
WITH (connector = 'files', path = 'clicks', format = 'json');
CREATE SINK results WITH (connector = 'console');
CREATE SINK more
WITH (connector = 'files', path = 'out', format = 'json', pathh = 'x');
