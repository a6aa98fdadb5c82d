BEGIN TRANSACTION;
CREATE TABLE acknowledgement (
        message INTEGER NOT NULL REFERENCES message (number) ON DELETE CASCADE,
        line INTEGER NOT NULL,
        metadata TEXT NOT NULL,
        content BLOB NOT NULL,
        PRIMARY KEY (message, line)
    ) STRICT, WITHOUT ROWID
    ;
CREATE TABLE content (
        number INTEGER PRIMARY KEY,
        size INTEGER NOT NULL,
        body BLOB,
        file TEXT,
        CHECK ((body IS NULL) <> (file IS NULL))
    ) STRICT
    ;
INSERT INTO "content" VALUES(1,8,X'646F63756D656E74',NULL);
INSERT INTO "content" VALUES(2,7,X'616E6F74686572',NULL);
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
CREATE TABLE entries_state (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        revision INTEGER NOT NULL
    ) STRICT
    ;
INSERT INTO "entries_state" VALUES(1,0);
CREATE TABLE entry (
        code TEXT PRIMARY KEY,
        component TEXT NOT NULL
    ) STRICT, WITHOUT ROWID
    ;
CREATE TABLE hold (
        kind TEXT NOT NULL,
        value TEXT NOT NULL,
        by_whom TEXT NOT NULL,
        at INTEGER NOT NULL,
        reason TEXT NOT NULL,
        PRIMARY KEY (kind, value)
    ) STRICT, WITHOUT ROWID
    ;
