"""The workers with threads and with asyncio: the same tests for both."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import create_async_engine

import penstock
from penstock import aio
from penstock._desk import POLL_MAX, Desk, Options
from penstock._kinds import Passed

from .conftest import penstock as penstock_cli
from .conftest import rows, seconds_until_due, status, until
from .running import Run, Running


def fixed(value: float) -> property:
    """An attribute that a worker cannot change."""
    return property(lambda _: value, lambda *_: None)


def test_jobs_are_done(start: Run, db: psycopg.Connection, queue: str) -> None:
    seen: list[bytes] = []
    made = penstock.enqueue_many(db, queue, [penstock.NewJob(str(n)) for n in range(500)])
    running = start(queue, lambda job: seen.append(job.payload))
    until(lambda: len(running.ended) == 500)
    assert sorted(seen, key=int) == [str(n).encode() for n in range(500)]
    assert sorted(running.ended) == [("done", m.id) for m in made]
    assert status(db, queue) == (0, 0, 0, 0, 0)


def test_what_a_handler_gets(start: Run, db: psycopg.Connection, queue: str) -> None:
    seen: list[penstock.Job] = []
    made = penstock.enqueue(db, queue, {"to": "ann"}, key="k", priority=-2, headers={"a": "ü"})
    start(queue, seen.append)
    until(lambda: seen)
    job = seen[0]
    assert (job.id, job.key, job.group_key, job.priority, job.attempt, job.headers) == (made.id, "k", "", -2, 1, {"a": "ü"})
    assert job.json() == {"to": "ann"} and job.text == '{"to": "ann"}'
    assert job.created_at.tzinfo is not None and job.lease_until > job.created_at


def test_jobs_of_a_key_run_in_order(start: Run, db: psycopg.Connection, queue: str) -> None:
    seen: list[tuple[str | None, int]] = []
    penstock.enqueue_many(db, queue, [penstock.NewJob(str(n), key=f"k{n % 3}") for n in range(60)])
    running = start(queue, lambda job: seen.append((job.key, int(job.payload))))
    until(lambda: len(running.ended) == 60)
    for k in range(3):
        assert [n for key, n in seen if key == f"k{k}"] == list(range(k, 60, 3))


def test_outcomes(start: Run, db: psycopg.Connection, queue: str) -> None:
    attempts: dict[str, list[int]] = {}

    def handler(job: penstock.Job) -> object:
        attempts.setdefault(job.text, []).append(job.attempt)
        first = len(attempts[job.text]) == 1
        if job.text == "retry" and first:
            raise penstock.Retry(0, "once more")
        if job.text == "snooze" and first:
            return penstock.Snooze(0.05)
        if job.text == "dead":
            raise penstock.DeadLetter("no such user")
        if job.text == "cancelled":
            return penstock.Cancelled()
        if job.text == "error" and first:
            raise ValueError("mailbox full")
        return "nonsense" if job.text == "nonsense" else None

    ids = {t: penstock.enqueue(db, queue, t).id for t in ("retry", "snooze", "dead", "cancelled", "error", "nonsense")}
    running = start(queue, handler)
    until(lambda: running.words(ids["retry"]) == ["failed", "done"] and attempts["retry"] == [1, 2])
    until(lambda: running.words(ids["snooze"]) == ["snoozed", "done"] and attempts["snooze"] == [1, 1])
    until(lambda: running.words(ids["dead"]) == ["dead"])
    until(lambda: running.words(ids["cancelled"]) == ["cancelled"])
    until(lambda: running.words(ids["error"]) == ["failed"])
    until(lambda: running.words(ids["nonsense"]) == ["failed"])
    until(lambda: status(db, queue) == (0, 0, 2, 0, 1))  # by the queue's backoff


def test_a_delay_beyond_the_times_of_the_database(start: Run, db: psycopg.Connection, queue: str) -> None:
    """It is shortened. The worker, which writes one end after another, goes on."""

    def handler(job: penstock.Job) -> object:
        far: list[Callable[[], penstock.Outcome]] = [
            lambda: penstock.Retry(1e15), lambda: penstock.Snooze(timedelta.max), lambda: penstock.Snooze(1e300), lambda: penstock.HoldGroup(1e11),
        ]  # fmt: skip
        return far[int(job.text)]() if job.text != "last" else None

    for n in range(4):
        penstock.enqueue(db, queue, str(n), group_key=str(n))
    running = start(queue, handler, all_groups=True)
    until(lambda: len(running.ended) == 4)
    last = penstock.enqueue(db, queue, "last").id
    until(lambda: running.words(last) == ["done"])
    decades = 20 * 365 * 86400
    assert all(seconds > decades for seconds in seconds_until_due(db, queue)) and len(seconds_until_due(db, queue)) == 3
    assert [policy.group_key for policy in penstock.Queue(db, queue).group_policies()] == ["3"]


def test_a_timer_that_the_system_refuses(db: psycopg.Connection, queue: str, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The attempt fails, and the thread goes on."""
    timer, refused = threading.Timer, threading.Event()

    def no_thread(*args: Any) -> threading.Timer:
        if not refused.is_set():
            refused.set()
            raise RuntimeError("can't start new thread")
        return timer(*args)

    monkeypatch.setattr("penstock._desk.threading.Timer", no_thread)
    first = penstock.enqueue(db, queue, "x", timeout=timedelta(minutes=1)).id
    running = Running("threads", url, queue, lambda job: None, False, {"concurrency": 1})
    until(lambda: running.words(first) == ["failed"])
    second = penstock.enqueue(db, queue, "x", timeout=timedelta(minutes=1)).id
    until(lambda: running.words(second) == ["done"])
    running.join()


