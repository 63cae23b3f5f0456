"""Producing in the application's own SQLite file, which `penstock` works on."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy.orm import Session

import penstock

from .conftest import PENSTOCK
from .conftest import penstock as program


@pytest.fixture(scope="module")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("sqlite") / "empty.db"
    url = f"sqlite:{file}"
    program("migrate", "--database-url", url)
    for kind, name in (("outbox", "Orders"), ("queue", "emails"), ("inbox", "billing")):
        program(kind, "create", name, "--database-url", url)
    return file


@pytest.fixture
def file(migrated: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "shop.db"
    with sqlite3.connect(migrated) as conn, sqlite3.connect(copy) as to:
        conn.backup(to)
    conn.close()
    return copy


@pytest.fixture
def conn(file: Path) -> Iterator[sqlite3.Connection]:
    made = sqlite3.connect(file)
    made.row_factory = sqlite3.Row
    yield made
    made.close()


def worked(file: Path, queue: str, n: int) -> list[str]:
    """What `penstock work` gives a command, until there are n."""
    args = [PENSTOCK, "work", queue, "--exec", "cat", "--concurrency", "1", "--database-url", f"sqlite:{file}"]
    with subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as p:
        assert p.stdout
        seen = ""
        while len(seen.split("|")) <= n:
            seen += p.stdout.read(1)
        p.terminate()
    return seen.split("|")[:n]


def test_publish(conn: sqlite3.Connection, file: Path) -> None:
    penstock.publish(conn, "Orders", b"\x00", key="ann", topic="t", headers={"a": "b"}, id="i")
    penstock.publish_many(conn, "Orders", [penstock.Message(str(n)) for n in range(400)])
    conn.commit()
    penstock.publish(conn, "Orders", "lost")
    conn.rollback()
    table = penstock_table(conn, "penstock_outbox_Orders")
    assert [tuple(r) for r in conn.execute(f'select id, key, topic, headers, payload from "{table}" where seq = 1')] == [
        ("i", "ann", "t", '{"a": "b"}', b"\x00")
    ]
    assert conn.execute(f'select count(*) from "{table}"').fetchone()[0] == 401


def penstock_table(conn: sqlite3.Connection, prefix: str) -> Any:
    return conn.execute("select name from sqlite_master where type = 'table' and name like ? || '%'", [prefix]).fetchone()[0]


def test_enqueue(conn: sqlite3.Connection, file: Path) -> None:
    with conn:
        made = penstock.enqueue_many(conn, "emails", [penstock.NewJob(f"{n}|") for n in range(200)])
        assert [m.id for m in made] == list(range(1, 201)) and not any(m.deduplicated for m in made)
        penstock.enqueue(conn, "emails", "later|", not_before=datetime.now(timezone.utc) + timedelta(hours=1))
        penstock.enqueue(conn, "emails", "first|", priority=-1, not_before=datetime.now(timezone.utc) - timedelta(hours=1))
    assert worked(file, "emails", 201) == ["first", *map(str, range(200))]


def test_duplicates(conn: sqlite3.Connection, file: Path) -> None:
    with conn:
        first = penstock.enqueue(conn, "emails", "a|", dedup_key="a")
    with conn:
        made = penstock.enqueue_many(conn, "emails", [penstock.NewJob(f"{n}|", dedup_key=d) for n, d in enumerate(["a", "b", None, "b"])])
    assert [m.deduplicated for m in made] == [True, False, False, True]
    assert made[0].id == first.id and made[3].id == made[1].id
    assert worked(file, "emails", 3) == ["a", "1", "2"]
    again = json.loads(program("enqueue", "emails", "x", "--dedup-key", "b", "--json", "--database-url", f"sqlite:{file}"))
    assert (again["ids"], again["deduplicated"]) == ([made[1].id], [True]), "Go knows it, too"


def test_inbox(conn: sqlite3.Connection) -> None:
    with conn:
        assert penstock.inbox.first(conn, "billing", "m1")
        assert not penstock.inbox.first(conn, "billing", "m1")
        assert penstock.inbox.first_of(conn, "billing", ["m1", "m3", "m2", "m3"]) == ["m3", "m2"]
    assert penstock.inbox.first(conn, "billing", "m4")
    conn.rollback()
    assert penstock.inbox.first(conn, "billing", "m4")


def test_sqlalchemy(file: Path) -> None:
    engine = sqlalchemy.create_engine(f"sqlite:///{file}")
    with Session(engine) as session, session.begin(), penstock.Buffer(session) as buffer:
        buffer.publish("Orders", "x")
        assert penstock.enqueue(session, "emails", "job|").id == 1
        assert penstock.inbox.first(session, "billing", "m1")
    with engine.connect() as conn:
        assert not penstock.inbox.first(conn, "billing", "m1")
    engine.dispose()
    assert worked(file, "emails", 1) == ["job"]


def test_session_rollback_forgets(file: Path) -> None:
    engine = sqlalchemy.create_engine(f"sqlite:///{file}")
    with Session(engine) as session, penstock.Buffer(session) as buffer:
        buffer.enqueue("emails", "never")
        session.rollback()
        buffer.enqueue("emails", "kept|")
        session.commit()
        session.execute(sqlalchemy.text("select 1"))
        buffer.enqueue("emails", "never")
        session.rollback()
        session.commit()
    engine.dispose()
    assert worked(file, "emails", 1) == ["kept"]


def test_errors(conn: sqlite3.Connection, tmp_path: Path) -> None:
    assert penstock.check(conn) >= 6
    for call in (
        lambda c: penstock.publish(c, "missing", "x"),
        lambda c: penstock.enqueue(c, "missing", "x"),
        lambda c: penstock.enqueue(c, "missing", "x", dedup_key="d"),
        lambda c: penstock.inbox.first(c, "missing", "x"),
        lambda c: penstock.publish(sqlite3.connect(tmp_path / "none.db"), "orders", "x"),
    ):
        with pytest.raises(penstock.NotFoundError):
            call(conn)
    with pytest.raises(penstock.FieldError):
        penstock.enqueue(conn, "emails", "x", priority=99)
