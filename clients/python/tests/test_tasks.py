"""Tasks: functions whose calls are jobs."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import threading
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import psycopg
import pytest

import penstock
from penstock import testing

from .conftest import rows, seconds_until_due, status, until
from .running import Run


def stop() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def test_a_call_is_a_job(url: str, queue: str) -> None:
    """Of the caller's transaction; its payload is the arguments by name, which any other client can write."""
    app = penstock.App(queue)

    @app.task
    def welcome(to: str, *, lang: str = "en", **more: int) -> str:
        """Greets."""
        return f"{to} {lang}"

    assert welcome("ann") == "ann en" and welcome.__doc__ == "Greets." and welcome.name == "welcome"
    with psycopg.connect(url) as tx:
        welcome.enqueue(tx, "ann", lang="de", n=1)
        assert testing.require_enqueued(tx, queue) == penstock.NewJob(b'{"to": "ann", "lang": "de", "n": 1}', kind="welcome")
        due = datetime.now(timezone.utc) + timedelta(hours=1)
        first = welcome.using(key="k", group_key="g", priority=-1, not_before=due, dedup_key="d").using(headers={"a": "b"}).enqueue(tx, "ü")
        assert testing.require_enqueued(tx, queue) == penstock.NewJob('{"to": "ü"}'.encode(), "k", "g", -1, due, None, {"a": "b"}, "welcome")
        assert welcome.using(dedup_key="d").enqueue(tx, "bob") == penstock.Enqueued(first.id, True)
        welcome.enqueue_in(tx, 60, "soon")
        welcome.enqueue_in(tx, timedelta(hours=1), "late")
        soon, *late = seconds_until_due(tx, queue)
        assert 50 < soon < 1000 and len(late) == 2 and min(late) > 3500
        penstock.enqueue_many(tx, queue, [welcome.job("one"), welcome.job(to="two")])
        tx.rollback()
        assert status(tx, queue) == (0, 0, 0, 0, 0)


def test_arguments_that_do_not_fit(db: psycopg.Connection, queue: str) -> None:
    app = penstock.App(queue)

    @app.task
    def remind(at: object, to: str = "") -> None: ...

    with pytest.raises(TypeError, match="missing a required argument: 'at'"):
        remind.enqueue(db)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword argument 'too'"):
        remind.enqueue(db, 1, too="x")  # type: ignore[call-arg]
    for value in (datetime(2030, 1, 1), UUID(int=1), float("nan"), {1, 2}):
        with pytest.raises(penstock.FieldError, match=r"the argument at of the task remind is not JSON: .*encoder"):
            remind.enqueue(db, value, "ann")
    assert status(db, queue) == (0, 0, 0, 0, 0)


def test_what_celery_calls_it(db: psycopg.Connection, queue: str) -> None:
    app = penstock.App(queue)

    def remind(to: str) -> None: ...

    task = app.task(remind)
    untyped: Any = task
    with pytest.raises(AttributeError, match=r"^a task has no attribute 'delay': use enqueue\(tx, …\)$"):
        untyped.delay("ann")
    with pytest.raises(AttributeError, match=r"enqueue_in\(tx, seconds, …\)"):
        untyped.apply_async(["ann"], countdown=60)
    with pytest.raises(AttributeError, match=r"^a task has no attribute 'dely'$"):
        untyped.dely("ann")
    assert task.using(key="k").name == "remind"
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'countdown'; use enqueue_in\(tx, seconds, …\)$"):
        task.enqueue(db, "ann", countdown=60)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"; use using\(not_before=…\)\.enqueue\(tx, …\)$"):
        task.enqueue(db, "ann", eta=datetime.now(timezone.utc))  # type: ignore[call-arg]
    for option, says in (
        ("bind", r"call penstock\.current_job\(\)"),
        ("max_retries", "use max_attempts"),
        ("retrys", "use max_attempts.*there are: name,"),
        ("nam", "did you mean 'name'[?] there are: name,"),
    ):
        for make in (app.task, app.task_tx):
            untyped = make
            with pytest.raises(TypeError, match=f"^a task has no option '{option}': {says}"):
                untyped(**{option: 1})(remind)
    assert status(db, queue) == (0, 0, 0, 0, 0)


