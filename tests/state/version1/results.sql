BEGIN TRANSACTION;
CREATE TABLE calls (
    kind TEXT NOT NULL, session TEXT NOT NULL, id TEXT NOT NULL, asked TEXT NOT NULL, call TEXT NOT NULL,
    at REAL NOT NULL, result TEXT, PRIMARY KEY (kind, session, id)
) STRICT;
INSERT INTO "calls" VALUES('task','s','nightly','0000000000000000000000000000000000000000000000000000000000000000','nightly',4102444800.0,'{"schema_version":1,"output":"built","display":"","artifacts":[],"content":[],"error":null,"notices":[],"usage":{"wall_s":0.0,"queue_s":0.0,"cpu_s":0.0,"max_rss_bytes":0,"memory_bytes":0,"processes":0,"sent_bytes":0,"received_bytes":0,"attempts":1},"call_id":"nightly","tool":"build","version":"1.0.0","session_id":"s","arguments":null,"sandbox":{"on":[],"allowed_missing":[],"network":"none"},"stdout":{"text":"","total_bytes":0,"omitted_bytes":0},"stderr":{"text":"","total_bytes":0,"omitted_bytes":0},"values":{}}');
CREATE INDEX by_time ON calls (at);
COMMIT;
