"""Connections that a worker opens and closes for itself, never the caller's."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

from ._seam import kind_of

Database: TypeAlias = Any
"""A URL for psycopg, an Engine of SQLAlchemy (AsyncEngine for `aio`), or a function that returns a new connection."""

POOLED = "select pg_backend_pid() <> %s"
"""Whether there is a pooler in between. Each statement may then run on another connection of the database. A statement prepared before may be missing
there, or be another client's."""


def connect(db: Database) -> Any:
    if isinstance(db, str):
        import psycopg

        conn = psycopg.connect(db, autocommit=True, client_encoding="UTF8")
        if conn.execute(POOLED, (conn.info.backend_pid,)).fetchone() == (True,):
            conn.prepare_threshold = None
        return conn
    return db.connect() if hasattr(db, "connect") else db()


def autocommit(conn: Any) -> Any:
    """The same connection, with each statement in a separate transaction."""
    kind = kind_of(conn)
    if kind == "psycopg":
        conn.autocommit = True
    elif kind == "sqlalchemy":
        if hasattr(conn, "get_bind"):
            return conn.connection(execution_options={"isolation_level": "AUTOCOMMIT"})
        return conn.execution_options(isolation_level="AUTOCOMMIT")
    return conn


def transaction(conn: Any) -> AbstractContextManager[Any]:
    """A transaction on one of the worker's connections."""
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
    """Ends a connection on which a call hangs, from any thread, if its driver gives access to the socket."""
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
