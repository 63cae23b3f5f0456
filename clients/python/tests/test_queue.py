"""Schedules, dead letters and groups of a queue."""

from __future__ import annotations

import asyncio
import sqlite3
from datetime import datetime, timedelta, timezone

import psycopg
import pytest

import penstock
from penstock import aio, testing

from .conftest import status, until
from .running import Run


def test_schedules(db: psycopg.Connection, queue: str) -> None:
    q = penstock.Queue(db, queue)
    next_ = q.schedule(
        "nightly", "@yearly", {"days": 1}, kind="digest", key="k", group_key="g", priority=-3, dedup_key="d", headers={"h": "1"}, skip_overlap=True
    )
    assert next_ > datetime.now(timezone.utc)
    headers = {"h": "1", "penstock-kind": "digest"}
    assert q.schedules() == [penstock.Schedule("nightly", "@yearly", next_, False, True, None, "digest", "k", "g", -3, "d", headers, b'{"days": 1}')]
    q.pause_schedule("nightly")
    with db.transaction():
        made = q.run_schedule("nightly")
        assert not made.deduplicated
        assert q.run_schedule("nightly") == penstock.Enqueued(made.id, True)
    [one] = q.schedules()
    assert one.paused and one.last_job == made.id
    q.resume_schedule("nightly")
    q.schedule("other", "@hourly", b"x")
    assert [(s.name, s.paused, s.skip_overlap, s.next == next_, s.key) for s in q.schedules()] == [
        ("nightly", False, True, True, "k"),
        ("other", False, False, False, None),
    ]
    q.unschedule("nightly")
    with pytest.raises(penstock.NotFoundError) as missing:
        q.pause_schedule("nightly")
    assert missing.value.sqlstate == "42704"
    with pytest.raises(penstock.FieldError, match="priority"):
        q.schedule("bad", "@daily", b"", priority=99)


def test_create_and_status(url: str, db: psycopg.Connection, queue: str) -> None:
    q = penstock.Queue(db, f"made_by_{queue}")
    q.create("lifo")
    with pytest.raises(psycopg.errors.DuplicateTable, match="exists already"):
        q.create()
    with pytest.raises(penstock.Error):
        penstock.Queue(db, "other").create("random")
    assert q.status() == penstock.QueueStatus(0, 0, 0, 0, 0, timedelta(0), 0)
    jobs = [penstock.NewJob("a"), penstock.NewJob("b"), penstock.NewJob("c", not_before=timedelta(hours=1))]
    penstock.enqueue_many(db, q.name, [*jobs, penstock.NewJob("d", key="k"), penstock.NewJob("e", key="k")])
    claimed = db.execute("select key, lease from penstock.claim(%s, 2)", [q.name]).fetchall()
    assert [key for key, _ in claimed] == ["k", None], "the last in is the first out"
    db.execute("select penstock.dead_letter(%s, %s, 'no')", [q.name, claimed[1][1]])
    made = q.status()
    assert timedelta(0) < made.oldest < timedelta(minutes=10)
    assert made == penstock.QueueStatus(ready=1, running=1, delayed=1, waiting=1, dead=1, oldest=made.oldest, expired=0)
    with pytest.raises(penstock.NotFoundError):
        penstock.Queue(db, "missing").status()

    async def main() -> None:
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as conn:
            a = aio.Queue(conn, f"made_by_aio_{queue}")
            await a.create()
            await aio.enqueue(conn, a.name, "x")
            assert (await a.status()).ready == 1

    asyncio.run(main())


def test_dead_letters(db: psycopg.Connection, queue: str) -> None:
    q = penstock.Queue(db, queue)
    penstock.enqueue_many(db, queue, [penstock.NewJob(str(n), kind="welcome", headers={"n": str(n)}) for n in (1, 2, 3)])
    db.execute("select penstock.dead_letter(%s, lease, 'no ' || id) from penstock.claim(%s, 3)", [queue, queue])
    first = q.dead_jobs(2)
    ids = [d.id for d in first]
    assert [(d.kind, d.headers["n"], d.payload, d.attempt, d.error) for d in first] == [("welcome", str(n), str(n).encode(), 1, f"no {n}") for n in ids]
    assert first[0].failures[0]["error"] == first[0].error and first[0].died_at >= first[0].created_at
    assert [d.error for d in q.dead_jobs(after=ids[1])] == ["no 3"]
    assert q.retry_dead_jobs(ids[:1]) == 1
    assert q.discard_dead_jobs(ids) == 1
    assert len(q.dead_jobs()) == 1


