"""One database for a run, made by `penstock migrate`, and names of its own for each test."""

from __future__ import annotations

import io
import itertools
import os
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from .running import Run, Running

ROOT = Path(__file__).resolve().parents[3]
PENSTOCK = os.environ.get("PENSTOCK_BIN", str(ROOT / "bin" / "penstock"))
NAMES = itertools.count(1)


def penstock(*args: str) -> str:
    return subprocess.run([PENSTOCK, *args], check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="session")
def server() -> str:
    url = os.environ.get("PENSTOCK_TEST_POSTGRES")
    if not url:
        pytest.fail("set PENSTOCK_TEST_POSTGRES, as bin/withservers -only postgres -- … does")
    return url


@pytest.fixture(scope="session")
def empty(server: str) -> Iterator[Callable[..., str]]:
    """Makes databases without a schema of Penstock's."""
    made: list[str] = []

    def make(options: str = "") -> str:
        name = f"py_{uuid.uuid4().hex[:12]}"
        with psycopg.connect(server, autocommit=True) as conn:
            conn.execute(f'create database "{name}" {options}'.encode())
        made.append(name)
        parts = urlsplit(server)
        return urlunsplit(parts._replace(path="/" + name))

    yield make
    with psycopg.connect(server, autocommit=True) as conn:
        for name in made:
            conn.execute(f'drop database if exists "{name}" with (force)')


@pytest.fixture(scope="session")
def url(empty: Callable[..., str]) -> str:
    made = empty()
    penstock("migrate", "--database-url", made)
    return made


@pytest.fixture
def db(url: str) -> Iterator[psycopg.Connection]:
    """A connection that sees what has been committed, and makes queues."""
    with psycopg.connect(url, autocommit=True) as conn:
        yield conn


@pytest.fixture
def queue(db: psycopg.Connection) -> str:
    name = f"q{next(NAMES)}"
    db.execute("select penstock.create_queue(%s)", [name])
    return name


@pytest.fixture
def outbox(db: psycopg.Connection) -> str:
    name = f"o{next(NAMES)}"
    db.execute("select penstock.create_outbox(%s)", [name])
    return name


@pytest.fixture
def consumer(db: psycopg.Connection) -> str:
    name = f"c{next(NAMES)}"
    db.execute("select penstock.create_inbox(%s)", [name])
    return name


def rows(conn: psycopg.Connection, text: str, *values: object) -> list[tuple[object, ...]]:
    return conn.execute(text.encode(), values).fetchall()


def published(conn: psycopg.Connection, outbox: str) -> list[tuple[object, ...]]:
    return rows(conn, f"select key, topic, headers, payload from penstock.{outbox} order by seq")


def until(condition: Callable[[], object], seconds: float = 60) -> object:
    """Waits for a condition; the deadline only ends what has failed already."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > end:
            raise AssertionError("it never came")
        time.sleep(0.01)
    return found


@pytest.fixture(params=["threads", "asyncio"])
def start(request: pytest.FixtureRequest, url: str) -> Iterator[Run]:
    """Runs workers, of each kind."""
    made: list[Running] = []

    def make(queue: str, handler: Any, *, db: Any = None, **options: Any) -> Running:
        made.append(Running(request.param, db or url, queue, handler, False, options))
        return made[-1]

    yield make
    for r in made:
        r.join()
        if r.error:
            raise r.error


def status(db: psycopg.Connection, queue: str) -> tuple[object, ...]:
    """ready, running, delayed, waiting, dead"""
    return rows(db, "select ready, running, delayed, waiting, dead from penstock.queue_status(%s)", queue)[0]


def seconds_until_due(db: psycopg.Connection, queue: str) -> list[float]:
    """Of the delayed jobs of a queue, the soonest first."""
    text = "select extract(epoch from due - now())::float from penstock._scheduled s join penstock._queue q on q.id = s.queue where q.name = %s order by 1"
    return [row[0] for row in rows(db, text, queue)]  # type: ignore[misc]


def manage(*args: str) -> str:
    from django.core.management import call_command

    out = io.StringIO()
    call_command(*args, stdout=out)
    return out.getvalue()


@pytest.fixture(scope="session")
def project(empty: Callable[[], str]) -> str:
    """The URL of the database of a Django project, which `manage.py migrate` has made."""
    url = empty()
    os.environ["DJANGO_TEST_URL"] = url
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.django_app.settings"
    import django

    django.setup()
    manage("migrate", "--verbosity", "0")
    return url
