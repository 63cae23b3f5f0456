"""Jobs of several kinds in one queue: handlers by kind, and what becomes of a kind that has none."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from datetime import timedelta
from time import monotonic
from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pytest

import penstock
from penstock import aio, testing
from penstock._desk import POLL_MAX, Options
from penstock._kinds import Strangers
from penstock._model import HEADER_KIND

from .conftest import rows, seconds_until_due, status, until
from .running import Run, Running


@pytest.fixture
def rests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each job that has no handler rests for the longest time, so that a test decides when it comes back."""
    monkeypatch.setattr("penstock._kinds.Strangers.rest", lambda *_: 10.0)


def test_a_kind_travels_as_a_header(db: psycopg.Connection, queue: str) -> None:
    penstock.enqueue(db, queue, "x", kind="welcome", headers={"a": "b"})
    penstock.enqueue_many(db, queue, [penstock.NewJob("y", headers={HEADER_KIND: "welcome"}), penstock.NewJob("z")])
    assert rows(db, "select headers from penstock.claim(%s, 10)", queue) == [({HEADER_KIND: "welcome", "a": "b"},), ({HEADER_KIND: "welcome"},), (None,)]


@pytest.mark.parametrize(
    "fields", [{"kind": "x" * 101}, {"kind": "a\nb"}, {"kind": 1}, {"headers": {HEADER_KIND: "a\x7f"}}, {"kind": "a", "headers": {HEADER_KIND: "b"}}]
)
def test_a_kind_that_no_job_can_have(fields: dict[str, Any], db: psycopg.Connection, queue: str) -> None:
    with pytest.raises(penstock.FieldError) as refused:
        penstock.enqueue(db, queue, "x", **fields)
    assert refused.value.field == "kind"
    assert status(db, queue) == (0, 0, 0, 0, 0)


@pytest.mark.parametrize("tx", [False, True])
def test_each_kind_has_its_handler(request: pytest.FixtureRequest, start: Run, url: str, db: psycopg.Connection, queue: str, tx: bool) -> None:
    seen: list[tuple[str, str, str]] = []
    handlers = {kind: lambda *args, kind=kind: seen.append((kind, args[-1].kind, args[-1].text)) for kind in ("welcome", "receipt", "")}
    penstock.enqueue_many(db, queue, [penstock.NewJob(str(n), kind=kind) for n, kind in enumerate(["welcome", "receipt", "", "welcome"])])
    running = Running("threads", url, queue, handlers, True, {}) if tx else start(queue, handlers)
    until(lambda: status(db, queue) == (0, 0, 0, 0, 0))
    running.join()
    assert sorted(seen) == [("", "", "2"), ("receipt", "receipt", "1"), ("welcome", "welcome", "0"), ("welcome", "welcome", "3")]


@pytest.mark.parametrize(
    ("handler", "message"),
    [
        ("shop.jobs.send", "handler is 'shop.jobs.send' (give a function that takes the job, or one for each kind"),
        (None, "handler is None (give a function"),
        ({"welcome": "send"}, "handler of kind \"welcome\" is 'send' (give a function"),
        (penstock.App(), "handler is an App (run it with its work or awork"),
    ],
)
def test_what_cannot_be_called_is_refused_before_any_attempt(url: str, db: psycopg.Connection, queue: str, handler: Any, message: str) -> None:
    penstock.enqueue(db, queue, "x", kind="welcome")

    ways: list[Callable[[Any], object]] = [
        lambda how: penstock.work(url, queue, how),
        lambda how: penstock.work_tx(url, queue, how),
        lambda how: asyncio.run(aio.work(url, queue, how)),
        lambda how: asyncio.run(aio.work_tx(url, queue, how)),
    ]
    for work in ways:
        with pytest.raises(penstock.FieldError, match=re.escape(message)):
            work(handler)
    if handler is not None and not isinstance(handler, penstock.App):
        with pytest.raises(penstock.FieldError, match=re.escape(message)):
            testing.run_one(db, queue, handler)
    assert rows(db, "select attempt from penstock.claim(%s, 10)", queue) == [(1,)]