def test_an_encoder(db: psycopg.Connection, queue: str) -> None:
    class Encoder(json.JSONEncoder):
        def default(self, o: Any) -> Any:
            return str(o) if isinstance(o, UUID) else super().default(o)

    app = penstock.App(queue, encoder=Encoder)

    @app.task
    def ship(order: UUID | str) -> None: ...

    ship.enqueue(db, UUID(int=1))
    assert testing.require_enqueued(db, queue).payload == b'{"order": "00000000-0000-0000-0000-000000000001"}'
    with pytest.raises(penstock.FieldError, match="order"):
        ship.enqueue(db, object())  # type: ignore[arg-type]


def test_what_makes_no_task() -> None:
    app = penstock.App()

    def positional(a: int, /) -> None: ...

    def rest(*a: int) -> None: ...

    def good() -> None: ...

    for fn in (positional, rest):
        with pytest.raises(TypeError, match="has no name in a payload"):
            app.task(queue="q")(fn)
    with pytest.raises(TypeError, match="has no queue"):
        app.task(good)
    with pytest.raises(penstock.FieldError, match="kind"):
        app.task(queue="q", name="a\nb")(good)
    with pytest.raises(penstock.FieldError, match="max_attempts"):
        app.task(queue="q", max_attempts=0)(good)
    app.task(queue="q")(good)
    app.task(queue="r")(good)
    with pytest.raises(ValueError, match="has a task good already"):
        app.task(queue="q")(good)
    with pytest.raises(ValueError, match=r"no task of the queue s.*: q, r$"):
        app.handlers("s")
    with pytest.raises(ValueError, match="has no task"):
        penstock.App().work("")


def test_work_runs_all_tasks(url: str, db: psycopg.Connection, queue: str) -> None:
    """Of all queues, functions and coroutines; SIGTERM ends all."""
    other = f"{queue}_other"
    db.execute("select penstock.create_queue(%s)", [other])
    app, seen = penstock.App(queue), list[tuple[Any, ...]]()

    @app.task(name="greet")
    def welcome(to: str) -> str:
        seen.append((to, penstock.current_job().kind, threading.current_thread().name.startswith("penstock")))
        return to

    @app.task(queue=other)
    async def slow(n: int) -> int:
        await asyncio.sleep(0)
        seen.append((n, penstock.current_job().kind))
        return n

    welcome.enqueue(db, "ann")
    slow.enqueue(db, n=7)
    penstock.enqueue(db, queue, '{"to": "bob"}', kind="greet")

    def watch() -> None:
        until(lambda: len(seen) == 3)
        stop()

    threading.Thread(target=watch).start()
    app.work(url)
    assert sorted(seen, key=str) == [("ann", "greet", True), ("bob", "greet", True), (7, "slow")]
    assert status(db, queue) == status(db, other) == (0, 0, 0, 0, 0)
    with pytest.raises(RuntimeError, match="no job runs here"):
        penstock.current_job()
    with pytest.raises(penstock.NotFoundError):
        app.task(queue="missing")(welcome.fn)
        app.work(url)


