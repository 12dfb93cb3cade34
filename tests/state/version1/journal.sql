BEGIN TRANSACTION;
CREATE TABLE filled (one INTEGER PRIMARY KEY CHECK (one = 1), number INTEGER, digest BLOB, size INTEGER)
    STRICT;
INSERT INTO "filled" VALUES(1,4,X'56867C3AFAD53BA06821A5CD7184AB8A91E28B00974B9EC013481681699C66DE',541);
CREATE TABLE records (
    number INTEGER PRIMARY KEY, at REAL NOT NULL, kind TEXT NOT NULL, session TEXT NOT NULL, call TEXT NOT NULL,
    data TEXT NOT NULL
) STRICT;
INSERT INTO "records" VALUES(1,1.79557589169001269335e+09,'supervisor','','','{"event": "started"}');
INSERT INTO "records" VALUES(2,1.7955758916904432773e+09,'intent','s','ended','{"tool": "echo", "version": "1.0.0", "tier": "read_only", "agent": "agent", "session_kind": "worker", "grants": [], "attempt": 1, "arguments": {"value": 1}, "digest": "sha256:48208f9428d64634bd8e28ff345bf0eab60d53c18fa2fbdb0b9bc1e84df2b5f6"}');
INSERT INTO "records" VALUES(3,1.79557589169046282764e+09,'call','s','ended','{"tool": "echo", "version": "1.0.0", "attempt": 1, "error": null, "wall_s": 0.001, "display": "1"}');
INSERT INTO "records" VALUES(4,1.79557589169047212597e+09,'intent','s','killed','{"tool": "echo", "version": "1.0.0", "tier": "read_only", "agent": "agent", "session_kind": "worker", "grants": [], "attempt": 1, "arguments": {"value": 2}, "digest": "sha256:49c987621f206f09e5fbe23b516b55a36f838cb14867961f1d84a554d3a35b6b"}');
CREATE INDEX by_call ON records (call, number) WHERE call != '';
CREATE INDEX by_session ON records (session, number);
CREATE INDEX by_kind ON records (kind, number);
PRAGMA user_version = 1;
COMMIT;