def test_a_reason_that_the_database_cannot_hold(start: Run, empty: Callable[..., str]) -> None:
    latin = empty("encoding 'LATIN1' locale 'C' template template0")
    penstock_cli("migrate", "--database-url", latin)

    def handler(_job: penstock.Job) -> None:
        raise penstock.DeadLetter("no \u4e00")

    with psycopg.connect(latin, autocommit=True) as conn:
        conn.execute("select penstock.create_queue('q')")
        penstock.enqueue(conn, "q", "x")
        running = start("q", handler, db=latin)
        until(lambda: running.ended)
        assert rows(conn, "select failures::text like '%%no ?%%' from penstock._dead_job") == [(True,)]


@pytest.fixture
def release(start: Run) -> Iterator[threading.Event]:
    """What handlers wait for. It comes at the end of a test at the latest: a thread that waits would outlive the tests."""
    event = threading.Event()
    yield event
    event.set()


def test_leases_are_extended(start: Run, release: threading.Event, db: psycopg.Connection, queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Desk, "extend_every", fixed(0.05), raising=False)  # of a lease that does not end during the test
    seen: list[penstock.Job] = []
    made = penstock.enqueue(db, queue, "long")
    running = start(queue, lambda job: seen.append(job) or (release.wait() and None), lease=600)  # type: ignore[func-returns-value]
    until(lambda: seen)
    for _ in range(2):
        [before] = rows(db, "select lease_until from penstock._lease where lease = %s", seen[0].lease)
        until(lambda: rows(db, "select lease_until > %s from penstock._lease where lease = %s", *before, seen[0].lease) == [(True,)])  # noqa: B023
    release.set()
    until(lambda: running.words(made.id) == ["done"])


def test_jobs_that_handlers_do_not_reach_are_given_back(
    start: Run, release: threading.Event, db: psycopg.Connection, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Desk, "extend_every", fixed(1.0), raising=False)  # of a lease that does not end during the test
    penstock.enqueue_many(db, queue, [penstock.NewJob(str(n)) for n in range(300)])
    begun: list[int] = []

    def handler(job: penstock.Job) -> None:
        begun.append(job.id)
        if len(begun) > 50:
            release.wait()

    running = start(queue, handler, concurrency=4, lease=600)
    until(lambda: status(db, queue)[1] > 4)  # type: ignore[operator] # some are claimed ahead
    until(lambda: len(begun) >= 54 and status(db, queue)[1] == 4)
    release.set()
    until(lambda: status(db, queue)[:2] == (0, 0))
    assert sorted({word for word, _ in running.ended}) == ["done", "released"]
    assert len(set(begun)) == len(begun) == 300