def test_awork(url: str, db: psycopg.Connection, queue: str) -> None:
    app, seen = penstock.App(queue), list[tuple[str, int]]()

    @app.task
    async def welcome(to: str) -> None:
        job = penstock.current_job()
        await asyncio.sleep(0)
        seen.append((to, penstock.current_job().attempt))
        if to == "ann" and job.attempt == 1:
            raise penstock.Retry(0)

    async def main() -> None:
        async with await psycopg.AsyncConnection.connect(url) as tx:
            await welcome.aenqueue(tx, "ann")
            await welcome.aenqueue(tx, to="bob")
            await welcome.aenqueue_in(tx, 3600, "late")
        working = asyncio.ensure_future(app.awork(url))
        while status(db, queue) != (0, 0, 1, 0, 0):
            await asyncio.sleep(0.01)
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working

    asyncio.run(main())
    assert sorted(seen) == [("ann", 1), ("ann", 2), ("bob", 1)]

    @app.task
    def plain() -> None: ...

    with pytest.raises(TypeError, match=r"the task plain is not a coroutine.*: use work"):
        asyncio.run(app.awork(url))


def test_attempts(start: Run, db: psycopg.Connection, queue: str, caplog: pytest.LogCaptureFixture) -> None:
    app = penstock.App(queue)
    attempts: dict[str, list[int]] = {}

    def fails(how: Callable[[int], BaseException]) -> None:
        job = penstock.current_job()
        attempts.setdefault(job.kind, []).append(job.attempt)
        raise how(job.attempt)

    @app.task(max_attempts=3, backoff=0)
    def thrice() -> None:
        fails(lambda n: ValueError(f"no {n}"))

    @app.task(max_attempts=2)
    def asks() -> None:
        fails(lambda _: penstock.Retry(0, "again"))

    @app.task(backoff=lambda attempt: timedelta(hours=attempt))
    def later() -> None:
        fails(lambda _: ValueError("no"))

    @app.task(max_attempts=1)
    def once() -> None:
        fails(lambda _: penstock.Snooze(3600))

    for task in (thrice, asks, later, once):
        task.enqueue(db)
    running = start(queue, app.handlers(queue))
    until(lambda: status(db, queue) == (0, 0, 2, 0, 2))
    running.join()
    assert attempts == {"thrice": [1, 2, 3], "asks": [1, 2], "later": [1], "once": [1]}
    reasons = rows(db, "select failures->-1->>'error' from penstock._dead_job d join penstock._queue q on q.id = d.queue where q.name = %s", queue)
    assert sorted(str(reason).split(" (")[0] for (reason,) in reasons) == ["ValueError: no 3", "again"]
    assert all(3500 < seconds < 3601 for seconds in seconds_until_due(db, queue))
    logged = [record for record in caplog.records if "in attempt" in record.getMessage()]
    assert sorted(record.levelno for record in logged) == [logging.WARNING] * 5 + [logging.ERROR]
    assert [isinstance((record.exc_info or [None, None])[1], ValueError) for record in logged if record.levelno == logging.ERROR] == [True]


def test_payloads_of_others(url: str, queue: str) -> None:
    """What no attempt can read is a dead letter. Arguments that do not fit may be those of a newer version."""
    app = penstock.App(queue)

    @app.task
    def welcome(to: str) -> None: ...

    with psycopg.connect(url) as tx:
        for payload, outcome, says in (
            ("{", "dead_letter", "reading the payload: "),
            ("[]", "dead_letter", "reading the payload: it is a list, no object with the arguments of welcome"),
            ('{"to": "ann", "lang": "de"}', "error", r"does not fit welcome.*'lang'"),
            ("{}", "error", r"does not fit welcome.*'to'"),
        ):
            penstock.enqueue(tx, queue, payload, kind="welcome")
            ran = testing.run_one(tx, queue, app.handlers(queue))
            assert ran.outcome == outcome
            with pytest.raises(Exception, match=says):
                raise ran.how
        tx.rollback()


