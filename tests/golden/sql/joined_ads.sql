-- Clicks beside the impressions of their ad: panes of ten seconds, and windows that hop over them.
CREATE STREAM impressions (ts TIMESTAMP, ad STRING, site STRING, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH (connector = 'files', path = 'impressions', format = 'json', maxFilesPerTrigger = 1);
CREATE STREAM clicks (ts TIMESTAMP, ad STRING, user STRING, WATERMARK FOR ts AS ts)
WITH (connector = 'files', path = 'clicks', format = 'json', maxFilesPerTrigger = 1);
CREATE SINK results WITH (connector = 'console');

INSERT INTO results
SELECT i.ad, i.site, c.user, i.ts AS shown, c.ts AS clicked
FROM TABLE(TUMBLE(TABLE impressions, DESCRIPTOR(ts), INTERVAL '10' SECOND)) AS i
LEFT JOIN TABLE(HOP(TABLE clicks, DESCRIPTOR(ts), INTERVAL '10' SECOND, INTERVAL '20' SECOND)) AS c
ON i.ad = c.ad AND c.ts >= i.ts;
