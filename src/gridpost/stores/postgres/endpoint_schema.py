"""The tables of an endpoint: its message box, and which process has charge of what in it.

A released list never changes.
"""

from __future__ import annotations

from gridpost.stores.postgres.controls import CONTROLS
from gridpost.stores.postgres.directory_schema import DIRECTORY_CLIENT
from gridpost.stores.postgres.migrations import Migrations
from gridpost.stores.postgres.wishes import WISHES

# Spelled out: a released migration must not change with the code.
AWAITING = "'ACCEPTED', 'DELIVERING', 'RECEIVE_HELD', 'DELIVERED', 'TRACING'"
TROUBLE = "'EXPIRED', 'FAILED', 'REFUSED'"

# As in the embedded store, three columns of `message` repeat what others say, in the form that
# questions are asked in: open_until, final_at and peer. `holder` and `owner` are numbers of
# processes: who hands a document to a consumer, who makes a transfer.
_BOX = (
    """
    CREATE TABLE process (
        number integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        name text NOT NULL,
        since timestamptz NOT NULL DEFAULT now()
    )
    """,
    """
    CREATE TABLE message (
        number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        side text NOT NULL,
        state text NOT NULL,
        expires_at bigint NOT NULL,
        changed_at bigint NOT NULL,
        message_id text NOT NULL,
        receiver_code text NOT NULL,
        message_type text COLLATE "C" NOT NULL,
        generated_at bigint NOT NULL,
        generated text NOT NULL,
        expiration_at bigint,
        expiration text,
        sender_code text NOT NULL,
        internal_type text NOT NULL,
        extension text NOT NULL,
        related_message_id text NOT NULL,
        sender_application text NOT NULL,
        ba_message_id text NOT NULL,
        processors text NOT NULL,
        mversion integer NOT NULL,
        route text NOT NULL,
        fingerprint bytea NOT NULL,
        size bigint NOT NULL,
        application text NOT NULL,
        conversation_id text NOT NULL,
        status text,
        open_until bigint,
        final_at bigint,
        peer text NOT NULL,
        arrived_at bigint NOT NULL,
        has_content integer NOT NULL,
        holder integer
    ) WITH (fillfactor = 80)
    """,
    "CREATE UNIQUE INDEX message_by_id ON message (message_id, side)",
    """
    CREATE UNIQUE INDEX message_by_conversation ON message (conversation_id, application)
    WHERE side = 'sent' AND conversation_id <> ''
    """,
    """
    CREATE INDEX message_by_ba_id ON message (ba_message_id, number) WHERE ba_message_id <> ''
    """,
    "CREATE INDEX message_by_type ON message (message_type, number)",
    "CREATE INDEX message_by_peer ON message (peer, number)",
    "CREATE INDEX message_by_status ON message (status, number) WHERE status IS NOT NULL",
    "CREATE INDEX message_by_arrival ON message (arrived_at)",
    """
    CREATE INDEX message_waiting ON message (message_type, number)
    INCLUDE (expires_at) WHERE state = 'WAITING'
    """,
    "CREATE INDEX message_held ON message (holder) WHERE holder IS NOT NULL",
    "CREATE INDEX message_open ON message (open_until) WHERE open_until IS NOT NULL",
    "CREATE INDEX message_final ON message (side, final_at) WHERE final_at IS NOT NULL",
    """
    CREATE INDEX message_final_with_content ON message (side, final_at)
    WHERE final_at IS NOT NULL AND has_content = 1
    """,
    f"""
    CREATE INDEX message_awaited ON message (route, expires_at)
    WHERE side = 'sent' AND state IN ({AWAITING})
    """,
    f"CREATE INDEX message_in_trouble ON message (number) WHERE state IN ({TROUBLE})",
    # `message` is the number of a message or of its remnant; NULL: staged by a process for a `put`.
    """
    CREATE TABLE content (
        number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        message bigint UNIQUE,
        stager integer,
        body bytea NOT NULL,
        CHECK ((message IS NULL) <> (stager IS NULL))
    )
    """,
    # Documents are compressed already or worth no time: they are kept as they are.
    "ALTER TABLE content ALTER COLUMN body SET STORAGE EXTERNAL",
    "CREATE INDEX content_staged ON content (stager) WHERE stager IS NOT NULL",
    """
    CREATE TABLE trace (
        message bigint NOT NULL REFERENCES message (number) ON DELETE CASCADE,
        line integer NOT NULL,
        at bigint NOT NULL,
        event text NOT NULL,
        state text NOT NULL,
        moved boolean NOT NULL,
        detail text NOT NULL,
        acknowledgement_id text NOT NULL,
        PRIMARY KEY (message, line)
    )
    """,
    """
    CREATE TABLE acknowledgement (
        message bigint NOT NULL REFERENCES message (number) ON DELETE CASCADE,
        line integer NOT NULL,
        metadata text NOT NULL,
        content bytea NOT NULL,
        PRIMARY KEY (message, line)
    )
    """,
    """
    CREATE TABLE remnant (
        number bigint PRIMARY KEY,
        side text NOT NULL,
        message_id text NOT NULL,
        final_at bigint NOT NULL,
        has_content integer NOT NULL
    )
    """,
    "CREATE UNIQUE INDEX remnant_by_id ON remnant (message_id, side)",
    "CREATE INDEX remnant_final ON remnant (side, final_at) WHERE has_content = 0",
    "CREATE INDEX remnant_final_with_content ON remnant (side, final_at) WHERE has_content = 1",
    # metadata NULL: as in `message`; body NULL: the content of `message`.
    """
    CREATE TABLE outgoing (
        number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        owner integer NOT NULL,
        message_id text NOT NULL,
        message bigint REFERENCES message (number),
        metadata text,
        size bigint NOT NULL,
        body bytea,
        route text NOT NULL,
        expires_at bigint NOT NULL,
        priority integer NOT NULL,
        attempts integer NOT NULL DEFAULT 0,
        due_at bigint,
        CHECK (metadata IS NOT NULL OR message IS NOT NULL),
        CHECK ((message IS NULL) <> (body IS NULL))
    )
    """,
    "CREATE INDEX outgoing_by_id ON outgoing (message_id)",
    "CREATE INDEX outgoing_by_message ON outgoing (message)",
    "CREATE INDEX outgoing_by_expiry ON outgoing (expires_at)",
    """
    CREATE INDEX outgoing_ready ON outgoing (owner, priority DESC, number) WHERE due_at IS NULL
    """,
    """
    CREATE INDEX outgoing_postponed ON outgoing (owner, due_at) WHERE due_at IS NOT NULL
    """,
    # Of a message-type that keeps its order, one process makes all transfers to a recipient.
    """
    CREATE TABLE ordered_pair (
        message_type text NOT NULL,
        receiver_code text NOT NULL,
        owner integer NOT NULL,
        PRIMARY KEY (message_type, receiver_code)
    )
    """,
    """
    CREATE TABLE subscription (
        message bigint PRIMARY KEY REFERENCES message (number) ON DELETE CASCADE,
        channel text NOT NULL,
        reference text NOT NULL,
        every boolean NOT NULL
    )
    """,
    # Outlives its message: what was not told yet is told all the same.
    """
    CREATE TABLE notice (
        number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        channel text NOT NULL,
        message_id text NOT NULL,
        reference text NOT NULL,
        told_at bigint NOT NULL,
        at bigint,
        event text,
        state text,
        moved boolean,
        detail text,
        acknowledgement_id text,
        holder integer
    )
    """,
    "CREATE INDEX notice_by_channel ON notice (channel, number)",
    "CREATE INDEX notice_held ON notice (holder) WHERE holder IS NOT NULL",
)

# A search by the text of an error meets messages in trouble, and those whose transfer is repeated.
_REPEATED = (
    """
    CREATE INDEX outgoing_repeated ON outgoing (message)
    WHERE due_at IS NOT NULL AND message IS NOT NULL
    """,
)

# One passphrase for all keys: the check tells a wrong one before anything is read or written.
_KEYS = (
    """
    CREATE TABLE key_lock (
        one integer PRIMARY KEY CHECK (one = 1),
        salt bytea NOT NULL,
        work_factor integer NOT NULL,
        probe bytea NOT NULL
    )
    """,
    """
    CREATE TABLE key (
        name text PRIMARY KEY,
        sealed bytea NOT NULL,
        kind text,
        certificate_id text,
        certificate bytea
    )
    """,
)

ENDPOINT: Migrations = {
    **DIRECTORY_CLIENT,
    "message-box": (_BOX, _REPEATED),
    "keys": (_KEYS,),
    "controls": (CONTROLS, WISHES),
}
