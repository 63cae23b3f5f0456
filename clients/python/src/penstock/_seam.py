"""The seam: execute(text, values) -> rows, for any object that a caller uses as a transaction.

Nothing here begins, commits, rolls back or closes the given object. Drivers are recognised by the module of the object's class, so a driver that the
program does not use is not imported.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any, TypeAlias

from ._model import Encoder, Error, LeaseLostError, NotFoundError, SchemaError
from ._sql import PLACEHOLDER, Op, Postgres, Rows, SQLite, T

Execute: TypeAlias = Callable[[str, Sequence[Any]], Rows]
AsyncExecute: TypeAlias = Callable[[str, Sequence[Any]], Awaitable[Rows]]
Transaction: TypeAlias = Any
"""A psycopg or sqlite3 Connection, SQLAlchemy's Session or Connection, or Django's connection. For `aio`: psycopg's AsyncConnection, an asyncpg
connection, SQLAlchemy's AsyncSession or AsyncConnection. Or your own function execute(text, values) -> rows for PostgreSQL, with $1 for the first
parameter."""

NOTHING: AbstractContextManager[None] = nullcontext()


@lru_cache(maxsize=256)
def with_marks(statement: str, mark: str) -> str:
    return PLACEHOLDER.sub(mark, statement)


@lru_cache(maxsize=256)
def sqlalchemy_text(statement: str) -> Any:
    from sqlalchemy import text

    return text(PLACEHOLDER.sub(r":p\1", statement))


def named(values: Sequence[Any]) -> dict[str, Any]:
    return {f"p{n}": value for n, value in enumerate(values, 1)}


@lru_cache(maxsize=256)
def library_of(cls: type) -> str | None:
    for base in cls.__mro__:
        root = base.__module__.partition(".")[0]
        if root in ("psycopg", "sqlite3", "sqlalchemy", "django", "asyncpg"):
            return root
    return None


@lru_cache(maxsize=256)
def is_async(cls: type) -> bool:
    return any(base.__name__ == "AsyncConnection" or base.__module__.startswith(("sqlalchemy.ext.asyncio", "asyncpg")) for base in cls.__mro__)


USED = {"psycopg": "cursor", "sqlite3": "cursor", "django": "cursor", "sqlalchemy": "execute", "asyncpg": "fetch"}
"""What is used of a transaction of each library. Its engines, pools and cursors lack it."""


def kind_of(tx: Transaction) -> str:
    """The library that the object comes from."""
    kind = library_of(tx.__class__) or ("function" if callable(tx) else None)
    if kind is None or not hasattr(tx, USED.get(kind, "__class__")):
        raise TypeError(
            f"penstock knows no transactions of {type(tx).__module__}.{type(tx).__qualname__}: give a connection, as psycopg.connect(url) returns it, or"
            " SQLAlchemy's Session or Connection; in place of another driver's a function execute(text, values) -> rows"
        )
    return kind


def dialect(tx: Transaction) -> Any:
    kind = kind_of(tx)
    if kind == "sqlalchemy":
        name = (tx.get_bind() if hasattr(tx, "get_bind") else tx).dialect.name
    elif kind == "django":
        name = tx.vendor
    else:
        name = "sqlite" if kind == "sqlite3" else "postgresql"
    if name not in ("postgresql", "sqlite"):
        raise TypeError(f"penstock is not in {name}; it works with PostgreSQL and SQLite")
    return name


def sql_for(tx: Transaction, schema: str, encoder: Encoder = None) -> Any:
    """The statements for a transaction's database."""
    return SQLite(encoder) if dialect(tx) == "sqlite" else Postgres(schema, encoder)


def postgres(tx: Transaction, schema: str, encoder: Encoder = None) -> Postgres:
    """The statements that only PostgreSQL has."""
    if dialect(tx) == "sqlite":
        raise Error("this client has no barriers in SQLite", hint="use PostgreSQL, or enqueue the jobs one after another")
    return Postgres(schema, encoder)


