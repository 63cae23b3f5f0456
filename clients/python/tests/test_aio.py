"""Publishing, enqueueing and the inbox in asynchronous transactions."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import asyncpg
import psycopg
import pytest
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

import penstock
from penstock import aio

from .conftest import published, rows

Begin = Callable[[], AbstractAsyncContextManager[Any]]
KINDS = ["asyncpg", "psycopg", "session", "connection", "session on asyncpg", "pool"]


def test_all_functions_are_exported() -> None:
    """Also those that were added last, for `from penstock.aio import *` and for editors."""
    functions = {
        name
        for name, f in vars(aio).items()
        if inspect.isfunction(f) and inspect.iscoroutinefunction(f) and not name.startswith("_") and f.__module__ == aio.__name__
    }
    assert functions <= set(aio.__all__), functions - set(aio.__all__)


@pytest.fixture(params=KINDS)
def begin(request: pytest.FixtureRequest, url: str) -> Begin:
    kind = request.param
    plain = "postgresql://" + url.partition("://")[2]

    @asynccontextmanager
    async def make() -> AsyncIterator[Any]:
        if kind == "asyncpg":
            conn = await asyncpg.connect(plain)
            try:
                async with conn.transaction():
                    yield conn
            finally:
                await conn.close()
        elif kind == "pool":
            async with asyncpg.create_pool(plain, min_size=1, max_size=1) as pool, pool.acquire() as conn, conn.transaction():
                yield conn
        elif kind == "psycopg":
            async with await psycopg.AsyncConnection.connect(url) as connection:
                yield connection
        else:
            driver = "asyncpg" if kind.endswith("asyncpg") else "psycopg"
            engine = create_async_engine(plain.replace("postgresql", f"postgresql+{driver}", 1).partition("?")[0])
            async with AsyncSession(engine) if kind.startswith("session") else engine.connect() as tx, tx.begin():
                yield tx
            await engine.dispose()

    return make


def all_of(what: Coroutine[Any, Any, None]) -> None:
    asyncio.run(what)


def test_publish_and_enqueue(begin: Begin, db: psycopg.Connection, outbox: str, queue: str) -> None:
    async def main() -> None:
        async with begin() as tx:
            await aio.publish(tx, outbox, b"\x00\xff", key="ann", topic="order.placed", headers={"a": "b"})
            await aio.publish_many(tx, outbox, [penstock.Message(str(n), headers={"n": str(n)} if n else None) for n in range(3)])
            first = await aio.enqueue(tx, queue, {"to": "ann"}, key="k", dedup_key="d")
            again = await aio.enqueue_many(tx, queue, [penstock.NewJob("x", dedup_key="d"), penstock.NewJob("y", headers={"h": "{}"})])
            assert [e.deduplicated for e in again] == [True, False] and again[0].id == first.id
        async with begin() as tx:
            await aio.publish(tx, outbox, "lost")
            with pytest.raises(penstock.FieldError):
                await aio.publish(tx, outbox, "x", key="k" * 1025)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        all_of(main())
    assert published(db, outbox) == [("ann", "order.placed", {"a": "b"}, b"\x00\xff"), *((None, "", {"n": str(n)} if n else None, b"%d" % n) for n in range(3))]
    assert rows(db, "select key, headers, payload from penstock.claim(%s, 10)", queue) == [("k", None, b'{"to": "ann"}'), (None, {"h": "{}"}, b"y")]


def test_inbox_buffer_and_check(begin: Begin, db: psycopg.Connection, outbox: str, queue: str, consumer: str) -> None:
    async def main() -> None:
        async with begin() as tx:
            assert await aio.check(tx) >= penstock.SCHEMA_VERSION
            assert await aio.inbox.first(tx, consumer, "m1")
            assert not await aio.inbox.first(tx, consumer, "m1")
            assert await aio.inbox.first_of(tx, consumer, ["m1", "m2"]) == ["m2"]
            async with aio.Buffer(tx, at=2) as buffer:
                for n in range(3):
                    await buffer.publish(outbox, str(n))
                await buffer.enqueue(queue, "job")

    all_of(main())
    assert [row[3] for row in published(db, outbox)] == [b"0", b"1", b"2"]
    assert rows(db, "select payload from penstock.claim(%s)", queue) == [(b"job",)]


def test_what_is_not_there(begin: Begin) -> None:
    async def main() -> None:
        async with begin() as tx:
            await aio.enqueue(tx, "missing", "x")

    with pytest.raises(penstock.NotFoundError, match="penstock queue create 'missing'"):
        all_of(main())


def test_the_other_kind_is_told(url: str) -> None:
    async def main() -> None:
        with psycopg.connect(url) as conn, pytest.raises((TypeError, AttributeError)):
            await aio.publish(conn, "orders", "x")
        conn = await asyncpg.connect("postgresql://" + url.partition("://")[2])
        with pytest.raises(TypeError, match="asynchronous"):
            penstock.publish(conn, "orders", "x")
        await conn.close()

    all_of(main())