@pytest.mark.usefixtures("rests")
def test_a_kind_without_a_handler_is_left_to_others(start: Run, db: psycopg.Connection, queue: str, caplog: pytest.LogCaptureFixture) -> None:
    """No attempt is spent. Where it runs at last it is the first one."""
    for kind in ("new", "", "new"):
        penstock.enqueue(db, queue, "x", kind=kind)
    running = start(queue, {"old": lambda job: None})
    until(lambda: len(running.ended) == 3)
    running.join()
    assert {word for word, _ in running.ended} == {"released"}
    assert status(db, queue) == (0, 0, 3, 0, 0)
    assert all(0 < seconds <= 11.25 for seconds in seconds_until_due(db, queue))
    assert sorted(re.findall(r'no handler for kind "(\w*)" in this worker, which has "old"\. .* after 60 min', caplog.text)) == ["", "new"], "each is told once"
    testing.advance(db, queue, 12)
    attempts: list[int] = []
    running = start(queue, {"new": lambda job: attempts.append(job.attempt), "": lambda job: attempts.append(job.attempt)})
    until(lambda: attempts == [1, 1, 1])


def test_a_job_without_a_handler_rests_every_other_time(start: Run, db: psycopg.Connection, queue: str) -> None:
    """First it may be claimed at once, and the worker claims nothing for a while: others meet it first."""
    penstock.enqueue(db, queue, "x", kind="new")
    released: list[float] = []
    running = start(queue, {"old": lambda job: None}, observe=lambda *_: released.append(monotonic()))
    until(lambda: len(released) == 3)
    running.join()
    assert released[1] - released[0] > POLL_MAX / 2
    passing, job = Strangers(queue, Options()), cast(penstock.Job, SimpleNamespace(id=1))
    assert [passing.rest(job, now) for now in (100, 101, 102, 108, 109, 118, 119, 128)] == [0, 0.5, 0, 4, 0, 9, 0, 10]
    assert passing.rest(job, 200) == 0, "it was forgotten"


def enqueue_old(db: psycopg.Connection, queue: str, *payloads: str) -> None:
    with db.transaction():  # a worker that runs does not see them before they are old
        penstock.enqueue_many(db, queue, [penstock.NewJob(payload, kind='a "typo"') for payload in payloads])
        db.execute(f"update penstock.{queue} set created_at = created_at - interval '61 min'")


def until_ended(running: Running, *words: str) -> None:
    until(lambda: [word for word, _ in running.ended] == list(words))


@pytest.mark.usefixtures("rests")
def test_a_kind_that_no_worker_takes_is_a_dead_letter(start: Run, db: psycopg.Connection, queue: str) -> None:
    """But not at the first meetings: a job that was enqueued for later has not met the other workers."""
    enqueue_old(db, queue, "old")
    running = start(queue, {"": lambda job: None})
    until_ended(running, "released")
    testing.advance(db, queue, 12)
    until_ended(running, "released", "released")
    running.join()
    testing.advance(db, queue, 12)
    running = start(queue, {"": lambda job: None}, give_up=1e-6)
    until_ended(running, "released")
    testing.advance(db, queue, 12)
    until_ended(running, "released", "dead")
    assert rows(
        db,
        "select convert_from(payload, 'UTF8'), failures->0->>'error' from penstock._dead_job d join penstock._queue q on q.id = d.queue where q.name = %s",
        queue,
    ) == [("old", 'no handler for kind "a \\"typo\\""')]