def execute(tx: Transaction, statement: str, values: Sequence[Any]) -> Rows:
    kind = kind_of(tx)
    if is_async(tx.__class__):
        raise TypeError(f"a transaction of {kind} is asynchronous: use penstock.aio")
    if kind == "psycopg":
        import psycopg
        from psycopg.rows import tuple_row

        with psycopg.Cursor(tx, row_factory=tuple_row) as cursor:
            cursor.execute(with_marks(statement, "%s").encode(), values)
            return cursor.fetchall() if cursor.description else []
    if kind == "sqlite3":
        cursor = tx.cursor()
        try:
            cursor.row_factory = None
            return cursor.execute(with_marks(statement, "?"), values).fetchall()  # type: ignore[no-any-return]
        finally:
            cursor.close()
    if kind == "sqlalchemy":
        result = tx.execute(sqlalchemy_text(statement), named(values))
        return result.fetchall() if result.returns_rows else []
    if kind == "django":
        with tx.cursor() as cursor:
            cursor.execute(with_marks(statement, "%s"), values)
            return cursor.fetchall() if cursor.description else []
    return tx(statement, values)  # type: ignore[no-any-return]


async def execute_async(tx: Transaction, statement: str, values: Sequence[Any]) -> Rows:
    kind = kind_of(tx)
    if kind != "function" and not is_async(tx.__class__):
        raise TypeError(f"a transaction of {kind} is not asynchronous: use what is in penstock itself")
    if kind == "asyncpg":
        return await tx.fetch(statement, *values)  # type: ignore[no-any-return]
    if kind == "psycopg":
        import psycopg
        from psycopg.rows import tuple_row

        async with psycopg.AsyncCursor(tx, row_factory=tuple_row) as cursor:
            await cursor.execute(with_marks(statement, "%s").encode(), values)
            return await cursor.fetchall() if cursor.description else []
    if kind == "sqlalchemy":
        result = await tx.execute(sqlalchemy_text(statement), named(values))
        return result.fetchall() if result.returns_rows else []
    return await tx(statement, values)  # type: ignore[no-any-return]


def run(tx: Transaction, op: Op[T], lock: AbstractContextManager[Any] = NOTHING) -> T:
    """Sends the statements that op yields, and gives it the rows or the error. op holds the lock except during a statement."""
    rows: Rows | None = None
    error: BaseException | None = None
    try:
        while True:
            with lock:
                request = op.throw(error) if error else op.send(rows)  # type: ignore[arg-type]
            try:
                rows, error = execute(tx, *request), None
            except BaseException as e:
                error = known(e)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]


async def run_async(tx: Transaction, op: Op[T]) -> T:
    rows: Rows | None = None
    error: BaseException | None = None
    try:
        while True:
            request = op.throw(error) if error else op.send(rows)  # type: ignore[arg-type]
            try:
                rows, error = await execute_async(tx, *request), None
            except BaseException as e:
                error = known(e)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]


def within(e: BaseException | None) -> Iterator[BaseException]:
    """The error and those that it wraps."""
    for _ in range(4):
        if e is None:
            return
        yield e
        e = getattr(e, "orig", None) or e.__cause__


def sqlstate(e: BaseException | None) -> str | None:
    """The SQLSTATE that the database returned, whatever has wrapped it."""
    states = (getattr(x, "sqlstate", None) or getattr(x, "pgcode", None) for x in within(e))
    return next((str(state) for state in states if state), None)


def hint(e: BaseException) -> str | None:
    """The database's hint: psycopg has it in diag, asyncpg as an attribute."""
    hints = (getattr(x, "hint", None) or getattr(getattr(x, "diag", None), "message_hint", None) for x in within(e))
    return next((str(told) for told in hints if told), None)


AWAY = re.compile(
    r"refused|time-?out|timed out|closed the connection|reset by peer|unreachable|no route to host|translate host name|resolve host|no such file or directory"
    r"|starting up|shutting down|not yet accepting|too many|connection slots", re.IGNORECASE,
)  # fmt: skip
"""How libpq says that a server cannot be reached for now. It has no code for that."""


def away(e: BaseException) -> bool:
    """Whether the database cannot be reached for now. A wrong password, or a database that is not there, is another thing."""
    state = sqlstate(e)
    if state is not None:
        return state[:2] == "08" or state in ("53300", "57P01", "57P02", "57P03")
    if any(isinstance(x, OSError) for x in within(e)):
        return True
    message = str(getattr(e, "orig", None) or e)
    answers = re.findall(r"FATAL:.*", message)  # of a server that was reached, perhaps behind another that was not
    return any(type(x).__name__ == "OperationalError" or type(x).__name__ == "ConnectionTimeout" for x in within(e)) and all(
        AWAY.search(line) for line in answers or [message]
    )


DROPPED = ("could not open relation with OID", "cache lookup failed for function")
"""How the server says that a queue was dropped while a statement ran."""