def test_task_tx(url: str, db: psycopg.Connection, queue: str, outbox: str) -> None:
    """What it writes is there once, and only if the job has ended."""
    app = penstock.App(queue)

    @app.task_tx(backoff=0)
    def book(tx: psycopg.Connection, seat: str) -> str:
        penstock.publish(tx, outbox, f"{seat} {penstock.current_job().attempt}")
        if penstock.current_job().attempt == 1:
            raise ValueError
        return seat

    @app.task
    def ends() -> None:
        until(lambda: rows(db, f"select from penstock.{outbox}"))
        stop()

    book.enqueue(db, "1a")
    ends.enqueue(db)
    app.work(url)
    assert rows(db, f"select payload from penstock.{outbox}") == [(b"1a 2",)]
    with psycopg.connect(url) as tx:
        book.enqueue(tx, "2b")
        assert testing.run_one(tx, queue, app).outcome == "retry"  # in this transaction
        tx.rollback()
    with pytest.raises(TypeError, match="the task book needs a transaction"):
        app.handlers(queue)


def test_task_tx_asyncio(url: str, db: psycopg.Connection, queue: str, outbox: str) -> None:
    app = penstock.App(queue)

    @app.task_tx(backoff=0)
    async def book(tx: Any, seat: str) -> None:
        from penstock import aio

        await aio.publish(tx, outbox, f"{seat} {penstock.current_job().attempt}")
        if penstock.current_job().attempt == 1:
            raise ValueError

    async def main() -> None:
        working = asyncio.ensure_future(app.awork(url))
        while not rows(db, f"select from penstock.{outbox}"):
            await asyncio.sleep(0.01)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)

    book.enqueue(db, "1a")
    asyncio.run(main())
    assert rows(db, f"select payload from penstock.{outbox}") == [(b"1a 2",)]
    with pytest.raises(TypeError, match="use awork"):
        app.work(url)


def test_the_end_of_its_time_cancels_a_coroutine_in_a_thread(url: str, db: psycopg.Connection, queue: str) -> None:
    app, how = penstock.App(queue), list[str]()

    @app.task
    async def sleeps() -> None:
        try:
            stop()
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            how.append("cancelled")
            raise

    sleeps.enqueue(db)
    app.work(url, drain_timeout=0.05)
    assert how == ["cancelled"]
    assert rows(db, "select attempt from penstock.claim(%s)", queue) == [(1,)]


@pytest.mark.parametrize("kind", ["function", "coroutine", "asyncio"])
def test_the_timeout_of_a_task(url: str, db: psycopg.Connection, queue: str, kind: str) -> None:
    """It limits each attempt, with the task's attempts; a job's own timeout comes first."""
    app = penstock.App(queue)
    limits: dict[str, Any] = {"timeout": timedelta(milliseconds=50), "max_attempts": 1}

    if kind == "function":

        @app.task(**limits)
        def slow() -> None:
            over = threading.Event()
            job = penstock.current_job()
            job.on_abort(lambda _: over.set())
            over.wait(0.5 if job.timeout else None)
            job.raise_if_aborted()

    else:

        @app.task(**limits)
        async def slow() -> None:
            await asyncio.sleep(0.5 if penstock.current_job().timeout else 3600)

    seen: list[tuple[str, int]] = []

    def observe(word: str, job: penstock.Job, _: float) -> None:
        seen.append((word, job.id))
        if len(seen) == 2:
            stop()

    own = slow.using(timeout=timedelta(hours=1)).enqueue(db)
    late = slow.enqueue(db)
    if kind == "asyncio":
        asyncio.run(app.awork(url, observe=observe))
    else:
        app.work(url, observe=observe)
    assert sorted(seen) == [("dead", late.id), ("done", own.id)]
    [(error,)] = rows(db, "select error from penstock.dead_jobs(%s)", queue)
    assert str(error).startswith("TimeoutError: the job ran longer than its timeout of 0.05 s (test_tasks.py:")


def test_arguments_that_do_not_fit_name_the_task(url: str, queue: str) -> None:
    app = penstock.App(queue)

    @app.task
    def welcome(to: str) -> None: ...

    with psycopg.connect(url) as tx, pytest.raises(TypeError, match=r"do not fit the task welcome\(to: 'str'\).*: missing a required argument: 'to'"):
        welcome.enqueue(tx, too="ann")  # type: ignore[call-arg]