CREATE TABLE invitation (
        fingerprint BLOB PRIMARY KEY,
        code TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        created_by TEXT NOT NULL,
        expires_at INTEGER NOT NULL,
        registration_id TEXT NOT NULL,
        withdrawn_at INTEGER
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
INSERT INTO "journal" VALUES(1,1772366400000000,'administration',1,'{"actor":"tester","action":"written long ago","target":"","before":"","after":"","reason":""}');
CREATE TABLE journal_state (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        pruned INTEGER NOT NULL,
        exported INTEGER NOT NULL
    ) STRICT
    ;
INSERT INTO "journal_state" VALUES(1,0,0);
CREATE TABLE ledger (
        fingerprint BLOB PRIMARY KEY,
        key_digest BLOB NOT NULL,
        code TEXT NOT NULL,
        kind TEXT NOT NULL,
        certificate_id TEXT NOT NULL,
        not_after INTEGER NOT NULL,
        revoked_at INTEGER
    ) STRICT, WITHOUT ROWID
    ;
CREATE TABLE message (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        side TEXT NOT NULL,
        state TEXT NOT NULL,
        expires_at INTEGER NOT NULL,
        changed_at INTEGER NOT NULL,
        message_id TEXT NOT NULL,
        receiver_code TEXT NOT NULL,
        message_type TEXT NOT NULL,
        generated_at INTEGER NOT NULL,
        generated TEXT NOT NULL,
        expiration_at INTEGER,
        expiration TEXT,
        sender_code TEXT NOT NULL,
        internal_type TEXT NOT NULL,
        extension TEXT NOT NULL,
        related_message_id TEXT NOT NULL,
        sender_application TEXT NOT NULL,
        ba_message_id TEXT NOT NULL,
        processors TEXT NOT NULL,
        mversion INTEGER NOT NULL,
        route TEXT NOT NULL,
        fingerprint BLOB NOT NULL,
        size INTEGER NOT NULL,
        application TEXT NOT NULL,
        conversation_id TEXT NOT NULL,
        status TEXT,
        open_until INTEGER,
        final_at INTEGER,
        peer TEXT NOT NULL,
        arrived_at INTEGER NOT NULL,
        has_content INTEGER NOT NULL
    ) STRICT
    ;
INSERT INTO "message" VALUES(1,'sent','DELIVERING',1772370000000000,1772366400000000,'m-sent','E2','BP1-A',1772366400000000,'2026-03-01T12:00:00.000Z',1772370000000000,'2026-03-01T13:00:00.000Z','E1','STANDARD_MESSAGE','','','','ba-1','[["signature",[["Signature","STRING","\u00e4 \u20ac"]]],["zip",[]],["encryption",[["Length","LONG","007"]]]]',2,'INDIRECT:B1',X'07070707070707070707070707070707070707070707070707070707070707070707070707070707070707070707070707070707070707070707070707070707',8,'trader','c-1','ACCEPTED',1772370000000000,NULL,'E2',1772366400000000,1);
INSERT INTO "message" VALUES(2,'received','WAITING',1772370000000000,1772366400000000,'m-received','E2','BP1-A',1772366400000000,'2026-03-01T12:00:00.000Z',1772370000000000,'2026-03-01T13:00:00.000Z','E1','STANDARD_MESSAGE','','','','','signature1SignatureSTRINGabczip0',2,'INDIRECT:B1',X'07070707070707070707070707070707070707070707070707070707070707070707070707070707070707070707070707070707070707070707070707070707',7,'','',NULL,1772370000000000,NULL,'E1',1772366400000000,1);
CREATE TABLE meta (
        name TEXT PRIMARY KEY,
        value TEXT NOT NULL
    ) STRICT, WITHOUT ROWID
    ;
INSERT INTO "meta" VALUES('component','C1');
INSERT INTO "meta" VALUES('instance','a167286f-d0c4-4323-9211-4972d0c3652b');
CREATE TABLE notice (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        channel TEXT NOT NULL,
        message_id TEXT NOT NULL,
        reference TEXT NOT NULL,
        told_at INTEGER NOT NULL,
        at INTEGER,
        event TEXT,
        state TEXT,
        moved INTEGER,
        detail TEXT,
        acknowledgement_id TEXT
    ) STRICT
    ;
CREATE TABLE outgoing (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        message_id TEXT NOT NULL,
        message INTEGER REFERENCES message (number),
        metadata TEXT,
        size INTEGER NOT NULL,
        body BLOB,
        file TEXT,
        route TEXT NOT NULL,
        expires_at INTEGER NOT NULL,
        priority INTEGER NOT NULL,
        attempts INTEGER NOT NULL DEFAULT 0,
        due_at INTEGER,
        CHECK (metadata IS NOT NULL OR message IS NOT NULL),
        CHECK ((message IS NULL) + (body IS NULL) + (file IS NULL) = 2)
    ) STRICT
    ;
CREATE TABLE own_entry (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        component TEXT NOT NULL,
        revision INTEGER NOT NULL,
        pushed INTEGER NOT NULL
    ) STRICT
    ;
CREATE TABLE paper (
        number INTEGER PRIMARY KEY,
        digest BLOB NOT NULL UNIQUE,
        body BLOB NOT NULL
    ) STRICT
    ;
CREATE TABLE paper_of (
        message INTEGER NOT NULL REFERENCES message (number) ON DELETE CASCADE,
        name TEXT NOT NULL,
        paper INTEGER NOT NULL REFERENCES paper (number),
        PRIMARY KEY (message, name)
    ) STRICT, WITHOUT ROWID
    ;
CREATE TABLE registration (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        registration_id TEXT NOT NULL UNIQUE,
        code TEXT NOT NULL,
        status TEXT NOT NULL,
        request TEXT NOT NULL,
        submitted_at INTEGER NOT NULL,
        submitted_by BLOB NOT NULL,
        extension INTEGER NOT NULL,
        reason TEXT NOT NULL,
        decided_at INTEGER,
        decided_by TEXT NOT NULL,
        issued TEXT NOT NULL
    ) STRICT
    ;
CREATE TABLE remnant (
        number INTEGER PRIMARY KEY,
        side TEXT NOT NULL,
        message_id TEXT NOT NULL,
        final_at INTEGER NOT NULL,
        has_content INTEGER NOT NULL
    ) STRICT
    ;
CREATE TABLE replica (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        component_directory TEXT NOT NULL UNIQUE,
        content_id TEXT NOT NULL,
        valid_until INTEGER
    ) STRICT
    ;
CREATE TABLE replica_entry (
        replica INTEGER NOT NULL REFERENCES replica (number) ON DELETE CASCADE,
        line INTEGER NOT NULL,
        component TEXT NOT NULL,
        PRIMARY KEY (replica, line)
    ) STRICT, WITHOUT ROWID
    ;
CREATE TABLE resend (
        message INTEGER PRIMARY KEY REFERENCES message (number) ON DELETE CASCADE,
        old TEXT NOT NULL
    ) STRICT
    ;
CREATE TABLE subscription (
        message INTEGER PRIMARY KEY REFERENCES message (number) ON DELETE CASCADE,
        channel TEXT NOT NULL,
        reference TEXT NOT NULL,
        every INTEGER NOT NULL
    ) STRICT
    ;
CREATE TABLE trace (
        message INTEGER NOT NULL REFERENCES message (number) ON DELETE CASCADE,
        line INTEGER NOT NULL,
        at INTEGER NOT NULL,
        event TEXT NOT NULL,
        state TEXT NOT NULL,
        moved INTEGER NOT NULL,
        detail TEXT NOT NULL,
        acknowledgement_id TEXT NOT NULL,
        PRIMARY KEY (message, line)
    ) STRICT, WITHOUT ROWID
    ;
INSERT INTO "trace" VALUES(1,1,1772366400000000,'ACCEPT','ACCEPTED',1,'','');
INSERT INTO "trace" VALUES(1,2,1772366400000000,'TRANSFERRED','DELIVERING',1,'','');
INSERT INTO "trace" VALUES(2,1,1772366400000000,'VERIFIED','WAITING',1,'','');
CREATE UNIQUE INDEX message_by_id ON message (message_id, side);
CREATE UNIQUE INDEX message_by_conversation ON message (conversation_id, application)
    WHERE side = 'sent' AND conversation_id <> ''
    ;
CREATE INDEX message_by_ba_id ON message (ba_message_id) WHERE ba_message_id <> '';
CREATE INDEX message_by_type ON message (message_type);
CREATE INDEX message_by_peer ON message (peer);
CREATE INDEX message_by_status ON message (status) WHERE status IS NOT NULL;
CREATE INDEX message_by_arrival ON message (arrived_at);
CREATE INDEX message_waiting ON message (message_type, number, expires_at)
    WHERE state = 'WAITING'
    ;
CREATE INDEX message_open ON message (open_until) WHERE open_until IS NOT NULL;
CREATE INDEX message_final ON message (side, final_at) WHERE final_at IS NOT NULL;
CREATE INDEX message_final_with_content ON message (side, final_at)
    WHERE final_at IS NOT NULL AND has_content = 1
    ;
CREATE UNIQUE INDEX content_by_file ON content (file) WHERE file IS NOT NULL;
CREATE UNIQUE INDEX remnant_by_id ON remnant (message_id, side);
CREATE INDEX remnant_final ON remnant (side, final_at) WHERE has_content = 0;
CREATE INDEX remnant_final_with_content ON remnant (side, final_at) WHERE has_content = 1;
CREATE INDEX outgoing_by_id ON outgoing (message_id);
CREATE INDEX outgoing_by_message ON outgoing (message);
CREATE INDEX outgoing_by_expiry ON outgoing (expires_at);
CREATE INDEX outgoing_ready ON outgoing (priority DESC) WHERE due_at IS NULL;
CREATE INDEX outgoing_postponed ON outgoing (due_at, expires_at, priority)
    WHERE due_at IS NOT NULL
    ;
CREATE INDEX outgoing_postponed_in_order
    ON outgoing (priority DESC, number, due_at, expires_at) WHERE due_at IS NOT NULL
    ;
CREATE UNIQUE INDEX outgoing_by_file ON outgoing (file) WHERE file IS NOT NULL;
CREATE INDEX registration_by_code ON registration (code);
CREATE INDEX registration_by_status ON registration (status);
CREATE INDEX invitation_by_code ON invitation (code);
CREATE INDEX ledger_by_key ON ledger (key_digest);
CREATE INDEX ledger_by_code ON ledger (code);
CREATE INDEX message_awaited ON message (route, expires_at)
    WHERE side = 'sent' AND state IN ('ACCEPTED', 'DELIVERING', 'RECEIVE_HELD', 'DELIVERED', 'TRACING')
    ;
CREATE INDEX notice_by_channel ON notice (channel, number);
CREATE INDEX journal_administration ON journal (sequence) WHERE kind = 'administration';
CREATE INDEX journal_refusal ON journal (sequence) WHERE kind = 'refusal';
CREATE INDEX message_in_trouble ON message (number, state) WHERE state IN ('EXPIRED', 'FAILED', 'REFUSED');
CREATE INDEX resend_by_old ON resend (old);
CREATE INDEX paper_of_by_paper ON paper_of (paper);
CREATE INDEX message_held_back ON message (number) WHERE state = 'HELD_BACK';
CREATE INDEX outgoing_repeated ON outgoing (message)
    WHERE due_at IS NOT NULL AND message IS NOT NULL
    ;
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('message',2);
COMMIT;
PRAGMA user_version = 9;
