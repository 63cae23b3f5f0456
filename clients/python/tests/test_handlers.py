"""What handlers return and raise, however odd it is, is the matter of their own jobs."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import threading
from collections.abc import Callable
from datetime import timedelta
from functools import partial

import psycopg
import pytest

import penstock
from penstock import aio
from penstock._worker import in_transaction

from .conftest import rows, status, until
from .running import Run


class Unreadable(Exception):  # noqa: N818
    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__


def test_what_cannot_be_told_fails_its_own_job(start: Run, db: psycopg.Connection, queue: str) -> None:
    def handler(job: penstock.Job) -> object:
        if job.text == "raised":
            raise Unreadable
        if job.text == "returned":
            return Unreadable()
        if job.text == "reason":
            raise penstock.DeadLetter(Unreadable())  # type: ignore[arg-type]
        if job.text == "exit":
            raise SystemExit(3)
        if job.text == "deep":
            return handler(job)
        return None

    def observe(word: str, job: penstock.Job, _seconds: float) -> None:
        ended.append((word, job.text))
        raise Unreadable

    ended: list[tuple[str, str]] = []
    penstock.enqueue_many(db, queue, [penstock.NewJob(t) for t in ("raised", "returned", "reason", "exit", "deep", "good")])
    running = start(queue, handler, concurrency=1, observe=observe)
    until(lambda: len(ended) == 6)
    running.join()
    assert sorted(ended) == [("dead", "reason"), ("done", "good"), ("failed", "deep"), ("failed", "exit"), ("failed", "raised"), ("failed", "returned")]
    assert status(db, queue) == (0, 0, 4, 0, 1)


def test_an_exception_is_logged_with_its_traceback(start: Run, db: psycopg.Connection, queue: str, caplog: pytest.LogCaptureFixture) -> None:
    """At the last attempt, at a level that reporters of errors listen to. One that runs again has one line, and its traceback at debug. The job keeps the
    line of the program that led to it, also if a library raised. An outcome is neither."""

    def handler(job: penstock.Job) -> None:
        if job.attempt > 1:
            raise penstock.Snooze(3600)
        if job.text == "chosen":
            raise penstock.Retry(60, "later")
        json.loads(job.text)

    penstock.enqueue_many(db, queue, [penstock.NewJob("{broken", kind="sum"), penstock.NewJob("chosen")])
    caplog.set_level(logging.INFO, logger="penstock")
    running = start(queue, handler)
    until(lambda: len(running.ended) >= 2)
    running.join()
    logged = {record.getMessage(): record for record in caplog.records if "in attempt" in record.getMessage()}
    assert len(logged) == 2 and all(record.levelname == "WARNING" and record.exc_info is None for record in logged.values())
    assert any(line.endswith(f"of queue {queue} failed in attempt 1: later") for line in logged)
    assert any(", kind sum, of queue " in line and "failed in attempt 1: " in line and "JSONDecodeError: " in line for line in logged)
    errors = [
        str(row[0]).partition("\n")[0]
        for row in rows(db, "select failures->0->>'error' from penstock._scheduled where queue = (select id from penstock._queue where name = %s)", queue)
    ]
    line = handler.__code__.co_firstlineno + 5
    assert sorted(errors)[0].startswith("JSONDecodeError: ") and sorted(errors)[0].endswith(f" (test_handlers.py:{line} in handler)")
    assert sorted(errors)[1] == "later"


def test_a_job_that_is_done_is_logged_at_debug(start: Run, db: psycopg.Connection, queue: str, caplog: pytest.LogCaptureFixture) -> None:
    for level, lines in ((logging.INFO, 0), (logging.DEBUG, 1)):
        caplog.set_level(level, logger="penstock")
        penstock.enqueue(db, queue, "x", kind="sum")
        running = start(queue, lambda _job: None)
        until(partial(bool, running.ended))
        running.join()
        assert len(re.findall(rf"job \d+, kind sum, of queue {queue} is done after \d", caplog.text)) == lines


@pytest.mark.parametrize("after", ["soon", float("nan"), float("inf"), -1, timedelta(seconds=-1)])
@pytest.mark.parametrize("outcome", [penstock.Snooze, penstock.HoldGroup, penstock.Retry])
def test_a_time_that_is_none(after: object, outcome: Callable[[object], object]) -> None:
    with pytest.raises(penstock.FieldError, match="after"):
        outcome(after)


def test_a_listener_that_raises(start: Run, db: psycopg.Connection, queue: str) -> None:
    """What a handler gave to on_abort fails, and the worker stops as ever."""

    def handler(job: penstock.Job) -> None:
        def listener(_cause: str) -> None:
            raise Unreadable

        job.on_abort(listener)
        job.on_abort(causes.append)
        begun.set()
        until(lambda: causes)

    causes: list[str] = []
    begun = threading.Event()
    penstock.enqueue(db, queue, "x")
    running = start(queue, handler, drain_timeout=0)
    begun.wait()
    running.join()
    assert causes == ["stopping"]


def test_a_dead_letter_keeps_the_causes_and_the_callers(start: Run, db: psycopg.Connection, queue: str) -> None:
    """Its first line is the error, with the innermost line of the program: dead letters are grouped by it."""

    def address(text: str) -> str:
        try:
            return {"ann": "ann@example.com"}[text]
        except KeyError as e:
            raise ValueError("no address\nof this user") from e

    def handler(job: penstock.Job) -> None:
        address(job.text)

    penstock.enqueue(db, queue, "bob", max_attempts=1)
    running = start(queue, handler)
    until(lambda: running.ended)
    running.join()
    error = str(rows(db, "select error from penstock.dead_jobs(%s)", queue)[0][0])
    line, calls = address.__code__.co_firstlineno, handler.__code__.co_firstlineno + 1
    lines = str(error).splitlines()
    assert lines[:3] == [f"ValueError: no address (test_handlers.py:{line + 4} in address)", "of this user", f"  from test_handlers.py:{calls} in handler"]
    assert lines[-1] == f"caused by KeyError: 'bob' (test_handlers.py:{line + 2} in address)"


def test_the_wrong_kind_of_function(url: str, db: psycopg.Connection, queue: str) -> None:
    """No job is spent on it."""

    async def coroutine(_job: penstock.Job) -> None: ...

    async def coroutine_tx(_tx: object, _job: penstock.Job) -> None: ...

    penstock.enqueue(db, queue, "x")
    with pytest.raises(TypeError, match=r"penstock\.aio"):
        penstock.Worker(url, queue, coroutine, penstock.Options())
    with pytest.raises(TypeError, match=r"penstock\.aio"):
        in_transaction(url, queue, coroutine_tx, penstock.Options())
    with pytest.raises(TypeError, match=r"penstock\.work"):
        asyncio.run(aio.work(url, queue, lambda job: None))  # type: ignore[arg-type, return-value]
    with pytest.raises(TypeError, match=r"penstock\.work"):
        asyncio.run(aio.work_tx(url, queue, lambda tx, job: None))  # type: ignore[arg-type, return-value]
    assert rows(db, "select attempt from penstock.claim(%s)", queue) == [(1,)]


def test_one_that_does_not_heed_the_end_is_left(start: Run, db: psycopg.Connection, queue: str) -> None:
    penstock.enqueue_many(db, queue, [penstock.NewJob("deaf"), penstock.NewJob("good")])
    begun, end = threading.Event(), threading.Event()

    def handler(job: penstock.Job) -> None:
        if job.text == "deaf":
            begun.set()
            end.wait()

    running = start(queue, handler, drain_timeout=0.1)
    begun.wait()
    until(lambda: status(db, queue)[:2] == (0, 1))
    running.stop()
    if running.kind == "threads":
        running.thread.join(60)
        assert not running.thread.is_alive() and "after the drain time: 1" in str(running.error)
        running.error = None
        assert status(db, queue)[1] == 1
    end.set()


@pytest.mark.parametrize("start", ["threads"], indirect=True)  # asyncio cancels a coroutine
def test_a_timeout_is_logged_with_one_traceback(start: Run, db: psycopg.Connection, queue: str, caplog: pytest.LogCaptureFixture) -> None:
    def handler(job: penstock.Job) -> None:
        until(lambda: job.aborted == "timeout")
        raise ValueError("too late")

    penstock.enqueue(db, queue, "x", timeout=timedelta(milliseconds=50), max_attempts=1)
    running = start(queue, handler)
    until(lambda: len(running.ended) == 1)
    running.join()
    [text] = [logging.Formatter().format(record) for record in caplog.records if record.exc_info]
    assert text.count(" in handler\n") == 1 and text.endswith("TimeoutError: the job ran longer than its timeout of 0.05 s"), text
    error = str(rows(db, "select error from penstock.dead_jobs(%s)", queue)[0][0])
    at = f"(test_handlers.py:{handler.__code__.co_firstlineno + 2} in handler)"
    assert error.startswith(f"TimeoutError: the job ran longer than its timeout of 0.05 s {at}") and f"caused by ValueError: too late {at}" in error, error
