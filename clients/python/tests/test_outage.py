"""What a worker says of an outage."""

from __future__ import annotations

import functools
import logging
import re
import time
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

import penstock
from penstock._desk import Outage
from penstock._seam import away, grant_of
from penstock.testing import run_one

from .conftest import until
from .running import Run, Running


def test_an_outage_is_a_line_when_it_begins_and_one_when_it_is_over(
    request: pytest.FixtureRequest, start: Run, db: psycopg.Connection, queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    away, calls = False, 0

    def execute(text: str, values: Sequence[Any]) -> Sequence[Sequence[Any]]:
        nonlocal calls
        if away:
            calls += 1
            raise ConnectionError("away")
        return psycopg.RawCursor(db).execute(text.encode(), values).fetchall()

    async def execute_async(text: str, values: Sequence[Any]) -> Sequence[Sequence[Any]]:
        return execute(text, values)

    def handler(job: penstock.Job) -> None:
        nonlocal away, calls
        if job.text == "last":
            return
        away, calls = True, 0
        until(lambda: calls > 3)
        away = False
        if job.text == "error":
            raise ValueError

    def lines() -> list[str]:
        return [r.getMessage() for r in caplog.records if "in attempt" not in r.getMessage()]

    def over(jobs: int, said: int) -> bool:
        return len(running.ended) == jobs and len(lines()) == said

    caplog.set_level(logging.INFO, logger="penstock")
    chosen = execute_async if request.node.callspec.params["start"] == "asyncio" else execute
    running = start(queue, handler, db=lambda: chosen, concurrency=1)
    for n, text in enumerate(("done", "error", "last")):
        penstock.enqueue(db, queue, text)
        until(functools.partial(over, n + 1, min(3 + 2 * n, 5)))
    running.join()
    outage = r"cannot .*: away\n.* goes on, \d+\.\d s later\n"
    assert re.fullmatch(rf".* has started: .*, concurrency 1\n(?:.*{outage}){{2}}.* stops: 0 handlers run.*\n", "".join(line + "\n" for line in lines()))


def test_a_worker_that_starts_while_the_database_is_down_tries_until_it_can(
    request: pytest.FixtureRequest, start: Run, url: str, db: psycopg.Connection, queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    tried = 0

    def where() -> str:
        nonlocal tried
        tried += 1
        return url if tried > 2 else "postgresql://127.0.0.1:1/app"

    async def connect() -> Any:
        return await psycopg.AsyncConnection.connect(where(), autocommit=True)

    caplog.set_level(logging.INFO, logger="penstock")
    job = penstock.enqueue(db, queue, "x").id
    kind = request.node.callspec.params["start"]
    running = start(queue, lambda _: None, db=connect if kind == "asyncio" else lambda: psycopg.connect(where(), autocommit=True))
    until(lambda: running.words(job) == ["done"])
    first, second, third = [r.getMessage() for r in caplog.records][:3]
    assert re.search(r"cannot reach the database, and tries until it can: .*refused.* \(start the database, or correct its address\)$", first)
    assert " goes on, " in second and " has started: " in third


def test_a_database_that_is_missing_ends_a_worker_at_once(request: pytest.FixtureRequest, url: str) -> None:
    for kind in ("threads", "asyncio"):
        running = Running(kind, url.replace(urlsplit(url).path, "/missing"), "q", lambda _: None, False, {})
        running.thread.join(60)
        assert not running.thread.is_alive() and "does not exist" in str(running.error)


def test_a_worker_without_groups_says_that_jobs_of_groups_wait(
    start: Run, db: psycopg.Connection, queue: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock._desk.HEARTBEAT_EVERY", 0.1)
    penstock.enqueue(db, queue, "x", group_key="shop-17")
    start(queue, lambda _: None)
    until(lambda: "jobs of group 'shop-17' wait, and this worker takes only jobs without a group" in caplog.text)


def test_a_right_that_is_missing_names_the_grant(url: str, db: psycopg.Connection, queue: str) -> None:
    db.execute("create role nothing; grant usage on schema penstock to nothing")
    calls: list[tuple[str, Callable[[psycopg.Connection, penstock.Queue], object]]] = [
        (f"{queue} ROLE --enqueue", lambda tx, _: penstock.enqueue(tx, queue, "x")),
        (f"{queue} ROLE --enqueue", lambda _, q: q.find_job(1)),
        (f"{queue} ROLE --work", lambda tx, _: run_one(tx, queue, lambda _: None)),
        (f"{queue} ROLE --work", lambda _, q: q.hold_group("g", 1)),
        (f"{queue} ROLE --operate", lambda _, q: q.cancel([1])),
        (f"{queue} ROLE --operate", lambda _, q: q.set_group("g", weight=2)),
        (f"{queue} ROLE --operate", lambda _, q: q.discard_dead_jobs([1])),
        ("ROLE --operate", lambda _, q: q.dead_jobs()),
        (f"{queue} ROLE --operate", lambda _, q: q.status()),
        ("create NAME", lambda _, q: q.create()),
    ]
    try:
        for grant, call in calls:
            with psycopg.connect(url) as tx, pytest.raises(penstock.Error, match=rf"permission denied.*penstock queue (grant )?.*{re.escape(grant)}\)") as e:
                tx.execute("set local role nothing")
                call(tx, penstock.Queue(tx, queue))
            assert e.value.sqlstate == "42501" and isinstance(e.value.__cause__, psycopg.errors.InsufficientPrivilege)
    finally:
        db.execute("drop owned by nothing; drop role nothing")


def test_a_worker_without_the_right_to_its_queue_ends_with_the_grant(
    request: pytest.FixtureRequest, url: str, db: psycopg.Connection, queue: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock._desk.LOG_AGAIN", 0.0)
    db.execute("create role few login; grant usage on schema penstock to few")
    parts = urlsplit(url)
    of_role = parts._replace(netloc=f"few@{parts.hostname}:{parts.port}").geturl()
    try:
        for kind in ("threads", "asyncio"):
            db.execute("select penstock.grant_enqueuer(%s, 'few')", [queue])
            running = Running(kind, of_role, queue, lambda _: None, False, {})
            running.thread.join(60)
            assert not running.thread.is_alive() and f"penstock queue grant {queue} ROLE --work" in str(running.error)
            assert not caplog.text
            # A right that is lost while it runs may come back: each refusal is one line.
            db.execute("select penstock.grant_worker(%s, 'few')", [queue])
            running = Running(kind, of_role, queue, lambda _: None, False, {})
            penstock.enqueue(db, queue, "x")
            until(lambda: len(running.ended) == 1)  # noqa: B023
            db.execute("revoke all on all functions in schema penstock from few")
            until(lambda: "cannot do the maintenance" in caplog.text and "cannot claim or end jobs" in caplog.text)
            time.sleep(1.5)
            lines = [r.getMessage() for r in caplog.records]
            assert len(lines) == len(set(lines)) and all(f"penstock queue grant {queue} ROLE --work" in line for line in lines)
            db.execute("select penstock.grant_worker(%s, 'few')", [queue])
            until(lambda: " goes on, " in caplog.text)
            running.join()
            assert running.error is None
            db.execute("revoke all on all functions in schema penstock from few")
            caplog.clear()
    finally:
        db.execute("drop owned by few; drop role few")


def test_a_missing_right_is_one_that_gives_it(db: psycopg.Connection, queue: str) -> None:
    """Of each function and sequence of a queue and an inbox that a right opens."""
    db.execute("select penstock.create_inbox('of_rights')")
    with db.transaction(force_rollback=True):
        grants = {"enqueue": ("enqueuer", queue), "work": ("worker", queue), "operate": ("operator", queue), "consume": ("consumer", "of_rights")}
        for right, (grant, of) in grants.items():
            db.execute(f"create role may_{right}")
            db.execute(f"select penstock.grant_{grant}('{of}', 'may_{right}')")
        db.execute("select penstock.grant_inbox_operator('of_rights', 'may_operate')")
        found = db.execute(
            r"""select own, array(select r from unnest(array['enqueue', 'work', 'operate', 'consume']) r
                where case kind when 'f' then has_function_privilege('may_' || r, oid, 'execute')
                    else has_sequence_privilege('may_' || r, oid, 'usage, select') end)
            from (select 'f' as kind, oid, proname as own from pg_proc
                where pronamespace = 'penstock'::regnamespace and not has_function_privilege('public', oid, 'execute')
                union all select 'S', oid, relname from pg_class
                where relnamespace = 'penstock'::regnamespace and relkind = 'S') o
            where starts_with(own, '_' || %(q)s || '.') or own like '\_\_inbox.%%' or own = 'dequeue_' || %(q)s""",
            {"q": queue},
        ).fetchall()
    opened = [(own, rights) for own, rights in found if rights]  # the others are the owner's alone
    assert len(opened) > 30
    for own, rights in opened:
        assert grant_of(f"permission denied for function {own}").rpartition(" --")[2] in rights, own


@pytest.mark.parametrize(
    ("text", "is_away"),
    [
        (
            'connection to server at "127.0.0.1", port 5432 failed: Connection refused\n\tIs the server running on that host and accepting TCP/IP connections?',
            True,
        ),
        ('connection to server at "127.0.0.1", port 5432 failed: FATAL:  the database system is starting up', True),
        ("connection timeout expired", True),
        ('connection to server at "127.0.0.1", port 5432 failed: FATAL:  password authentication failed for user "ann"', False),
        ('server at "::1" failed: Connection refused\nserver at "127.0.0.1" failed: FATAL:  password authentication failed for user "ann"', False),
        ('connection to server at "127.0.0.1", port 5432 failed: fe_sendauth: no password supplied', False),
        ('connection to server at "127.0.0.1", port 5432 failed: FATAL:  database "missing" does not exist', False),
    ],
)
def test_which_refusals_a_worker_outlasts(text: str, is_away: bool) -> None:
    """psycopg has no code of what libpq says of a connection."""
    assert away(psycopg.OperationalError(text)) is is_away


def test_an_error_that_differs_is_logged_too(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    now = 100.0
    monkeypatch.setattr("penstock._desk.monotonic", lambda: now)
    outage = Outage("emails")
    for at, error in ((100.0, "terminated"), (101.0, "wrong password"), (111.0, "wrong password"), (130.0, "wrong password"), (139.0, "too many connections")):
        now = at
        outage.fails("claim jobs", ConnectionError(error))
    outage.works("claim jobs")
    lines = [record.getMessage().rpartition(": ")[2] for record in caplog.records]
    assert len(lines) == 4
    for place, text in enumerate(("terminated", "wrong password", "too many connections", "39.0 s later")):
        assert text in lines[place]