@pytest.mark.usefixtures("rests")
def test_a_worker_remembers_a_limited_number_of_jobs(start: Run, db: psycopg.Connection, queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It gives up no others."""
    monkeypatch.setattr("penstock._kinds.MAX_MET", 1)
    enqueue_old(db, queue, "first", "second")
    running = start(queue, {"": lambda job: None}, give_up=1e-6)
    until_ended(running, "released", "released")
    testing.advance(db, queue, 12)
    until(lambda: len(running.ended) == 4)
    assert "released" in [word for word, _ in running.ended[2:]]


@pytest.mark.usefixtures("rests")
def test_a_job_that_does_not_come_back_makes_room(start: Run, db: psycopg.Connection, queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """If it comes back after all, it is new to the worker."""
    monkeypatch.setattr("penstock._kinds.MAX_MET", 1)
    enqueue_old(db, queue, "first")
    running = start(queue, {"": lambda job: None}, give_up=1e-6)
    until_ended(running, "released")
    enqueue_old(db, queue, "second")
    until_ended(running, "released", "released")
    db.execute("select penstock.cancel(%s, %s)", [queue, [running.ended[1][1]]])
    testing.advance(db, queue, 12)
    until_ended(running, "released", "released", "released")
    testing.advance(db, queue, 12)
    until_ended(running, "released", "released", "released", "dead")


def test_handlers_are_checked(url: str, queue: str) -> None:
    async def coroutine(_job: penstock.Job) -> None: ...

    with pytest.raises(penstock.FieldError, match="handler"):
        penstock.Worker(url, queue, {}, penstock.Options())
    with pytest.raises(penstock.FieldError, match="kind"):
        penstock.Worker(url, queue, {"a\nb": lambda job: None}, penstock.Options())
    with pytest.raises(TypeError, match=r"penstock\.aio"):
        penstock.Worker(url, queue, {"a": coroutine}, penstock.Options())


def test_the_helpers_know_kinds(url: str, queue: str) -> None:
    with psycopg.connect(url) as tx:
        penstock.enqueue(tx, queue, "x", kind="welcome")
        assert testing.require_enqueued(tx, queue, kind="welcome") == penstock.NewJob(b"x", kind="welcome")
        with pytest.raises(AssertionError, match="kind='welcome'"):
            testing.require_enqueued(tx, queue, kind="receipt")
        assert testing.run_one(tx, queue, {"welcome": lambda job: None}).outcome == "done"
        tx.rollback()


def test_the_helpers_remember_a_kind_without_a_handler(url: str, queue: str) -> None:
    """Between calls, as a worker does: `advance` makes a job old enough, and its meeting long ago."""
    handlers = {"welcome": lambda job: None}
    with psycopg.connect(url) as tx:
        testing.advance(tx, queue, 7200)
        penstock.enqueue(tx, queue, "x", kind="typo")
        for seconds in (1800, 1700, 100):  # it is half an hour old, and then known for half an hour
            assert testing.run_one(tx, queue, handlers).outcome == "snooze"
            testing.advance(tx, queue, seconds)
        assert testing.run_one(tx, queue, handlers).outcome == "dead_letter"
        penstock.enqueue(tx, queue, "y", kind="typo")
        assert testing.run_one(tx, queue, handlers).outcome == "snooze", "another job has its own time"
        tx.rollback()


def test_a_kind_without_a_handler_fails_run_all(url: str, queue: str) -> None:
    """At its first meeting, delayed or not: no other worker runs in a test."""
    handlers = {"welcome": lambda job: None, "": lambda job: None}
    with psycopg.connect(url) as tx:
        for delay in (None, timedelta(hours=2)):
            penstock.enqueue_many(tx, queue, [penstock.NewJob("x", kind="welcome"), penstock.NewJob("y", kind="typo", not_before=delay)])
            with pytest.raises(AssertionError, match=f'^no handler for kind "typo" in \'{queue}\': there is one for "", "welcome"$'):
                testing.run_all(tx, queue, handlers)
            assert status(tx, queue) == (1, 0, 0, 0, 0)
            testing.clear(tx, queue)
        tx.rollback()
