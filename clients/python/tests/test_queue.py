"""Schedules and dead letters of a queue."""

from __future__ import annotations

import asyncio
import sqlite3
from datetime import datetime, timezone

import psycopg
import pytest

import penstock
from penstock import aio


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
            assert await q.retry_dead_jobs([dead.id]) == 1
            assert await q.discard_dead_jobs([dead.id]) == 0

    asyncio.run(main())


def test_sqlite_has_none_here() -> None:
    with pytest.raises(penstock.Error, match="penstock schedule list"):
        penstock.Queue(sqlite3.connect(":memory:"), "jobs")
