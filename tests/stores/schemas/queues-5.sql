BEGIN TRANSACTION;
CREATE TABLE copied_component (
        component_directory TEXT NOT NULL
            REFERENCES copied_subsystem (component_directory) ON DELETE CASCADE,
        line INTEGER NOT NULL,
        component TEXT NOT NULL,
        PRIMARY KEY (component_directory, line)
    ) STRICT, WITHOUT ROWID
    ;
CREATE TABLE copied_subsystem (
        component_directory TEXT PRIMARY KEY,
        place INTEGER NOT NULL,
        content_id TEXT NOT NULL,
        valid_until INTEGER
    ) STRICT, WITHOUT ROWID
    ;
CREATE TABLE enrolment (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        state TEXT NOT NULL,
        record TEXT NOT NULL
    ) STRICT
    ;
CREATE TABLE journal (
        sequence INTEGER PRIMARY KEY,
        at INTEGER NOT NULL,
        kind TEXT NOT NULL,
        schema_version INTEGER NOT NULL,
        payload TEXT NOT NULL
    ) STRICT
    ;
INSERT INTO "journal" VALUES(1,1772366400000000,'transfer',1,'{"side":"received","message_id":"6f9619ff-8b86-4d01-b42d-00cf4fc964ff","sender_code":"E1","receiver_code":"E2","message_type":"A01","peer":"E1","size":3,"outcome":"accepted","detail":""}');
CREATE TABLE journal_state (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        pruned INTEGER NOT NULL,
        exported INTEGER NOT NULL
    ) STRICT
    ;
INSERT INTO "journal_state" VALUES(1,0,0);
CREATE TABLE known (
        message_id BLOB NOT NULL,
        queue INTEGER NOT NULL,
        number INTEGER NOT NULL,
        expires_at INTEGER NOT NULL,
        PRIMARY KEY (message_id, queue)
    ) STRICT, WITHOUT ROWID
;
CREATE TABLE message (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        queue INTEGER NOT NULL,
        message_id BLOB NOT NULL,
        sender TEXT NOT NULL,
        message_type TEXT NOT NULL,
        stored_at INTEGER NOT NULL,
        expires_at INTEGER NOT NULL,
        size INTEGER NOT NULL,
        priority INTEGER,
        deliveries INTEGER NOT NULL,
        held TEXT,
        file TEXT,
        body BLOB
    , start INTEGER NOT NULL DEFAULT 0) STRICT
;
INSERT INTO "message" VALUES(1,1,X'6F9619FF8B864D01B42D00CF4FC964FF','E1','A01',1772366400000000,1772370000000000,16,NULL,0,NULL,NULL,X'61207365616C6564206D657373616765',0);
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
INSERT INTO "meta" VALUES('component','C1');
INSERT INTO "meta" VALUES('instance','2aec56f7-3f98-43a1-9b57-b4064a29bfc0');
CREATE TABLE own_entry (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        component TEXT NOT NULL,
        revision INTEGER NOT NULL,
        pushed INTEGER NOT NULL
    ) STRICT
    ;
CREATE TABLE queue (
        queue INTEGER PRIMARY KEY,
        code TEXT NOT NULL UNIQUE,
        active INTEGER NOT NULL
    , handed_out INTEGER NOT NULL DEFAULT 0) STRICT
;
INSERT INTO "queue" VALUES(1,'E2',1,0);
CREATE TABLE recent (
        number INTEGER PRIMARY KEY,
        message_id BLOB NOT NULL,
        queue INTEGER NOT NULL,
        expires_at INTEGER NOT NULL
    ) STRICT
    ;
INSERT INTO "recent" VALUES(1,X'6F9619FF8B864D01B42D00CF4FC964FF',1,1772370000000000);
CREATE INDEX message_ready ON message (queue, number, size) WHERE held IS NULL;
CREATE INDEX message_held ON message (queue) WHERE held IS NOT NULL;
CREATE INDEX message_by_expiry ON message (expires_at);
CREATE INDEX message_by_file ON message (file, size) WHERE file IS NOT NULL;
CREATE INDEX journal_administration ON journal (sequence) WHERE kind = 'administration';
CREATE INDEX journal_refusal ON journal (sequence) WHERE kind = 'refusal';
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('message',1);
COMMIT;
PRAGMA user_version = 5;
