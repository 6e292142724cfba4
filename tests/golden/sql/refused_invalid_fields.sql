--fail=line 6, column 60: connector 'files': 'invalid_fields' is 'null' or 'errors', not 'error'
CREATE STREAM clicks (
  ts TIMESTAMP,
  user STRING,
  WATERMARK FOR ts AS ts
) WITH (connector = 'files', path = 'in', format = 'json', invalid_fields = 'error');
