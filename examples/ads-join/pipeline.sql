-- Which impressions were clicked: those of the same ad and user within the same minute.

CREATE STREAM impressions (
    ts TIMESTAMP,
    ad BIGINT,
    user STRING,
    placement STRING,
    WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH (connector = 'files', format = 'json', path = 'impressions');

CREATE STREAM clicks (
    ts TIMESTAMP,
    ad BIGINT,
    user STRING,
    price DOUBLE,
    WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH (connector = 'files', format = 'json', path = 'clicks');

CREATE SINK clicked WITH (connector = 'files', format = 'json', path = 'out/clicked');

INSERT INTO clicked
SELECT i.ad, i.user, i.placement, c.price
FROM TABLE(TUMBLE(TABLE impressions, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) AS i
JOIN TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) AS c
ON i.ad = c.ad AND i.user = c.user;
