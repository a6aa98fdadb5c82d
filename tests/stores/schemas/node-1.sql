BEGIN TRANSACTION;
CREATE TABLE certificate (
        code TEXT NOT NULL REFERENCES component (code) ON DELETE CASCADE,
        position INTEGER NOT NULL,
        kind TEXT NOT NULL,
        certificate_id TEXT NOT NULL,
        revoked INTEGER NOT NULL,
        der BLOB NOT NULL,
        not_before INTEGER NOT NULL,
        not_after INTEGER NOT NULL,
        subject_code TEXT NOT NULL,
        PRIMARY KEY (code, position)
    ) STRICT, WITHOUT ROWID
    ;
CREATE TABLE component (
        code TEXT PRIMARY KEY,
        node TEXT NOT NULL,
        type TEXT NOT NULL,
        description TEXT NOT NULL
    ) STRICT, WITHOUT ROWID
    ;
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
CREATE TABLE message (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        message_id TEXT NOT NULL UNIQUE,
        receiver TEXT NOT NULL,
        sender TEXT NOT NULL,
        business_type TEXT NOT NULL,
        internal_type TEXT NOT NULL,
        state TEXT NOT NULL,
        transferred_at INTEGER NOT NULL,
        changed_at INTEGER NOT NULL,
        expires_at INTEGER,
        size INTEGER NOT NULL,
        metadata TEXT NOT NULL,
        body BLOB,
        file TEXT
    ) STRICT
;
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
INSERT INTO "meta" VALUES('component','C1');
INSERT INTO "meta" VALUES('instance','c9f9da5d-86b4-4403-989e-4efc2beaed5c');
INSERT INTO "meta" VALUES('kept','since then');
CREATE TABLE remote_node (
        code TEXT PRIMARY KEY,
        urls TEXT NOT NULL,
        mversion INTEGER,
        dversion INTEGER,
        last_success INTEGER,
        problem TEXT NOT NULL
    ) STRICT, WITHOUT ROWID
    ;
CREATE INDEX message_waiting ON message (receiver, business_type, number)
    WHERE state = 'ACCEPTED'
    ;
CREATE INDEX message_expiring ON message (expires_at)
    WHERE state IN ('VERIFYING', 'ACCEPTED', 'DELIVERING')
    ;
CREATE INDEX message_final ON message (changed_at)
    WHERE state IN ('DELIVERED', 'RECEIVED', 'FAILED')
    ;
CREATE INDEX component_by_node ON component (node);
CREATE INDEX journal_administration ON journal (sequence) WHERE kind = 'administration';
CREATE INDEX journal_refusal ON journal (sequence) WHERE kind = 'refusal';
DELETE FROM "sqlite_sequence";
COMMIT;
PRAGMA user_version = 1;
