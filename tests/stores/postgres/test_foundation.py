"""What every store in PostgreSQL promises, whatever it keeps."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import psycopg
import pytest

from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.postgres.settings import PostgresSettings
from gridpost.stores.postgres.store import PostgresStore
from gridpost.stores.postgres.transaction import Transaction
from stores.postgres.notes import NOTES, add, open_notes, texts
from support.cutting_proxy import cutting_proxy
from support.postgres import PostgresDatabase, PostgresServer


def refused_rule(settings: PostgresSettings, component: str = "E1") -> Rule:
    with pytest.raises(Refusal) as refused:
        open_notes(settings, component)
    return refused.value.rule


class TestOpening:
    @pytest.mark.parametrize("setting", ["fsync", "full_page_writes"])
    def test_a_server_that_does_not_flush_is_refused(
        self, own_postgres_server: PostgresServer, setting: str
    ) -> None:
        own_postgres_server.restart("-c", f"{setting}=off")
        try:
            database = own_postgres_server.create_database()
            with pytest.raises(Refusal, match=f"{setting} is off") as refused:
                open_notes(database.settings())
        finally:
            own_postgres_server.restart()
        assert refused.value.rule is Rule.STORE_UNSAFE

    def test_a_database_that_answers_commits_early_is_refused(
        self, postgres: PostgresDatabase
    ) -> None:
        with postgres.connect() as connection:
            connection.execute(f"ALTER DATABASE {postgres.name} SET synchronous_commit = off")
        assert refused_rule(postgres.settings()) is Rule.STORE_UNSAFE

    async def test_tables_are_made_once_and_a_newer_version_is_left_alone(
        self, postgres: PostgresDatabase
    ) -> None:
        settings = postgres.settings()
        for _ in range(2):
            await open_notes(settings).close()
        newer = {"notes": (*NOTES["notes"], ("ALTER TABLE note ADD COLUMN at bigint",))}
        await PostgresStore.open(settings, "E1", newer, lambda t: t).close()
        with pytest.raises(Refusal, match="version 2") as refused:
            open_notes(settings)
        assert refused.value.rule is Rule.STORE_TOO_NEW

    async def test_processes_that_start_together_make_the_tables_once(
        self, postgres: PostgresDatabase
    ) -> None:
        stores = await asyncio.gather(
            *(asyncio.to_thread(open_notes, postgres.settings()) for _ in range(4))
        )
        assert len({store.identity.instance for store in stores}) == 4
        for store in stores:
            await store.close()

    async def test_a_schema_belongs_to_one_component_and_a_database_may_hold_several(
        self, postgres: PostgresDatabase
    ) -> None:
        await open_notes(postgres.settings()).close()
        assert refused_rule(postgres.settings(), "E2") is Rule.STORE_OF_ANOTHER
        await open_notes(postgres.settings(schema="e2"), "E2").close()

    async def test_an_exclusive_store_is_opened_once_at_a_time(
        self, postgres: PostgresDatabase
    ) -> None:
        settings = postgres.settings(take_over=timedelta(seconds=0.5))
        first = open_notes(settings, exclusive=True)
        with pytest.raises(Refusal) as refused:
            await asyncio.to_thread(open_notes, settings, exclusive=True)
        assert refused.value.rule is Rule.STORE_IN_USE
        await first.close()
        await open_notes(postgres.settings(), exclusive=True).close()

    async def test_a_password_comes_apart_from_the_dsn_and_shows_nowhere(
        self, postgres: PostgresDatabase
    ) -> None:
        password = postgres.server.password
        settings = PostgresSettings(postgres.tcp_dsn, password)
        await open_notes(settings).close()
        assert password not in repr(settings) + settings.place()
        with pytest.raises(Refusal) as refused:
            open_notes(PostgresSettings(postgres.tcp_dsn, "wrong"))
        assert "wrong" not in refused.value.details
        with pytest.raises(Refusal) as unreadable:
            PostgresSettings("postgresql://u:s3cret@[host/x")
        assert "s3cret" not in str(unreadable.value) + unreadable.value.details

    def test_a_server_that_is_not_there_is_a_retryable_refusal(
        self, postgres: PostgresDatabase
    ) -> None:
        settings = PostgresSettings("postgresql://gridpost@127.0.0.1:1/none")
        with pytest.raises(Refusal) as refused:
            open_notes(settings)
        assert refused.value.rule is Rule.STORE_UNREACHABLE
        assert refused.value.retryable


class TestWorks:
    async def test_a_work_happens_entirely_or_not_at_all_and_alone(
        self, postgres: PostgresDatabase
    ) -> None:
        store = open_notes(postgres.settings())

        async def one(index: int) -> int:
            def work(transaction: Transaction) -> int:
                done = add(f"{index:02}")(transaction)
                if index % 3 == 0:
                    raise Refusal(Rule.USAGE, str(index))
                if index % 7 == 0:
                    add(f"{index:02}")(transaction)
                return done

            return await store.run(work)

        outcomes = await asyncio.gather(*(one(n) for n in range(30)), return_exceptions=True)
        good = {n for n in range(30) if n % 3 and n % 7}
        for index, outcome in enumerate(outcomes):
            if index in good:
                assert outcome == 1
            else:
                assert isinstance(outcome, Refusal if index % 3 == 0 else psycopg.IntegrityError)
        assert await store.read(texts) == [f"{n:02}" for n in sorted(good)]
        await store.close()

    async def test_work_that_reads_changes_nothing(self, postgres: PostgresDatabase) -> None:
        store = open_notes(postgres.settings())
        with pytest.raises(RuntimeError, match="must not change"):
            await store.read(add("x"))
        assert await store.read(texts) == []
        await store.close()
        await store.close()
        with pytest.raises(RuntimeError):
            await store.run(add("x"))
        with pytest.raises(RuntimeError):
            await store.read(texts)

    async def test_processes_that_want_the_same_rows_crosswise_both_succeed(
        self, postgres: PostgresDatabase
    ) -> None:
        with postgres.connect() as connection:
            connection.execute(f"ALTER DATABASE {postgres.name} SET deadlock_timeout = '50ms'")
        one, two = open_notes(postgres.settings()), open_notes(postgres.settings())
        for text in "ab":
            await one.run(add(text))

        def touch(*order: str) -> object:
            def work(transaction: Transaction) -> str:
                for text in order:
                    transaction.connection.execute(
                        "SELECT 1 FROM note WHERE text = %s FOR UPDATE", (text,)
                    )
                    transaction.connection.execute("SELECT pg_sleep(0.1)")
                return order[0]

            return work

        assert await asyncio.gather(one.run(touch("a", "b")), two.run(touch("b", "a"))) == [
            "a",
            "b",
        ]
        await one.close()
        await two.close()


class TestLosing:
    async def test_a_lost_database_refuses_and_is_used_again_when_it_is_back(
        self, own_postgres_server: PostgresServer
    ) -> None:
        store = open_notes(own_postgres_server.create_database().settings())
        await store.run(add("before"))
        assert await store.read(texts) == ["before"]
        own_postgres_server.stop()
        for _ in range(2):
            with pytest.raises(Refusal) as refused:
                await store.run(add("lost"))
            assert refused.value.rule is Rule.STORE_UNREACHABLE
            assert refused.value.retryable
            with pytest.raises(Refusal):
                await store.read(texts)
        own_postgres_server.start()
        await store.run(add("after"))
        assert await store.read(texts) == ["after", "before"]
        # Idle connections that broke meanwhile are replaced without anybody noticing.
        own_postgres_server.restart()
        assert await store.read(texts) == ["after", "before"]
        await store.run(add("again"))
        await store.close()

    async def test_a_commit_whose_answer_is_lost_counts_as_what_it_was(
        self, postgres: PostgresDatabase
    ) -> None:
        async with cutting_proxy(postgres.server.port) as proxy:
            dsn = f"postgresql://gridpost@127.0.0.1:{proxy.port}/{postgres.name}"
            store = await asyncio.to_thread(
                open_notes, PostgresSettings(dsn, postgres.server.password)
            )
            proxy.word = b"COMMIT"
            assert await store.run(add("kept")) == 1
            assert proxy.cuts == 1
            assert await store.read(texts) == ["kept"]
            await store.close()

    async def test_a_commit_that_did_not_happen_is_refused(
        self, postgres: PostgresDatabase
    ) -> None:
        store = open_notes(postgres.settings())
        with postgres.connect() as other:
            other.execute("SET search_path TO gridpost")
            # The check of a commit waits here, and the connection ends while it waits.
            other.execute(
                "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS "
                "$$ BEGIN PERFORM pg_sleep(60); RETURN NULL; END $$"
            )
            other.execute(
                "CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON note "
                "DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION slow()"
            )
            run = asyncio.ensure_future(store.run(add("lost")))
            ended = False
            while not ended:
                await asyncio.sleep(0.05)
                found = other.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE query = 'COMMIT' AND state = 'active' AND datname = current_database()"
                ).fetchall()
                ended = bool(found)
            with pytest.raises(Refusal) as refused:
                await run
            assert refused.value.rule is Rule.STORE_UNREACHABLE
            other.execute("DROP TRIGGER slow ON note")
        assert await store.read(texts) == []
        assert await store.run(add("kept")) == 1
        await store.close()

    async def test_when_the_outcome_cannot_be_found_out_the_caller_is_told_so(
        self, own_postgres_server: PostgresServer
    ) -> None:
        database = own_postgres_server.create_database()
        async with cutting_proxy(own_postgres_server.port) as proxy:
            dsn = f"postgresql://gridpost@127.0.0.1:{proxy.port}/{database.name}"
            store = await asyncio.to_thread(
                open_notes,
                PostgresSettings(
                    dsn,
                    own_postgres_server.password,
                    doubt_timeout=timedelta(seconds=0.1),
                    connect_timeout=timedelta(seconds=1),
                ),
            )
            proxy.word = b"COMMIT"
            run = asyncio.ensure_future(store.run(add("perhaps")))
            proxy.refusing_new = True
            with pytest.raises(Refusal, match="not known") as refused:
                await run
            assert refused.value.retryable
            proxy.refusing_new = False
            assert await store.read(texts) == ["perhaps"]
            await store.close()
