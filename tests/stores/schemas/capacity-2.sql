BEGIN TRANSACTION;
CREATE TABLE entry (
        sequence INTEGER PRIMARY KEY AUTOINCREMENT,
        commit_number INTEGER NOT NULL,
        at INTEGER NOT NULL,
        kind TEXT NOT NULL,
        out_area TEXT NOT NULL DEFAULT '',
        in_area TEXT NOT NULL DEFAULT '',
        period_start INTEGER,
        period_end INTEGER,
        quantity INTEGER NOT NULL DEFAULT 0,
        event TEXT NOT NULL DEFAULT '',
        actor TEXT NOT NULL DEFAULT '',
        balancing_group TEXT NOT NULL DEFAULT '',
        client_id TEXT NOT NULL DEFAULT '',
        correlation_id TEXT NOT NULL DEFAULT '',
        text TEXT NOT NULL DEFAULT ''
    ) STRICT
;
INSERT INTO "entry" VALUES(1,1,1772366400000000,'active','','',NULL,NULL,1,'','elsewhere','','','','');
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
INSERT INTO "meta" VALUES('instance','87f8572a-0004-4162-a17d-1a9ddda4f804');
CREATE TABLE outcome (
        user TEXT NOT NULL,
        correlation_id TEXT NOT NULL,
        at INTEGER NOT NULL,
        outcomes TEXT NOT NULL,
        PRIMARY KEY (user, correlation_id)
    ) STRICT, WITHOUT ROWID
;
CREATE INDEX entry_by_period ON entry (period_start) WHERE period_start IS NOT NULL;
CREATE INDEX entry_by_group ON entry (balancing_group, period_start)
    WHERE kind = 'allocation'
    ;
CREATE INDEX entry_by_kind ON entry (kind, actor) WHERE kind IN ('status', 'login', 'active');
CREATE TRIGGER entry_stays BEFORE UPDATE ON entry
    BEGIN SELECT raise(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER entry_remains BEFORE DELETE ON entry
    BEGIN SELECT raise(ABORT, 'the ledger is append-only'); END;
CREATE INDEX outcome_by_time ON outcome (at);
CREATE INDEX journal_administration ON journal (sequence) WHERE kind = 'administration';
CREATE INDEX journal_refusal ON journal (sequence) WHERE kind = 'refusal';
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('entry',1);
COMMIT;
PRAGMA user_version = 2;
