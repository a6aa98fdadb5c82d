BEGIN TRANSACTION;
CREATE TABLE expected (
        correlation TEXT PRIMARY KEY,
        address TEXT NOT NULL,
        transport TEXT NOT NULL,
        at INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID
    ;
CREATE TABLE instance (name TEXT PRIMARY KEY, seen INTEGER NOT NULL, load INTEGER NOT NULL DEFAULT 0) STRICT, WITHOUT ROWID;
CREATE TABLE journal (
        sequence INTEGER PRIMARY KEY,
        at INTEGER NOT NULL,
        kind TEXT NOT NULL,
        schema_version INTEGER NOT NULL,
        payload TEXT NOT NULL
    ) STRICT
    ;
CREATE TABLE journal_state (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        pruned INTEGER NOT NULL,
        exported INTEGER NOT NULL
    ) STRICT
    ;
INSERT INTO "journal_state" VALUES(1,0,0);
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
INSERT INTO "meta" VALUES('component','C1');
INSERT INTO "meta" VALUES('instance','324e2a5f-4d95-44c4-8996-55f37e76e35a');
CREATE TABLE object (
        noun TEXT NOT NULL,
        mrid TEXT NOT NULL,
        state TEXT NOT NULL,
        content TEXT NOT NULL,
        PRIMARY KEY (noun, mrid)
    ) STRICT, WITHOUT ROWID
    ;
CREATE TABLE object_history (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        noun TEXT NOT NULL,
        mrid TEXT NOT NULL,
        state TEXT NOT NULL,
        content TEXT NOT NULL,
        at INTEGER NOT NULL
    ) STRICT
    ;
CREATE TABLE object_name (
        noun TEXT NOT NULL,
        mrid TEXT NOT NULL,
        name TEXT NOT NULL,
        id_type TEXT NOT NULL,
        id_authority TEXT NOT NULL,
        PRIMARY KEY (noun, mrid, name, id_type, id_authority)
    ) STRICT, WITHOUT ROWID
    ;
CREATE TABLE outbox (
        sequence INTEGER PRIMARY KEY AUTOINCREMENT,
        request INTEGER REFERENCES request (number) ON DELETE CASCADE,
        address TEXT NOT NULL,
        body BLOB NOT NULL,
        message_id TEXT NOT NULL,
        correlation_id TEXT NOT NULL,
        reply INTEGER NOT NULL,
        sent INTEGER NOT NULL DEFAULT 0
    ) STRICT
    ;
CREATE TABLE reading (
        meter TEXT NOT NULL,
        reading_type TEXT NOT NULL,
        at INTEGER NOT NULL,
        value TEXT NOT NULL,
        PRIMARY KEY (meter, reading_type, at)
    ) STRICT, WITHOUT ROWID
    ;
CREATE TABLE request (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        digest BLOB NOT NULL,
        at INTEGER NOT NULL
    ) STRICT
    ;
CREATE TABLE request_key (
        source TEXT NOT NULL,
        key TEXT NOT NULL,
        request INTEGER NOT NULL REFERENCES request (number) ON DELETE CASCADE,
        PRIMARY KEY (source, key)
    ) STRICT, WITHOUT ROWID
    ;
CREATE INDEX request_by_time ON request (at);
CREATE INDEX request_key_by_request ON request_key (request);
CREATE INDEX outbox_by_request ON outbox (request);
CREATE INDEX outbox_unsent ON outbox (sequence) WHERE sent = 0;
CREATE INDEX object_by_name ON object_name (noun, name);
CREATE INDEX object_history_by_object ON object_history (noun, mrid);
CREATE INDEX journal_administration ON journal (sequence) WHERE kind = 'administration';
CREATE INDEX journal_refusal ON journal (sequence) WHERE kind = 'refusal';
DELETE FROM "sqlite_sequence";
COMMIT;
PRAGMA user_version = 3;