def told(e: BaseException) -> str:
    """An error for one line of the log: the database's message, its code and its hint, without the context of its functions."""
    state, step = sqlstate(e), hint(e)
    message = str(getattr(e, "orig", None) or e).strip() or type(e).__name__
    if isinstance(e, Error) or state is None:
        return message
    first = re.split(r"\n(?:CONTEXT|HINT|LINE|\[SQL)", message)[0]
    return f"{first} ({state})" + (f": {step}" if step else "")


REFUSED = ("22023", "23514")
"""What the schema's functions raise for a value that makes no sense."""

FORBIDDEN = "42501"
OF_SCHEDULES = "schedules need the role that owns the schema; it can run: penstock schedule set QUEUE NAME --cron TEXT"

# Who calls the functions and reads the sequences of a queue or an inbox, as the schema's grant_enqueuer, grant_worker and grant_consumer say.
# Operators call the others.
PRODUCES = {"enqueue", "enqueue_many", "barrier", "flags", "find", "seq", "ring"}
WORKS = {"take", "claim", "ack", "ready", "extend", "report", "release", "fail", "maintain", "hold_group", "maintained"}
CONSUMES = {"first", "first_of", "in_order", "due", "maintain"}


def grant_of(message: str) -> str:
    """Which right is missing, by what the database refuses in its message, such as the function _emails.claim of the queue emails."""
    found = re.search(r"""(?:^|[\s"'«„“])(?:dequeue_(.+?)|_(.+)\.(\w+))\W*$""", message, re.ASCII | re.MULTILINE)
    of, own = (found[1] or found[2], found[3] or "take") if found else ("", "")
    if of.startswith("_inbox."):
        grant = f"inbox grant CONSUMER ROLE --{'consume' if own in CONSUMES else 'operate'}"
    elif of:
        grant = f"queue grant {shlex.quote(of)} ROLE --{'enqueue' if own in PRODUCES else 'work' if own in WORKS else 'operate'}"
    elif "schedule" in message:
        return OF_SCHEDULES
    elif "create_queue" in message:
        return "a queue is made by the role that owns the schema; it can run: penstock queue create NAME"
    elif re.search(r"\b_(queue|dead_job|sample)\b", message):
        grant = "queue grant QUEUE ROLE --operate"
    else:
        grant = (
            "queue grant QUEUE ROLE with --enqueue, --work or --operate, penstock outbox grant OUTBOX ROLE --publish or"
            " penstock inbox grant CONSUMER ROLE --consume"
        )
    return f"the role that owns the schema can run: penstock {grant}"


def known(e: BaseException) -> BaseException:
    """Returns one of this package's errors for a problem that callers may handle. Any other error stays the driver's own."""
    state, message = sqlstate(e), str(getattr(e, "orig", None) or e).strip()
    first = re.split(r"\n(?:CONTEXT|HINT|LINE|\[SQL)", message)[0]
    of_django = ", or: manage.py penstock_migrate" if "penstock.django" in sys.modules else ""
    ours: Error | None = None
    if state in ("3F000", "42883"):
        ours = SchemaError(first, sqlstate=state, hint="the database is not migrated, or older than this client; run: penstock migrate" + of_django)
    elif state == "PS002":
        step = hint(e)
        if step and "penstock migrate" in step:
            step += of_django
        ours = SchemaError(first if step else message, sqlstate=state, hint=step)
    elif state == "PS001":
        ours = LeaseLostError(first, sqlstate=state, hint="extend leases in time, or claim with longer ones")
    elif state == "42P01" or "no such table" in message or (state == "XX000" and message.startswith(DROPPED)):
        step = hint(e)  # the server knows which of them is missing, but not after an INSERT
        if not step:
            step = "create it with: penstock queue create NAME, penstock outbox create NAME or penstock inbox create CONSUMER; penstock migrate comes first"
        if state is None:  # a file of SQLite, which is the program's under Django too
            step += ", each with --database-url sqlite:FILE"
        elif of_django:
            step += "; in Django name it in settings.PENSTOCK, and run: manage.py penstock_migrate"
        ours = NotFoundError(first, sqlstate=state, hint=step)
    elif state == FORBIDDEN:
        ours = Error(first, sqlstate=state, hint=hint(e) or grant_of(first))
    elif state == "42704":
        ours = NotFoundError(first, sqlstate=state, hint=hint(e))
    elif state in REFUSED:
        ours = Error(first, sqlstate=state, hint=hint(e))
    if ours is None:
        return e
    ours.__cause__ = e
    return ours


__all__ = ["AsyncExecute", "Error", "Execute", "Transaction", "execute", "execute_async", "run", "run_async", "sql_for", "sqlstate"]
