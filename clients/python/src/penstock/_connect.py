"""Connections that a worker makes for itself, and closes: never the caller's."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

from ._seam import kind_of

Database: TypeAlias = Any
"""A URL (then it is psycopg's), SQLAlchemy's Engine (for `aio` AsyncEngine), or a function that returns a new connection."""

POOLED = "select pg_backend_pid() <> %s"
"""Whether a pooler is between. Each statement may meet another connection of the database then, where a prepared one is missing, or is somebody else's."""


def connect(db: Database) -> Any:
    if isinstance(db, str):
        import psycopg

        conn = psycopg.connect(db, autocommit=True, client_encoding="UTF8")
        if conn.execute(POOLED, (conn.info.backend_pid,)).fetchone() == (True,):
            conn.prepare_threshold = None
        return conn
    return db.connect() if hasattr(db, "connect") else db()


def autocommit(conn: Any) -> Any:
    """The same connection, each statement of which is a transaction of its own."""
    kind = kind_of(conn)
    if kind == "psycopg":
        conn.autocommit = True
    elif kind == "sqlalchemy":
        if hasattr(conn, "get_bind"):
            return conn.connection(execution_options={"isolation_level": "AUTOCOMMIT"})
        return conn.execution_options(isolation_level="AUTOCOMMIT")
    return conn


def transaction(conn: Any) -> AbstractContextManager[Any]:
    """A transaction on a connection of the worker's."""
    kind = kind_of(conn)
    if kind == "psycopg":
        return conn.transaction()  # type: ignore[no-any-return]
    if kind == "sqlalchemy":
        return conn.begin()  # type: ignore[no-any-return]
    if kind == "django":
        from django.db.transaction import Atomic

        atomic: AbstractContextManager[Any] = Atomic(conn.alias, True, False)
        return atomic
    return by_hand(conn)


@contextlib.contextmanager
def by_hand(conn: Any) -> Iterator[None]:
    try:
        yield
    except BaseException:
        conn.rollback()
        raise
    conn.commit()


def close(conn: Any) -> None:
    with contextlib.suppress(Exception):
        conn.close()


def cut(conn: Any) -> None:
    """Ends a connection on which a call hangs, from whichever thread, as far as its driver tells its socket."""
    with contextlib.suppress(Exception):
        if hasattr(conn, "terminate"):
            conn.terminate()
        else:
            with socket.socket(fileno=os.dup(getattr(conn, "connection", conn).fileno())) as line:
                line.shutdown(socket.SHUT_RDWR)


async def connect_async(db: Database) -> Any:
    if isinstance(db, str):
        import psycopg

        made = await psycopg.AsyncConnection.connect(db, autocommit=True, client_encoding="UTF8")
        if await (await made.execute(POOLED, (made.info.backend_pid,))).fetchone() == (True,):
            made.prepare_threshold = None
        return made
    conn = db.connect() if hasattr(db, "connect") else db()
    return await conn if hasattr(conn, "__await__") else conn


async def autocommit_async(conn: Any) -> Any:
    kind = kind_of(conn)
    if kind == "psycopg":
        await conn.set_autocommit(True)
    elif kind == "sqlalchemy":
        if hasattr(conn, "get_bind"):
            return await conn.connection(execution_options={"isolation_level": "AUTOCOMMIT"})
        return await conn.execution_options(isolation_level="AUTOCOMMIT")
    return conn


@contextlib.asynccontextmanager
async def transaction_async(conn: Any) -> AsyncIterator[None]:
    make: Callable[[], Any] = conn.begin if kind_of(conn) == "sqlalchemy" else conn.transaction
    async with make():
        yield


async def close_async(conn: Any) -> None:
    with contextlib.suppress(Exception):
        await conn.close()