def test_find_job(db: psycopg.Connection, queue: str) -> None:
    q = penstock.Queue(db, queue)
    made = penstock.enqueue(db, queue, "secret", kind="export", key="k")
    ready = q.find_job(made.id)
    assert ready is not None and (ready.id, ready.state, ready.kind, ready.key, ready.group_key, ready.attempt) == (made.id, "ready", "export", "k", "", 0)
    assert (ready.claimed_at, ready.until, ready.ended_at, ready.worker, ready.error, ready.report) == (None,) * 6
    lease = db.execute("select lease from penstock.claim(%s, worker => 'w')", [queue]).fetchall()[0][0]
    db.execute("""select penstock.report(%s, %s, '{"rows": 7}')""", [queue, lease])
    running = q.find_job(made.id)
    assert running is not None and (running.state, running.attempt, running.worker, running.report) == ("running", 1, "w", {"rows": 7})
    assert running.claimed_at is not None and running.until is not None and running.created_at <= running.claimed_at < running.until
    db.execute("select penstock.dead_letter(%s, %s, 'no more')", [queue, lease])
    dead = q.find_job(made.id)
    assert dead is not None and (dead.state, dead.error, dead.report) == ("dead", "no more", {"rows": 7})
    assert dead.ended_at is not None and dead.ended_at >= dead.created_at
    assert q.discard_dead_jobs([made.id]) == 1
    assert q.find_job(made.id) is None


def test_cancel_and_pause(url: str, db: psycopg.Connection, queue: str) -> None:
    q = penstock.Queue(db, queue)
    one, two, three = (j.id for j in penstock.enqueue_many(db, queue, [penstock.NewJob(str(n)) for n in (1, 2, 3)]))
    q.pause()
    claim = "select id from penstock.claim(%s, 3)"
    assert db.execute(claim, [queue]).fetchall() == []
    q.resume()
    assert q.cancel([one, 4711]) == 1
    assert db.execute(claim, [queue]).fetchall() == [(two,), (three,)]
    assert q.cancel([one, two, three]) == 2
    with pytest.raises(penstock.NotFoundError):
        penstock.Queue(db, "missing").pause()

    async def main() -> None:
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as conn:
            a = aio.Queue(conn, queue)
            made = await aio.enqueue(conn, queue, "x")
            await a.pause()
            assert db.execute(claim, [queue]).fetchall() == []
            await a.resume()
            assert await a.cancel([made.id]) == 1

    asyncio.run(main())


def test_groups(db: psycopg.Connection, queue: str) -> None:
    q = penstock.Queue(db, queue)
    q.set_group("a", max_running=1, weight=3)
    q.set_group("b", rate=60, per=60, burst=10)
    q.set_group("*", max_running=2)
    q.hold_group("a", timedelta(hours=1), "429")
    every, a, b = q.group_policies()
    assert every == penstock.GroupPolicy("*", 2)
    assert a == penstock.GroupPolicy("a", 1, weight=3, held_until=a.held_until, reason="429")
    assert a.held_until and abs(a.held_until - datetime.now(timezone.utc) - timedelta(hours=1)) < timedelta(minutes=10)
    assert b == penstock.GroupPolicy("b", rate=60, per=timedelta(minutes=1), burst=10, tokens=10)
    assert [p.group_key for p in q.group_policies(1, "a")] == ["b"]
    penstock.enqueue_many(db, queue, [penstock.NewJob(str(n), group_key="a") for n in (1, 2)])

    def claimed() -> int:
        return len(db.execute("select id from penstock.claim(%s, 2, group_key => 'a')", [queue]).fetchall())

    assert claimed() == 0
    q.hold_group("a", 0)
    assert claimed() == 1
    q.set_group("a")
    assert claimed() == 1
    with pytest.raises(penstock.FieldError, match="max_running is 0"):
        q.set_group("b", max_running=0)
    with pytest.raises(penstock.FieldError, match="hold_for is -1"):
        q.hold_group("b", -1)
    with pytest.raises(penstock.FieldError, match="reason is 1025 bytes"):
        q.hold_group("b", 1, "x" * 1025)
    with pytest.raises(penstock.Error, match="per"):
        q.set_group("b", rate=1)
    with pytest.raises(penstock.Error, match="stands for all groups"):
        q.hold_group("*", 1)


