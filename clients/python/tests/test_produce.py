"""Publishing, enqueueing and the inbox, in every kind of transaction."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import psycopg
import pytest
import sqlalchemy
from psycopg.rows import dict_row
from sqlalchemy.orm import Session

import penstock
from penstock import aio, testing

from .conftest import published, rows

Begin = Callable[[], Any]
KINDS = ["psycopg", "psycopg dict rows", "session", "connection", "function"]


@pytest.fixture(params=KINDS)
def begin(request: pytest.FixtureRequest, url: str) -> Iterator[Begin]:
    """Begins a transaction, which commits if the block ends well."""
    engine = sqlalchemy.create_engine(url.replace("postgres://", "postgresql://").replace("postgresql://", "postgresql+psycopg://"))

    @contextmanager
    def make() -> Iterator[Any]:
        if request.param == "session":
            with Session(engine) as session, session.begin():
                yield session
        elif request.param == "connection":
            with engine.begin() as connection:
                yield connection
        elif request.param == "function":
            with psycopg.connect(url, cursor_factory=psycopg.RawCursor) as conn:
                yield lambda text, values: conn.execute(text, values).fetchall() if text.startswith("select") else conn.execute(text, values) and []
        elif request.param == "psycopg dict rows":
            with psycopg.connect(url, row_factory=dict_row) as conn:
                yield conn
        else:
            with psycopg.connect(url) as conn:
                yield conn

    yield make
    engine.dispose()


def test_publish(begin: Begin, db: psycopg.Connection, outbox: str) -> None:
    with begin() as tx:
        penstock.publish(tx, outbox, b"\x00\xff", key="ann", topic="order.placed", headers={"traceparent": "00-1"})
        penstock.publish(tx, outbox, {"total": 10, "für": "Ann"})
        assert published(db, outbox) == []
    assert published(db, outbox) == [
        ("ann", "order.placed", {"traceparent": "00-1"}, b"\x00\xff"),
        (None, "", None, '{"total": 10, "für": "Ann"}'.encode()),
    ]


def test_a_rollback_publishes_nothing(begin: Begin, db: psycopg.Connection, outbox: str, queue: str) -> None:
    with pytest.raises(ZeroDivisionError), begin() as tx:
        penstock.publish(tx, outbox, "lost")
        penstock.enqueue(tx, queue, "lost")
        raise ZeroDivisionError
    assert published(db, outbox) == []
    assert rows(db, "select * from penstock.claim(%s)", queue) == []


def test_publish_many(begin: Begin, db: psycopg.Connection, outbox: str) -> None:
    texts = ["", 'quote " and \\ back', "{comma, brace}", "null", "snow ☃", "%s $1 :p1"]
    with begin() as tx:
        penstock.publish_many(tx, outbox, [penstock.Message(t, key=t or None, topic=t, headers={"h": t}, id=f"id {n}") for n, t in enumerate(texts)])
        penstock.publish_many(tx, outbox, [])
    assert published(db, outbox) == [(t or None, t, {"h": t}, t.encode()) for t in texts]
    assert rows(db, f"select id from penstock.{outbox} order by seq") == [(f"id {n}",) for n in range(len(texts))]


def test_enqueue(begin: Begin, db: psycopg.Connection, queue: str) -> None:
    later = datetime.now(timezone.utc) + timedelta(hours=1)
    with begin() as tx:
        made = penstock.enqueue(tx, queue, {"to": "ann"}, key="k", group_key="g", priority=-3, headers={"a": "b"})
        penstock.enqueue(tx, queue, "later", not_before=later)
        penstock.enqueue(tx, queue, "as late", not_before=timedelta(hours=1))
    assert not made.deduplicated
    found = rows(db, "select id, key, group_key, priority, headers, payload from penstock.claim(%s, 10, group_key => 'g')", queue)
    assert found == [(made.id, "k", "g", -3, {"a": "b"}, b'{"to": "ann"}')]
    assert rows(db, "select delayed from penstock.queue_status(%s)", queue) == [(2,)]


def test_enqueue_many_and_duplicates(begin: Begin, db: psycopg.Connection, queue: str) -> None:
    with begin() as tx:
        first = penstock.enqueue(tx, queue, "first", dedup_key="a")
        made = penstock.enqueue_many(tx, queue, [penstock.NewJob(str(n), key=f"k{n}" if n else None, dedup_key=d) for n, d in enumerate(["a", "b", None, "b"])])
        assert penstock.enqueue_many(tx, queue, []) == []
    assert [m.deduplicated for m in made] == [True, False, False, True]
    assert made[0].id == first.id and made[3].id == made[1].id
    claimed = rows(db, "select id, key, payload from penstock.claim(%s, 10)", queue)
    assert claimed == [(first.id, None, b"first"), (made[1].id, "k1", b"1"), (made[2].id, "k2", b"2")]


def test_unique_and_limits(begin: Begin, db: psycopg.Connection, queue: str) -> None:
    deadline = datetime(2100, 1, 1, tzinfo=timezone.utc)
    with begin() as tx:
        first = penstock.enqueue(tx, queue, "a", unique_key="u", max_attempts=3, timeout=timedelta(seconds=1.5), deadline=deadline)
        again = penstock.enqueue(tx, queue, "b", unique_key="u")
        assert (again.id, again.deduplicated, first.deduplicated) == (first.id, True, False)
        jobs = [penstock.NewJob("c", unique_key="u", on_conflict="debounce", debounce_max=timedelta(minutes=1)), penstock.NewJob("d", unique_key="v")]
        made = penstock.enqueue_many(tx, queue, jobs)
    assert [(m.id == first.id, m.deduplicated) for m in made] == [(True, True), (False, False)]
    options = {"penstock-unique-key": "u", "penstock-on-conflict": "debounce", "penstock-debounce-max": "60"}
    assert rows(db, "select key, headers, payload from penstock.claim(%s, 10) order by id", queue) == [
        ("u", options, b"c"), ("v", {"penstock-unique-key": "v"}, b"d")]  # fmt: skip
    with begin() as tx:
        penstock.enqueue(tx, queue, "late", deadline=timedelta(seconds=-1))
        penstock.enqueue(tx, queue, "e", max_attempts=3, timeout=timedelta(seconds=1.5), deadline=deadline)
    options = {"penstock-max-attempts": "3", "penstock-timeout": "1.5", "penstock-deadline": "2100-01-01T00:00:00.000000Z"}
    assert rows(db, "select headers from penstock.claim(%s, 10)", queue) == [(options,)]
    assert rows(db, "select expired from penstock.queue_status(%s)", queue) == [(1,)]


def test_bad_options(begin: Begin, queue: str) -> None:
    bad: list[tuple[str, penstock.NewJob]] = [
        ("unique_key", penstock.NewJob(unique_key="u", key="k")),
        ("on_conflict", penstock.NewJob(unique_key="u", on_conflict="merge")),
        ("on_conflict", penstock.NewJob(on_conflict="replace")),
        ("debounce_max", penstock.NewJob(unique_key="u", debounce_max=timedelta(seconds=1))),
        ("max_attempts", penstock.NewJob(max_attempts=0)),
        ("max_attempts", penstock.NewJob(max_attempts=2, headers={"penstock-max-attempts": "3"})),
        ("timeout", penstock.NewJob(timeout=timedelta(0))),
        ("deadline", penstock.NewJob(deadline=datetime(2100, 1, 1))),
        ("holds", penstock.NewJob(holds=0)),
        ("waits_for", penstock.NewJob(waits_for=list(range(1, 102)))),
        ("on_dead", penstock.NewJob(waits_for=[1], on_dead="die")),
    ]
    for field, job in bad:
        with begin() as tx, pytest.raises(penstock.FieldError) as caught:
            penstock.enqueue_many(tx, queue, [job])
        assert caught.value.field == field


def test_inbox(begin: Begin, consumer: str) -> None:
    with begin() as tx:
        assert penstock.inbox.first(tx, consumer, "m1")
        assert not penstock.inbox.first(tx, consumer, "m1")
    with begin() as tx:
        assert not penstock.inbox.first(tx, consumer, "m1")
        assert penstock.inbox.first_of(tx, consumer, ["m1", "m3", "m2", "m3"]) == ["m3", "m2"]
    with pytest.raises(ZeroDivisionError), begin() as tx:
        assert penstock.inbox.first(tx, consumer, "m4")
        raise ZeroDivisionError
    with begin() as tx:
        assert penstock.inbox.first(tx, consumer, "m4")


def test_buffer(begin: Begin, db: psycopg.Connection, outbox: str, queue: str) -> None:
    with begin() as tx, penstock.Buffer(tx, at=3) as buffer:
        for n in range(4):
            buffer.publish(outbox, str(n), key="k")
        assert rows_in(tx, f"select count(*) from penstock.{outbox}") == 3, "it is full at 3"
        buffer.enqueue(queue, "job", dedup_key="d")
    assert [row[3] for row in published(db, outbox)] == [b"0", b"1", b"2", b"3"]
    assert rows(db, "select payload from penstock.claim(%s, 10)", queue) == [(b"job",)]


def test_a_buffer_keeps_what_it_was_given(db: psycopg.Connection, outbox: str, queue: str) -> None:
    row, headers = {"n": 0}, {"n": "0"}
    with db.transaction(), penstock.Buffer(db) as buffer:
        for n in range(3):
            row["n"], headers["n"] = n, str(n)
            buffer.publish(outbox, row, headers=headers)
            buffer.enqueue(queue, row, headers=headers)
    want = [(f'{{"n": {n}}}'.encode(), {"n": str(n)}) for n in range(3)]
    for table in (outbox, queue):
        assert rows(db, f"select payload, headers from penstock.{table} order by seq") == want


def rows_in(tx: Any, text: str) -> object:
    from penstock._seam import execute

    return execute(tx, text, [])[0][0]


def test_session_commit_flushes(url: str, db: psycopg.Connection, outbox: str) -> None:
    engine = sqlalchemy.create_engine(url.replace("postgresql://", "postgres://").replace("postgres://", "postgresql+psycopg://"))
    with Session(engine) as session, penstock.Buffer(session) as buffer:
        buffer.publish(outbox, "one")
        session.commit()
        assert len(published(db, outbox)) == 1
        buffer.publish(outbox, "two")
        session.rollback()
        buffer.flush()
        session.rollback()
    assert len(published(db, outbox)) == 1
    engine.dispose()


REFUSED = [
    ({"payload": None}, "payload"),
    ({"payload": object()}, "payload"),
    ({"payload": "\ud800"}, "payload"),
    ({"payload": {"a": [float("nan")]}}, "payload"),
    ({"payload": float("-inf")}, "payload"),
    ({"payload": bytes((64 << 20) + 1)}, "payload"),
    ({"key": "x" * 1025}, "key"),
    ({"key": "a\0b"}, "key"),
    ({"headers": {"": "x"}}, "headers"),
    ({"headers": {"x": 1}}, "headers"),
    ({"headers": {"x": "y" * 65536}}, "headers"),
    *(({"key": given}, "key") for given in (0, b"", False)),  # they are not an empty text, which is no key
]


@pytest.mark.parametrize(("fields", "name"), [*REFUSED, ({"topic": "x" * 1025}, "topic"), ({"id": "a\nb"}, "id"), ({"id": "x" * 257}, "id")])
def test_a_message_that_cannot_be_carried(url: str, db: psycopg.Connection, outbox: str, fields: dict[str, Any], name: str) -> None:
    with psycopg.connect(url) as tx:
        with pytest.raises(penstock.FieldError) as refused:
            penstock.publish_many(tx, outbox, [penstock.Message("good"), penstock.Message(**fields)])
        assert refused.value.field == name
        penstock.publish(tx, outbox, "the transaction goes on")
    assert len(published(db, outbox)) == 1


NAIVE = datetime(2030, 1, 1)


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        *REFUSED,
        ({"priority": 16}, "priority"),
        ({"group_key": "x" * 257}, "group_key"),
        ({"dedup_key": "x" * 257}, "dedup_key"),
        ({"not_before": NAIVE}, "not_before"),
        ({"not_before": "tomorrow"}, "not_before"),
        ({"not_before": timedelta.max}, "not_before"),
        ({"deadline": datetime.max.replace(tzinfo=timezone(timedelta(hours=-5)))}, "deadline"),
        *(({name: 0}, name) for name in ("group_key", "dedup_key", "unique_key", "kind")),
    ],
)
def test_a_job_that_cannot_be_carried(url: str, db: psycopg.Connection, queue: str, fields: dict[str, Any], name: str) -> None:
    with psycopg.connect(url) as tx:
        with pytest.raises(penstock.FieldError) as refused:
            penstock.enqueue_many(tx, queue, [penstock.NewJob("good"), penstock.NewJob(**fields)])
        assert refused.value.field == name
        penstock.enqueue(tx, queue, "the transaction goes on")
    assert len(rows(db, "select from penstock.claim(%s, 10)", queue)) == 1


def test_what_is_not_there(begin: Begin) -> None:
    calls: tuple[tuple[str, Callable[[Any], object]], ...] = (
        ("penstock outbox create 'missing'", lambda tx: penstock.publish(tx, "missing", "x")),
        ("penstock outbox create NAME", lambda tx: penstock.publish_many(tx, "missing", [penstock.Message("x")] * 2)),  # an INSERT
        ("penstock queue create 'missing'", lambda tx: penstock.enqueue(tx, "missing", "x")),
        ("select penstock.create_inbox('missing')", lambda tx: penstock.inbox.first(tx, "missing", "x")),
    )
    for step, call in calls:
        with pytest.raises(penstock.NotFoundError) as e, begin() as tx:
            call(tx)
        assert e.value.sqlstate == "42P01"
        assert step in str(e.value.hint), "the server's hint, where it has one"


def test_other_errors_stay_the_drivers(url: str, queue: str) -> None:
    with psycopg.connect(url) as tx:
        tx.execute("set transaction isolation level repeatable read")
        with pytest.raises(psycopg.Error) as e:
            penstock.enqueue(tx, queue, "x", dedup_key="a")
        assert e.value.sqlstate == "25001"


def test_a_queue_that_is_dropped_during_a_statement() -> None:
    """The server then says that it has lost a table or a function, and not which."""

    class LostError(Exception):
        sqlstate = "XX000"

    def lost(_text: str, _values: object) -> Any:
        raise LostError("could not open relation with OID 4711")

    with pytest.raises(penstock.NotFoundError, match="could not open relation"):
        penstock.enqueue(lost, "emails", "x")


def test_check(url: str, empty: Callable[[], str], db: psycopg.Connection) -> None:
    assert penstock.check(db) >= penstock.SCHEMA_VERSION
    with psycopg.connect(empty()) as conn, pytest.raises(penstock.SchemaError, match="penstock migrate"):
        penstock.check(conn)


def test_an_older_schema(empty: Callable[[], str]) -> None:
    with psycopg.connect(empty(), autocommit=True) as conn:
        conn.execute("create schema penstock")
        conn.execute(
            "create function penstock.check_client(v bigint) returns bigint language plpgsql as $$ begin"
            " raise exception 'the schema is version 1, this client needs %', v using errcode = 'PS002', hint = 'run: penstock migrate'; end $$"
        )
        with pytest.raises(penstock.SchemaError, match=str(penstock.SCHEMA_VERSION)) as e:
            penstock.check(conn)
        assert e.value.sqlstate == "PS002"
        # Tests before this one may have set Django up: then the hint also names its command.
        assert (e.value.hint or "").startswith("run: penstock migrate")
        assert str(e.value).count("run: penstock migrate") == 1


def test_payloads_are_json(db: psycopg.Connection, queue: str) -> None:
    penstock.enqueue(db, queue, ["a", 1, None])
    assert json.loads(rows(db, "select payload from penstock.claim(%s)", queue)[0][0]) == ["a", 1, None]  # type: ignore[arg-type]


def test_what_json_cannot_hold_is_refused_with_a_way(db: psycopg.Connection, queue: str) -> None:
    for value in (Decimal("1.50"), NAIVE, UUID(int=1)):
        with pytest.raises(penstock.FieldError, match=r"encoder=") as refused:
            penstock.enqueue(db, queue, {"v": value})
        assert refused.value.field == "payload"


class Encoder(json.JSONEncoder):
    def default(self, o: Any) -> Any:
        return o.isoformat() if isinstance(o, datetime) else str(o)


def test_an_encoder(url: str, db: psycopg.Connection, queue: str, outbox: str) -> None:
    """Each call that takes payloads takes one: a time as ISO 8601, here, and Decimals and UUIDs as texts."""
    value, text = {"at": NAIVE, "total": Decimal("1.50"), "id": UUID(int=1)}, b'{"at": "%s", "total": "1.50", "id": "%s"}'
    wanted = text % (NAIVE.isoformat().encode(), str(UUID(int=1)).encode())
    penstock.publish(db, outbox, value, encoder=Encoder)
    penstock.publish_many(db, outbox, [penstock.Message(value)], encoder=Encoder)
    penstock.enqueue(db, queue, value, encoder=Encoder)
    penstock.enqueue_many(db, queue, [penstock.NewJob(value)], encoder=Encoder)
    with penstock.Buffer(db, encoder=Encoder) as buffer:
        buffer.publish(outbox, value)
        buffer.enqueue(queue, value)

    async def asynchronous() -> None:
        async with await psycopg.AsyncConnection.connect(url) as tx:
            await aio.publish(tx, outbox, value, encoder=Encoder)
            await aio.publish_many(tx, outbox, [penstock.Message(value)], encoder=Encoder)
            await aio.enqueue(tx, queue, value, encoder=Encoder)
            await aio.enqueue_many(tx, queue, [penstock.NewJob(value)], encoder=Encoder)
            async with aio.Buffer(tx, encoder=Encoder) as buffer:
                await buffer.publish(outbox, value)
                await buffer.enqueue(queue, value)

    asyncio.run(asynchronous())
    assert testing.require_published(db, outbox, payload=value, encoder=Encoder).payload == wanted
    assert testing.require_enqueued(db, queue, payload=value, encoder=Encoder).payload == wanted
    assert [payload for _, _, _, payload in published(db, outbox)] == [wanted] * 6
    assert [row[0] for row in rows(db, "select payload from penstock.claim(%s, 10)", queue)] == [wanted] * 6
    with pytest.raises(penstock.FieldError, match="payload cannot be encoded"):
        penstock.publish(db, outbox, {"n": float("nan")}, encoder=Encoder)


def test_strangers_are_refused() -> None:
    with pytest.raises(TypeError, match="execute"):
        penstock.publish(object(), "orders", "x")


def test_what_is_no_transaction_is_refused_with_a_way(url: str, queue: str) -> None:
    from sqlalchemy import create_engine
    from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

    engine = create_engine(url.replace("postgres://", "postgresql+psycopg://"))
    aengine = create_async_engine(url.replace("postgres://", "postgresql+psycopg://"))
    with psycopg.connect(url) as tx, tx.cursor() as cursor:
        for stranger in (url, None, engine, aengine, cursor):
            with pytest.raises(TypeError, match="give a connection, as psycopg"):
                penstock.enqueue(stranger, queue, "x")

    async def asynchronous() -> None:
        async with await psycopg.AsyncConnection.connect(url) as atx, AsyncSession(aengine) as session:
            for other in (atx, session):
                with pytest.raises(TypeError, match="is asynchronous: use penstock"):
                    penstock.enqueue(other, queue, "x")
        with psycopg.connect(url) as tx, pytest.raises(TypeError, match="is not asynchronous: use what is in penstock itself"):
            await aio.enqueue(tx, queue, "x")
        with pytest.raises(TypeError, match="give a connection"):
            await aio.enqueue(aengine, queue, "x")
        await aengine.dispose()

    asyncio.run(asynchronous())
    engine.dispose()


def test_unknown_keywords_are_named(db: psycopg.Connection, queue: str) -> None:
    def untyped(fn: Any, *args: Any, **given: Any) -> str:
        with pytest.raises(TypeError) as e:
            fn(*args, **given)
        return str(e.value)

    for fn, args, name in ((penstock.enqueue, (db, queue, "x"), "enqueue"), (penstock.NewJob, ("x",), "NewJob"), (aio.enqueue, (db, queue, "x"), "enqueue")):
        said = untyped(fn, *args, retrys=3)
        assert said.startswith(f"{name} has no keyword 'retrys': did you mean 'max_attempts'? there are: ") and "unique_key" in said
    assert untyped(penstock.publish, db, "orders", "x", topc="t").startswith("publish has no keyword 'topc': did you mean 'topic'? there are: key, topic, ")
    assert untyped(penstock.Options, concurency=3).startswith("Options has no keyword 'concurency': did you mean 'concurrency'? ")
    assert "has no keyword" not in untyped(penstock.enqueue, db)


def test_what_the_database_refuses_is_a_sentence(db: psycopg.Connection, queue: str) -> None:
    its = penstock.Queue(db, queue)
    for call, says in (
        (lambda: its.schedule("n", "0 25 * * *", "x"), "the cron text '0 25 * * *' makes no sense: '25' is not a valid hour (give minute, "),
        (lambda: penstock.seal(db, queue, 1), "the queue has no barrier 1 (a barrier belongs to one queue; make one with: "),
        (lambda: its.set_group("a", rate=60), ""),
    ):
        with pytest.raises(penstock.Error) as e, db.transaction():
            call()
        said = str(e.value)
        assert said.startswith(says) and said.endswith(")") and "\n" not in said and "CONTEXT" not in said, said