def test_a_lost_lease_aborts(start: Run, db: psycopg.Connection, queue: str, caplog: pytest.LogCaptureFixture) -> None:
    causes: list[str | None] = []
    begun = threading.Event()

    def handler(job: penstock.Job) -> None:
        over = threading.Event()
        job.on_abort(lambda _: over.set())
        begun.set()
        over.wait()
        causes.append(job.aborted)
        job.raise_if_aborted()

    made = penstock.enqueue(db, queue, "x")
    running = start(queue, handler, lease=1)
    begun.wait()
    db.execute("select penstock.cancel(%s, %s)", [queue, [made.id]])
    until(lambda: causes == ["lease_lost"])
    until(lambda: running.words(made.id) == ["lost"])
    assert [r.getMessage() for r in caplog.records if "job " in r.getMessage()] == [f"job {made.id} of queue {queue} was removed while it ran, as cancel does"]


def test_a_cancelled_job_whose_handler_returns_is_logged(start: Run, db: psycopg.Connection, queue: str, caplog: pytest.LogCaptureFixture) -> None:
    def handler(job: penstock.Job) -> None:
        db.execute("select penstock.cancel(%s, %s)", [queue, [job.id]])
        until(lambda: job.aborted is not None)

    made = penstock.enqueue(db, queue, "x")
    running = start(queue, handler, lease=1)
    until(lambda: running.words(made.id) == ["lost"])
    assert [r.getMessage() for r in caplog.records if "job " in r.getMessage()] == [f"job {made.id} of queue {queue} was removed while it ran, as cancel does"]