def test_a_handler_holds_the_group_of_its_job(start: Run, db: psycopg.Connection, queue: str, caplog: pytest.LogCaptureFixture) -> None:
    q = penstock.Queue(db, queue)
    made = penstock.enqueue_many(db, queue, [penstock.NewJob(str(n), group_key="a") for n in range(50)])
    ran: list[int] = []
    refused = False

    def handler(job: penstock.Job) -> None:
        nonlocal refused
        assert job.attempt == 1
        if not refused and len(ran) == 10:  # by now some are claimed ahead
            refused = True
            raise penstock.HoldGroup(3600, "429 " + "ä" * 1024)
        ran.append(job.id)

    running = start(queue, handler, group_key="a", concurrency=1)
    until(lambda: "snoozed" in [word for word, _ in running.ended] and len(q.group_policies()) == 1 and status(db, queue)[1] == 0)
    [held] = q.group_policies()
    assert (held.group_key, held.reason) == ("a", "429 " + "ä" * 510)
    assert len(ran) == 10
    assert len([r for r in caplog.records if "holds its group 'a' for 3600 s: 429" in r.getMessage()]) == 1
    q.hold_group("a", 0)
    until(lambda: len(running.ended) >= 51 and status(db, queue) == (0, 0, 0, 0, 0))
    running.join()
    assert sorted(ran) == [m.id for m in made]
    words = [word for word, _ in running.ended]
    assert (words.count("done"), words.count("snoozed")) == (50, 1)
    assert set(words) <= {"done", "snoozed", "released"}


def test_where_no_group_can_be_held_only_the_job_waits(db: psycopg.Connection, queue: str) -> None:
    penstock.enqueue(db, queue, "alone", group_key="*")
    ran = testing.run_one(db, queue, lambda _: penstock.HoldGroup(timedelta(hours=1)), group_key="*")
    assert ran.outcome == "hold_group"
    assert penstock.Queue(db, queue).group_policies() == []
    assert status(db, queue)[2] == 1


def test_with_asyncio(url: str, db: psycopg.Connection, queue: str) -> None:
    async def main() -> None:
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as conn:
            q = aio.Queue(conn, queue)
            await q.schedule("nightly", "@daily", "x", skip_overlap=True)
            await q.pause_schedule("nightly")
            made = await q.run_schedule("nightly")
            [one] = await q.schedules()
            assert one.paused and one.skip_overlap and one.last_job == made.id
            await q.resume_schedule("nightly")
            await q.unschedule("nightly")
            assert await q.schedules() == []
            db.execute("select penstock.dead_letter(%s, lease, 'no') from penstock.claim(%s)", [queue, queue])
            [dead] = await q.dead_jobs()
            assert dead.error == "no"
            found = await q.find_job(dead.id)
            assert found is not None and found.state == "dead"
            assert await q.retry_dead_jobs([dead.id]) == 1
            assert await q.discard_dead_jobs([dead.id]) == 0
            await q.set_group("a", rate=60, per=timedelta(minutes=1))
            await q.hold_group("a", 60)
            [policy] = await q.group_policies()
            assert (policy.rate, policy.per, policy.held_until is not None) == (60, timedelta(minutes=1), True)

    asyncio.run(main())


def test_sqlite_has_none_here() -> None:
    with pytest.raises(penstock.Error, match="penstock schedule list"):
        penstock.Queue(sqlite3.connect(":memory:"), "jobs")
