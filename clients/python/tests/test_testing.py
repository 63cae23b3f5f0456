"""The helpers for users' tests."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta, timezone

import psycopg
import pytest

import penstock
from penstock import aio, testing

from .conftest import rows, status


def test_require_published(url: str, outbox: str) -> None:
    with psycopg.connect(url) as tx:
        with pytest.raises(AssertionError, match="nothing"):
            testing.require_published(tx, outbox)
        penstock.publish(tx, outbox, "1", key="ann", topic="a", headers={"h": "1"}, id="i")
        penstock.publish(tx, outbox, "2", key="bob", topic="b")
        assert testing.require_published(tx, outbox, topic="a", key="ann") == penstock.Message(b"1", "ann", "a", {"h": "1"}, "i")
        assert testing.require_published(tx, outbox, payload=2).key == "bob"
        with pytest.raises(AssertionError, match="key='bob'"):
            testing.require_published(tx, outbox, topic="a", key="bob")
        tx.rollback()


def test_a_job_of_a_task_is_found_by_its_arguments(db: psycopg.Connection, queue: str) -> None:
    app = penstock.App(queue)

    @app.task
    def welcome(to: str, lang: str = "en") -> None: ...

    welcome.enqueue(db, "ann", lang="de")
    welcome.using(key="bob").enqueue(db, to="bob")
    assert testing.require_enqueued(db, queue, task=welcome, args=["ann"]).key is None
    assert testing.require_enqueued(db, queue, task=welcome, kwargs={"to": "bob"}).key == "bob"
    assert testing.require_enqueued(db, queue, task=welcome).kind == "welcome"
    with pytest.raises(AssertionError, match="with kind 'welcome', to 'cem' was enqueued"):
        testing.require_enqueued(db, queue, task=welcome, args=["cem"])
    with pytest.raises(TypeError, match="do not fit the task welcome"):
        testing.require_enqueued(db, queue, task=welcome, args=["ann", "de", 3])


def test_an_asynchronous_session(url: str, queue: str) -> None:
    from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

    async def main() -> None:
        engine = create_async_engine(url.replace("postgres://", "postgresql+asyncpg://").partition("?")[0])
        async with AsyncSession(engine) as session:
            await aio.enqueue(session, queue, {"to": "ann"})
            found = await session.run_sync(lambda tx: testing.require_enqueued(tx, queue, payload={"to": "ann"}))
            assert found.payload == b'{"to": "ann"}'
            ran = await session.run_sync(lambda tx: testing.run_one(tx, queue, lambda job: None))
            assert ran.outcome == "done"
            with pytest.raises(TypeError, match="is asynchronous: use penstock"):
                testing.require_enqueued(session, queue)
        await engine.dispose()

    asyncio.run(main())


def test_require_enqueued(url: str, queue: str) -> None:
    with psycopg.connect(url) as tx:
        with pytest.raises(AssertionError, match="nothing"):
            testing.require_enqueued(tx, queue)
        due = datetime.now(timezone.utc) + timedelta(hours=1)
        penstock.enqueue(tx, queue, {"to": "ann", "n": 1}, key="k", group_key="g", priority=2, headers={"h": "1"}, not_before=due)
        penstock.enqueue(tx, queue, "2", key="k")
        assert testing.require_enqueued(tx, queue, key="k").payload == b"2"
        found = testing.require_enqueued(tx, queue, payload={"n": 1, "to": "ann"})
        assert found == penstock.NewJob(b'{"to": "ann", "n": 1}', "k", "g", 2, due, None, {"h": "1"})
        for payload in ("3", {"to": "bob"}, '{"n": 1, "to": "ann"}'):
            with pytest.raises(AssertionError, match="key='k'"):
                testing.require_enqueued(tx, queue, payload=payload)
        with pytest.raises(penstock.NotFoundError):
            testing.require_enqueued(tx, "missing")
        tx.rollback()


def test_run_one_of_a_kind(url: str, queue: str) -> None:
    with psycopg.connect(url) as tx:
        for n, kind in enumerate(("welcome", "invoice", "welcome", "")):
            penstock.enqueue(tx, queue, str(n), kind=kind, group_key="g" if n == 1 else "")
        seen: list[str] = []
        for kind in ("invoice", "", "welcome", "welcome"):
            ran = testing.run_one(tx, queue, lambda job: seen.append(job.text), kind=kind)
            assert (ran.job.kind, ran.job.attempt, ran.outcome) == (kind, 1, "done")
        assert seen == ["1", "3", "0", "2"]
        penstock.enqueue(tx, queue, "4", kind="welcome")
        with pytest.raises(AssertionError, match=r'no job of kind "invoice" to run .* there are jobs of: "welcome"'):
            testing.run_one(tx, queue, lambda _: None, kind="invoice")
        with pytest.raises(AssertionError, match="no job to run"):
            testing.run_one(tx, queue, lambda _: None, kind="invoice", group_key="g")
        tx.rollback()


def test_run_one(url: str, queue: str) -> None:
    with psycopg.connect(url) as tx:
        with pytest.raises(AssertionError, match="no job"):
            testing.run_one(tx, queue, lambda _: None)
        for text in ("done", "dead", "snooze", "nonsense"):
            penstock.enqueue(tx, queue, text)
        seen: list[str] = []
        assert testing.run_one(tx, queue, lambda job: seen.append(job.text)).outcome == "done"
        assert testing.run_one(tx, queue, lambda _: penstock.DeadLetter("no")).outcome == "dead_letter"

        def snooze(job: penstock.Job) -> None:
            raise penstock.Snooze(5)

        ran = testing.run_one(tx, queue, snooze)
        assert (ran.job.text, ran.outcome, isinstance(ran.how, penstock.Snooze)) == ("snooze", "snooze", True)
        assert testing.run_one(tx, queue, lambda _: "?").outcome == "error"
        assert seen == ["done"]
        tx.rollback()


def test_run_one_logs_the_traceback(url: str, queue: str, caplog: pytest.LogCaptureFixture) -> None:
    with psycopg.connect(url) as tx:
        penstock.enqueue(tx, queue, "x")

        def broken(_job: penstock.Job) -> None:
            raise ValueError("no such address")

        testing.run_one(tx, queue, broken)
        tx.rollback()
    assert "in broken\n" in caplog.text and "ValueError: no such address" in caplog.text


def test_run_one_ends_the_attempt_of_a_handler_that_exits(url: str, queue: str) -> None:
    """As a worker does, which continues."""
    with psycopg.connect(url) as tx:
        penstock.enqueue(tx, queue, "x")

        def exits(_job: penstock.Job) -> None:
            raise SystemExit("enough")

        ran = testing.run_one(tx, queue, exits)
        assert ran.outcome == "error" and isinstance(ran.how, SystemExit)
        assert status(tx, queue) == (0, 0, 1, 0, 0)
        tx.rollback()


def test_run_one_tries_again(url: str, queue: str) -> None:
    with psycopg.connect(url) as tx:
        penstock.enqueue(tx, queue, "x")

        def handler(job: penstock.Job) -> None:
            if job.attempt == 1:
                raise ValueError("once more")
            if job.attempt == 2:
                raise penstock.Retry(60)

        assert testing.run_one(tx, queue, handler).outcome == "error"
        with pytest.raises(AssertionError, match="no job"):
            testing.run_one(tx, queue, handler)
        testing.advance(tx, queue, 3600)
        ran = testing.run_one(tx, queue, handler)
        assert (ran.job.attempt, ran.outcome) == (2, "retry")
        testing.advance(tx, queue, 3600)
        ran = testing.run_one(tx, queue, handler)
        assert (ran.job.attempt, ran.outcome) == (3, "done")
        testing.advance(tx, queue, 3600)
        with pytest.raises(AssertionError, match="no job"):
            testing.run_one(tx, queue, handler)
        penstock.enqueue(tx, queue, "y")

        def breaks(_job: penstock.Job) -> None:
            tx.execute("select 1/0")

        with pytest.raises(psycopg.errors.InFailedSqlTransaction) as e:
            testing.run_one(tx, queue, breaks)
        assert isinstance(e.value.__cause__, psycopg.errors.DivisionByZero)
        tx.rollback()


def test_run_one_with_steps(url: str, queue: str) -> None:
    charged: list[int] = []

    def handler(job: penstock.Job) -> None:
        def charge() -> dict[str, int]:
            charged.append(job.attempt)
            return {"receipt": 7}

        assert penstock.step(job, "charge", charge) == penstock.step(job, "charge", charge) == {"receipt": 7}
        if job.attempt == 1:
            assert job.report is None
            penstock.report(job, {"rows": 1})
            raise penstock.Retry(0)
        assert job.report == {"rows": 1, "penstock-steps": {"charge": {"receipt": 7}}} and job.headers == {"h": "1"}
        with pytest.raises(penstock.FieldError, match=r"'large'.*not JSON"):
            penstock.step(job, "large", object)

    with psycopg.connect(url) as tx:
        penstock.enqueue(tx, queue, "order", headers={"h": "1"})
        assert [ran.outcome for ran in testing.run_all(tx, queue, handler)] == ["retry", "done"]
        assert charged == [1]
        tx.rollback()
    with pytest.raises(penstock.FieldError, match="was not claimed"):
        penstock.report(penstock.Job(1, None, "", 0, 1, datetime.now(timezone.utc), {}, b"", 1, datetime.now(timezone.utc)), 1)


def test_advance(url: str, db: psycopg.Connection, queue: str) -> None:
    now = datetime.now(timezone.utc)
    penstock.enqueue(db, queue, "in an hour", not_before=now + timedelta(hours=1))
    penstock.enqueue(db, queue, "tomorrow", not_before=now + timedelta(days=1))
    penstock.enqueue(db, queue, "retried")
    [(lease,)] = rows(db, "select lease from penstock.claim(%s)", queue)
    db.execute("select penstock.retry(%s, %s, '30 min')", [queue, lease])
    penstock.enqueue(db, queue, "leased")
    rows(db, "select lease from penstock.claim(%s, 1, '1 h')", queue)
    assert rows(db, "select payload from penstock.claim(%s, 10)", queue) == []
    testing.advance(db, queue, 3700)
    found = {(row[0], row[1]) for row in rows(db, "select payload, attempt from penstock.claim(%s, 10)", queue)}
    assert found == {(b"in an hour", 1), (b"retried", 2), (b"leased", 2)}
    testing.advance(db, queue, 24 * 3600)
    assert (b"tomorrow", 1) in rows(db, "select payload, attempt from penstock.claim(%s, 10)", queue)


def test_run_all(url: str, queue: str) -> None:
    """Retries, snoozes and delays come to their end, and so do dead letters."""
    with psycopg.connect(url) as tx:
        assert testing.run_all(tx, queue, lambda _: None) == []
        penstock.enqueue_many(tx, queue, [penstock.NewJob(text, not_before=timedelta(hours=1) if text == "late" else None) for text in ("good", "bad", "late")])
        tx.execute("update penstock._queue set max_attempts = 3 where name = %s", [queue])

        def handler(job: penstock.Job) -> None:
            if job.text == "bad":
                raise ValueError(job.attempt)
            if job.text == "late" and job.attempt == 1:
                raise penstock.Retry(3600)

        ran = testing.run_all(tx, queue, handler)
        assert [r.job.attempt for r in ran if r.job.text == "bad"] == [1, 2, 3]
        assert [r.outcome for r in ran if r.job.text == "late"] == ["retry", "done"]
        assert status(tx, queue) == (0, 0, 0, 0, 1)
        penstock.enqueue(tx, queue, "x")
        with pytest.raises(AssertionError, match="after 5 attempts"):
            testing.run_all(tx, queue, lambda _: penstock.Snooze(60), most=5)
        tx.rollback()


def test_jobs_of_groups(url: str, queue: str) -> None:
    """They run too, those without a group first. A group that is named runs alone."""
    with psycopg.connect(url) as tx:
        penstock.enqueue_many(tx, queue, [penstock.NewJob(group or "none", group_key=group) for group in ("b", "a", "")])
        penstock.enqueue(tx, queue, "late", group_key="c", not_before=timedelta(hours=1))

        def handler(job: penstock.Job) -> None:
            if job.text == "a" and job.attempt == 1:
                raise penstock.Retry(60)

        assert testing.run_one(tx, queue, handler).job.text == "none"
        assert testing.run_all(tx, queue, handler, group_key="") == []
        with pytest.raises(testing.NoJobError, match=r"without a group; other groups have jobs: 'a', 'b'$"):
            testing.run_one(tx, queue, handler, group_key="")
        with pytest.raises(testing.NoJobError, match=r"of the group 'd'; other groups have jobs: 'a', 'b'$"):
            testing.run_one(tx, queue, handler, group_key="d")
        assert [(ran.job.text, ran.outcome) for ran in testing.run_all(tx, queue, handler)] == [("a", "retry"), ("b", "done"), ("a", "done"), ("late", "done")]
        with pytest.raises(testing.NoJobError, match=f"in '{queue}'$"):
            testing.run_one(tx, queue, handler)
        tx.rollback()


def test_clear(db: psycopg.Connection, queue: str) -> None:
    penstock.enqueue_many(db, queue, [penstock.NewJob(str(n)) for n in range(40)])
    [(lease,)] = rows(db, "select lease from penstock.claim(%s)", queue)
    rows(db, "select from penstock.ack_claim(%s, '{}', 20)", queue)  # they share a row
    db.execute("select penstock.dead_letter(%s, %s, 'no')", [queue, lease])
    penstock.enqueue(db, queue, "late", not_before=timedelta(hours=1), dedup_key="d")
    assert status(db, queue) == (19, 20, 1, 0, 1)
    testing.clear(db, queue)
    assert status(db, queue) == (0, 0, 0, 0, 0)
    penstock.enqueue(db, queue, "x", dedup_key="d", key="k")
    assert rows(db, "select payload from penstock.claim(%s, 10)", queue) == [(b"x",)]


def test_barriers_open_in_a_transaction(url: str, queue: str) -> None:
    with psycopg.connect(url) as tx:
        barrier = penstock.barrier(tx, queue)
        for n in range(3):
            penstock.enqueue(tx, queue, str(n), holds=barrier)
        penstock.enqueue(tx, queue, "all", waits_for=[barrier])
        penstock.seal(tx, queue, barrier)
        assert [ran.job.text for ran in testing.run_all(tx, queue, lambda _: None)] == ["0", "1", "2", "all"]
        tx.rollback()