@pytest.mark.parametrize("start", ["threads"], indirect=True)  # asyncio cancels a coroutine
def test_a_handler_that_ignores_its_timeout_is_logged(start: Run, db: psycopg.Connection, queue: str, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing can end a thread, and what its handler returns counts."""

    def lines() -> list[str]:
        return [r.getMessage() for r in caplog.records if "timeout" in r.getMessage()]

    made = penstock.enqueue(db, queue, "x", timeout=timedelta(milliseconds=50))

    def handler(_: penstock.Job) -> None:
        until(lambda: len(lines()) == 1)

    running = start(queue, handler)
    until(lambda: running.words(made.id) == ["done"])
    assert lines()[0] == f"job {made.id} of queue {queue} runs longer than its timeout of 0.05 s: its handler ignores it"
    said = rf"job {made.id} of queue {queue} ran longer than its timeout of 0.05 s: its handler ended after 1\.\d+ s, and its outcome counts"
    assert re.fullmatch(said, lines()[1])


RESCUE = """
import sys, psycopg
with psycopg.connect(sys.argv[1], autocommit=True) as conn:
    while not (row := conn.execute("select lease from penstock.claim(%s)", [sys.argv[2]]).fetchone()):
        conn.execute("select penstock.maintain_queue(%s)", [sys.argv[2]])
    conn.execute("select penstock.ack(%s, %s)", [sys.argv[2], row[0]])
"""


def test_a_coroutine_that_blocks_the_loop(url: str, db: psycopg.Connection, queue: str) -> None:
    """Beyond its lease another process does the job; the end that comes late is refused, and the worker goes on."""
    ended: list[tuple[str, str]] = []

    async def handler(job: penstock.Job) -> None:
        if job.text == "held up":
            subprocess.run([sys.executable, "-c", RESCUE, url, queue], check=True)
            penstock.enqueue(db, queue, "next")
        else:
            worker.stop()

    penstock.enqueue(db, queue, "held up")
    worker = aio.Worker(url, queue, handler, Options(lease=1, observe=lambda word, job, _: ended.append((job.text, word))))
    asyncio.run(worker.run())
    assert ended == [("held up", "lost"), ("next", "done")]
    assert status(db, queue) == (0, 0, 0, 0, 0)


def test_a_call_that_hangs_is_given_up(start: Run, url: str, db: psycopg.Connection, queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first connection's answers stop coming, without an end of the connection; the worker makes another one."""
    monkeypatch.setattr("penstock.aio.CALL_TIMEOUT", 1.0)
    monkeypatch.setattr("penstock._worker.CALL_TIMEOUT", 1.0)
    server, held = urlsplit(url), threading.Event()

    def forward(source: socket.socket, to: socket.socket, first: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if first and held.is_set():
                    threading.Event().wait(60)
                to.sendall(data)

    def accept() -> None:
        for n in range(100):
            with contextlib.suppress(OSError):
                near, _ = listener.accept()
                far = socket.create_connection((server.hostname, server.port or 5432))
                for pair in ((near, far, False), (far, near, n == 0)):
                    threading.Thread(target=forward, args=pair, daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        port = listener.getsockname()[1]
        through = server._replace(netloc=server.netloc.replace(f":{server.port}", f":{port}")).geturl()
        running = start(queue, lambda job: None, db=through)
        first = penstock.enqueue(db, queue, "x")
        until(lambda: running.words(first.id) == ["done"])
        held.set()
        second = penstock.enqueue(db, queue, "y")
        db.execute("select penstock.maintain_queue(%s)", [queue])
        until(lambda: bool(running.words(second.id)) or status(db, queue)[1] == 1)
        third = penstock.enqueue(db, queue, "z")
        until(lambda: running.words(third.id) == ["done"])
        running.join()


def test_stop_gives_back_and_drains(start: Run, release: threading.Event, db: psycopg.Connection, queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Desk, "pace", fixed(0.001), raising=False)  # as after quick handlers, so the worker claims ahead
    penstock.enqueue_many(db, queue, [penstock.NewJob(str(n)) for n in range(60)])
    begun = threading.Event()

    def handler(_job: penstock.Job) -> None:
        begun.set()
        release.wait()

    running = start(queue, handler, concurrency=1, drain_timeout=600, lease=600)
    until(lambda: begun.is_set() and status(db, queue)[1] > 1)  # type: ignore[operator]
    running.stop()
    until(lambda: status(db, queue)[:2] == (59, 1))  # jobs that have not begun are back
    release.set()
    running.thread.join(60)
    assert sorted({word for word, _ in running.ended}) == ["done", "released"]
    assert status(db, queue)[:2] == (59, 0)
    assert {r[0] for r in rows(db, "select attempt from penstock.claim(%s, 100)", queue)} == {1}, "no attempt was spent"


def test_the_drain_ends(start: Run, db: psycopg.Connection, queue: str, caplog: pytest.LogCaptureFixture) -> None:
    begun, causes = threading.Event(), []

    def handler(job: penstock.Job) -> None:
        over = threading.Event()
        job.on_abort(lambda _: over.set())
        begun.set()
        over.wait()
        causes.append(job.aborted)
        job.raise_if_aborted()

    made = penstock.enqueue(db, queue, "x")
    running = start(queue, handler, drain_timeout=0.05)
    begun.wait()
    running.join()
    until(lambda: causes == ["stopping"])
    assert running.words(made.id) == ["released"]
    assert f"the worker of queue {queue} aborts the jobs that still run, with the ids {made.id}" in caplog.messages
    assert rows(db, "select attempt from penstock.claim(%s)", queue) == [(1,)]


def test_an_outage_is_survived(start: Run, url: str, db: psycopg.Connection, queue: str) -> None:
    """Every connection of the worker's is cut again and again; in the end each job is done."""
    name = f"worker_{queue}"
    running = start(queue, lambda _: None, db=f"{url}{'&' if '?' in url else '?'}application_name={name}", batch=5, lease=3)
    penstock.enqueue(db, queue, "first")
    until(lambda: running.ended)
    penstock.enqueue_many(db, queue, [penstock.NewJob(str(n)) for n in range(300)])
    for _ in range(20):
        db.execute("select pg_terminate_backend(pid) from pg_stat_activity where application_name = %s", [name])
        penstock.enqueue(db, queue, "more")
    until(lambda: status(db, queue)[:4] == (0, 0, 0, 0))
    assert {id_ for word, id_ in running.ended if word in ("done", "lost")} == {id_ for _, id_ in running.ended}


def test_no_queue(start: Run) -> None:
    running = start("missing", lambda _: None)
    running.thread.join(60)
    assert isinstance(running.error, penstock.NotFoundError)
    running.error = None


def test_an_old_schema(start: Run, empty: Callable[[], str]) -> None:
    running = start("q", lambda _: None, db=empty())
    running.thread.join(60)
    assert isinstance(running.error, penstock.SchemaError)
    running.error = None


def test_options_are_checked() -> None:
    for bad in ({"concurrency": 0}, {"batch": 10_001}, {"lease": 0.03}, {"drain_timeout": -1}, {"groups": "ab"}, {"groups": ["a"], "all_groups": True}):
        with pytest.raises(penstock.FieldError):
            Options(**bad)


SQLALCHEMY = "postgresql+psycopg"


def sources(url: str) -> dict[str, Any]:
    """What a worker with threads takes connections from."""
    plain = url.replace("postgres://", "postgresql://")
    engine = sqlalchemy.create_engine(plain.replace("postgresql", SQLALCHEMY, 1))
    return {"url": url, "function": lambda: psycopg.connect(url), "engine": engine, "session": sqlalchemy.orm.sessionmaker(engine)}


@pytest.mark.parametrize("kind", ["url", "function", "engine", "session"])
def test_work_tx(url: str, db: psycopg.Connection, queue: str, outbox: str, kind: str) -> None:
    """What a handler writes is there once, and only if the job ended."""

    def handler(tx: Any, job: penstock.Job) -> object:
        penstock.publish(tx, outbox, f"{job.text} {job.attempt}")
        if job.text == "retry" and job.attempt == 1:
            raise penstock.Retry(0)
        if job.text == "error" and job.attempt == 1:
            raise ValueError
        if job.text == "lost" and job.attempt == 1:
            db.execute("select penstock.retry(%s, %s, '0 s')", [queue, job.lease])
        return penstock.DeadLetter("no") if job.text == "dead" else None

    penstock.enqueue_many(db, queue, [penstock.NewJob(t) for t in ("done", "retry", "error", "dead", "lost")])
    db.execute("update penstock._queue set max_attempts = 25")
    running = Running("threads", sources(url)[kind], queue, handler, True, {})
    until(lambda: running.error or status(db, queue) == (0, 0, 0, 0, 1))
    running.join()
    assert running.error is None
    assert {row[0] for row in rows(db, f"select payload from penstock.{outbox}")} == {b"done 1", b"retry 2", b"error 2", b"lost 2"}
    assert len(rows(db, f"select from penstock.{outbox}")) == 4


def cut_all(db: psycopg.Connection) -> None:
    """Ends all other connections, and returns when they are gone."""
    others = "from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
    until(lambda: not rows(db, f"select pg_terminate_backend(pid, 60000) {others}"))


@pytest.mark.parametrize("kind", ["url", "function", "engine", "session"])
def test_work_tx_after_its_connections_were_cut(empty: Callable[[], str], kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a handler that was not called no attempt is spent."""
    monkeypatch.setattr("penstock._worker.IDLE", -1.0)
    own = empty()
    penstock_cli("migrate", "--database-url", own)
    ran: list[tuple[str, int]] = []
    with psycopg.connect(own, autocommit=True) as db:
        db.execute("select penstock.create_queue('q')")
        penstock.enqueue(db, "q", "before")
        running = Running("threads", sources(own)[kind], "q", lambda _, job: ran.append((job.text, job.attempt)), True, {"concurrency": 1})
        until(lambda: len(running.ended) == 1)
        cut_all(db)
        penstock.enqueue(db, "q", "after", max_attempts=1)
        until(lambda: len(running.ended) == 2)
        running.join()
        assert running.error is None
        assert ran == [("before", 1), ("after", 1)] and [word for word, _ in running.ended] == ["settled", "settled"]


def test_work_tx_whose_transactions_cannot_begin(url: str, db: psycopg.Connection, queue: str, caplog: pytest.LogCaptureFixture) -> None:
    from penstock._worker import in_transaction

    ran: list[tuple[str, int]] = []
    away = True

    def connect() -> psycopg.Connection:
        if away:
            raise ConnectionError("away")
        return psycopg.connect(url)

    handle, close = in_transaction(connect, queue, lambda _, job: ran.append((job.text, job.attempt)), Options())
    penstock.enqueue(db, queue, "x", max_attempts=1)
    running = Running("threads", url, queue, handle, False, {})
    until(lambda: running.ended)
    away = False
    until(lambda: ran)
    running.join()
    close()
    assert ran == [("x", 1)] and running.error is None
    assert {word for word, _ in running.ended} == {"snoozed", "settled"}
    assert [r.getMessage().partition(",")[0] for r in caplog.records if "begin the transactions" in r.getMessage()] == [
        f"the worker of queue {queue} cannot begin the transactions of jobs"
    ]


async def asyncio_sources(url: str, kind: str) -> Any:
    plain = url.replace("postgres://", "postgresql://")
    if kind == "asyncpg":
        return lambda: asyncpg.connect(plain)
    if kind == "engine":
        return create_async_engine(plain.replace("postgresql", SQLALCHEMY, 1))
    return url


@pytest.mark.parametrize("kind", ["url", "asyncpg", "engine"])
def test_work_tx_asyncio(url: str, db: psycopg.Connection, queue: str, outbox: str, kind: str) -> None:
    async def handler(tx: Any, job: penstock.Job) -> object:
        await aio.publish(tx, outbox, f"{job.text} {job.attempt}")
        if job.text == "retry" and job.attempt == 1:
            raise penstock.Retry(0)
        if job.text == "error" and job.attempt == 1:
            raise ValueError
        return penstock.DeadLetter("no") if job.text == "dead" else None

    async def main() -> None:
        task = asyncio.ensure_future(aio.work_tx(await asyncio_sources(url, kind), queue, handler, signals=False, concurrency=4))
        while status(db, queue) != (0, 0, 0, 0, 1) and not task.done():
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    penstock.enqueue_many(db, queue, [penstock.NewJob(t) for t in ("done", "retry", "error", "dead")])
    asyncio.run(main())
    assert {row[0] for row in rows(db, f"select payload from penstock.{outbox}")} == {b"done 1", b"retry 2", b"error 2"}


@pytest.mark.parametrize("kind", ["url", "asyncpg", "engine"])
def test_work_tx_asyncio_after_its_connections_were_cut(empty: Callable[[], str], kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.aio.IDLE", -1.0)
    own, ran, ended = empty(), list[tuple[str, int]](), list[str]()
    penstock_cli("migrate", "--database-url", own)

    async def handler(_tx: Any, job: penstock.Job) -> None:
        ran.append((job.text, job.attempt))

    async def main() -> None:
        options: dict[str, Any] = {"signals": False, "concurrency": 1, "observe": lambda word, *_: ended.append(word)}
        task = asyncio.ensure_future(aio.work_tx(await asyncio_sources(own, kind), "q", handler, **options))
        await reached(1)
        await asyncio.to_thread(cut_all, db)
        penstock.enqueue(db, "q", "after", max_attempts=1)
        await reached(2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    async def reached(n: int) -> None:
        await asyncio.to_thread(until, lambda: len(ended) == n)

    with psycopg.connect(own, autocommit=True) as db:
        db.execute("select penstock.create_queue('q')")
        penstock.enqueue(db, "q", "before")
        asyncio.run(main())
    assert ran == [("before", 1), ("after", 1)] and ended == ["settled", "settled"]


PROGRAM = """
import asyncio, sys, threading, time
import penstock
from penstock import aio
url, queue, kind = sys.argv[1:]
def handler(job):
    print(job.text, flush=True)
    time.sleep(0.2)
async def coroutine(job):
    print(job.text, flush=True)
    await asyncio.sleep(0.2)
if kind == "threads":
    penstock.work(url, queue, handler, concurrency=2)
else:
    asyncio.run(aio.work(url, queue, coroutine, concurrency=2))
print("drained", flush=True)
"""


@pytest.mark.parametrize("kind", ["threads", "asyncio"])
def test_sigterm(url: str, db: psycopg.Connection, queue: str, kind: str) -> None:
    penstock.enqueue_many(db, queue, [penstock.NewJob(str(n)) for n in range(50)])
    with subprocess.Popen([sys.executable, "-c", PROGRAM, url, queue, kind], stdout=subprocess.PIPE, text=True, env=dict(os.environ)) as worker:
        assert worker.stdout
        seen = [worker.stdout.readline().strip()]
        worker.send_signal(signal.SIGTERM)
        seen += [line.strip() for line in worker.stdout]
        assert worker.wait(60) == 0
    assert seen[-1] == "drained"
    assert status(db, queue)[:2] == (50 - len(seen) + 1, 0)


def test_workers_that_begin_together_do_not_ask_together() -> None:
    desks = [Desk("emails", Options()) for _ in range(200)]
    at = [0.0] * len(desks)
    for _ in range(100):  # polls that find nothing
        for i, desk in enumerate(desks):
            desk.claimed([], {"": 10}, 0.0, at[i])
            at[i] = desk.next_claim
    assert max(at) - min(at) > POLL_MAX


HEARTBEATS = """select l.worker, l.report from penstock._lease l join penstock._queue q on q.id = -l.queue
    where q.name = %s and l.lease_until > clock_timestamp() order by l.lease_until"""


def test_heartbeats(start: Run, db: psycopg.Connection, queue: str, caplog: pytest.LogCaptureFixture) -> None:
    """A worker is seen while it is idle, with what it has done, and so is that it has stopped."""
    with caplog.at_level("INFO", logger="penstock"):
        running = start(queue, {"good": lambda _: None, "bad": fails}, worker="host/7", concurrency=3, group_key="g")
        until(lambda: rows(db, HEARTBEATS, queue))
        [(worker, report)] = rows(db, HEARTBEATS, queue)
        assert isinstance(report, dict)
        assert worker == "host/7" and report["version"] == f"penstock-client {penstock.__version__}" and report["started_at"]
        assert {n: report[n] for n in ("concurrency", "groups", "running", "done", "failed", "dead")} == {
            "concurrency": 3, "groups": ["g"], "running": 0, "done": 0, "failed": 0, "dead": 0,
        }  # fmt: skip
        assert "claimed_at" not in report and "stopped" not in report
        penstock.enqueue_many(db, queue, [penstock.NewJob("", kind=kind, group_key="g") for kind in ("good", "good", "bad")])
        until(lambda: len(running.ended) == 3)
        running.join()
    last = rows(db, HEARTBEATS, queue)[-1][1]
    assert isinstance(last, dict)
    assert (last["stopped"], last["done"], last["dead"], last["failed"], last["running"]) == (True, 2, 1, 0, 0) and last["claimed_at"] > report["started_at"]
    assert [line for line in caplog.messages if "stops" in line] == [f"the worker of queue {queue} stops: 0 handlers run, and have 10 s to end"]


def fails(job: penstock.Job) -> None:
    raise penstock.DeadLetter("no")


def test_a_job_has_its_own_timeout(start: Run, db: psycopg.Connection, queue: str) -> None:
    """The worker aborts the handler then. What it raises after that is not why the attempt failed; what it returns counts."""
    causes: list[str | None] = []

    def handler(job: penstock.Job) -> None:
        over = threading.Event()
        job.on_abort(lambda _: over.set())
        over.wait()
        causes.append(job.aborted)
        if job.text == "fails":
            raise ValueError("no connection")
        if job.text == "stops":
            job.raise_if_aborted()

    limit = timedelta(milliseconds=50)
    penstock.enqueue_many(db, queue, [penstock.NewJob(t, timeout=limit, max_attempts=1) for t in ("fails", "stops", "returns")])
    running = start(queue, handler)
    until(lambda: sum(word == "dead" for word, _ in running.ended) >= 2 and status(db, queue)[:4] == (0, 0, 0, 0))
    assert set(causes) == {"timeout"}
    for (error,) in rows(db, "select error from penstock.dead_jobs(%s)", queue):
        assert str(error).startswith("TimeoutError: the job ran longer than its timeout of 0.05 s")


def test_a_held_group_leaves_the_others(start: Run, db: psycopg.Connection, queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker of all groups gives back what it has claimed ahead of the held one, and nothing else."""
    monkeypatch.setattr(Desk, "pace", fixed(0.001), raising=False)  # it claims ahead from the beginning: about 50 of a, then of b
    held = threading.Event()

    def handler(job: penstock.Job) -> object:
        if job.text == "hold":
            until(lambda: rows(db, "select from penstock.queue_groups(%s) where group_key = 'b' and running > 0", queue))
            held.set()
            return penstock.HoldGroup(3600)
        return None

    jobs = [penstock.NewJob("hold" if n == 40 else "", group_key="ab"[n % 2]) for n in range(120)]
    made = penstock.enqueue_many(db, queue, jobs)
    running = start(queue, handler, all_groups=True, concurrency=1)
    of_b = "select from penstock.queue_groups(%s) where group_key = 'b' and ready + running > 0"
    until(lambda: held.is_set() and rows(db, of_b, queue) == [])
    running.join()
    left = rows(db, "select group_key, ready + delayed from penstock.queue_groups(%s)", queue)
    assert [group for group, _ in left] == ["a"] and left[0][1] > 0  # type: ignore[operator]
    assert [word for word, _ in running.ended].count("snoozed") == 1
    assert {word for e in made[1::2] for word in running.words(e.id)} == {"done"}, "none of b was given back"


def test_a_job_that_is_given_back_may_lose_its_lease() -> None:
    ended: list[str] = []
    now = datetime.now(timezone.utc)
    desk = Desk("q", Options(observe=lambda word, *_: ended.append(word)))
    desk.claimed([penstock.Job(1, None, "", 0, 1, now, {}, b"", 1, now)], {"": 1}, 0.0, 0.0)
    [task] = desk.stop()
    assert desk.expired(1.0) == [] and ended == []
    desk.finish(task, "released")
    assert ended == ["released"]


@pytest.mark.parametrize("key", ["k", None])
def test_the_next_jobs_of_keys_are_claimed_once_all_that_run_have_ended(key: str | None) -> None:
    now = datetime.now(timezone.utc)
    desk = Desk("q", Options(concurrency=4))
    desk.claimed([penstock.Job(n, key, "", 0, 1, now, {}, b"", n, now) for n in (1, 2)], {"": 4}, 60.0, 0.0)
    first, second = desk.begin(), desk.begin()
    assert first and second
    desk.ended(first, None, 0.1, 0.0)
    assert desk.due(0.0)[0] == "wait", "one of them still runs"
    desk.ended(second, None, 0.1, 0.0)
    assert desk.due(0.0)[0] == ("claim" if key else "wait"), "it waits for the pause between two claims"
    desk.claimed([], {"": 4}, 60.0, 0.0)
    desk.take_acks()
    assert desk.due(0.0)[0] == "wait", "a claim without jobs is not followed by another at once"


def test_a_job_of_a_key_that_is_passed_on_is_left_to_others() -> None:
    now = datetime.now(timezone.utc)
    desk = Desk("q", Options(concurrency=4))
    desk.claimed([penstock.Job(1, "k", "", 0, 1, now, {}, b"", 1, now)], {"": 4}, 60.0, 0.0)
    task, how = desk.begin(), Passed(0)
    assert task
    desk.ended(task, how, 0.1, 0.0)
    desk.failures.popleft()
    desk.written(task, "released", [1], how, "")
    assert desk.due(0.0)[0] == "wait"


def test_a_job_that_is_passed_on_is_not_the_pace_of_handlers() -> None:
    """No handler has run. Else a worker that meets many would claim far ahead of slow handlers."""
    now = datetime.now(timezone.utc)
    desk = Desk("q", Options(concurrency=1))

    def runs(n: int, how: object, took: float) -> None:
        desk.claimed([penstock.Job(n, None, "", 0, 1, now, {}, b"", n, now)], {"": 1}, 0.0, 0.0)
        task = desk.begin()
        assert task is not None
        desk.ended(task, how, took, 0.0)

    for n in range(50):
        runs(n, Passed(0), 0.0001)
    assert desk.wanted() == 1, "it claims ahead, and no handler has run"
    runs(50, None, 10.0)
    runs(51, Passed(0), 0.0001)
    assert desk.pace == 10.0
