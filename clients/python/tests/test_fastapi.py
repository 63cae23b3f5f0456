"""examples/fastapi, run by uvicorn: with the worker in the server, and with one by itself."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator

import psycopg
import pytest

from .conftest import ROOT, rows, status
from .conftest import penstock as program

MAIN = ROOT / "examples/fastapi/main.py"


@pytest.fixture
def shop(empty: Callable[[], str]) -> str:
    """The database of which the example's first lines speak."""
    url, [table] = empty(), [line for line in MAIN.read_text().splitlines() if "psql -c" in line]
    for verb in (["migrate"], ["outbox", "create", "orders"], ["queue", "create", "emails"]):
        assert f"penstock {' '.join(verb)}" in MAIN.read_text()
        program(*verb, "--database-url", url)
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute(table.split("'")[1].encode())
    return url


@contextlib.contextmanager
def running(*args: str, **env: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, *args], cwd=MAIN.parent, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **env}, stdout=subprocess.PIPE, text=True
    ) as made:
        try:
            yield made
        finally:
            made.send_signal(signal.SIGTERM)
            assert made.wait(60) in (0, -signal.SIGTERM)


def served(url: str, **env: str) -> contextlib.AbstractContextManager[tuple[subprocess.Popen[str], str]]:
    @contextlib.contextmanager
    def start() -> Iterator[tuple[subprocess.Popen[str], str]]:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            free.listen()
            os.set_inheritable(free.fileno(), True)
            with subprocess.Popen(
                [sys.executable, "-m", "uvicorn", "main:api", "--fd", str(free.fileno())],
                cwd=MAIN.parent,
                env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PENSTOCK_DATABASE_URL": url, **env},
                pass_fds=[free.fileno()],
                stdout=subprocess.PIPE,
                text=True,
            ) as made:
                try:
                    yield made, f"http://127.0.0.1:{free.getsockname()[1]}/orders"
                finally:
                    made.send_signal(signal.SIGTERM)
                    made.wait(60)

    return start()


def order(to: str, **body: object) -> int:
    request = urllib.request.Request(to, json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return int(json.load(answer)["id"])


def printed(of: subprocess.Popen[str], text: str) -> None:
    assert of.stdout
    assert any(line == f"{text}\n" for line in iter(of.stdout.readline, ""))


def test_the_worker_in_the_server(shop: str) -> None:
    with served(shop) as (server, to):
        id_ = order(to, customer="ann", total="9.50")
        printed(server, f"mail to ann about order {id_}")
        with psycopg.connect(shop, autocommit=True) as conn:
            assert rows(conn, "select key, topic, convert_from(payload, 'UTF8')::jsonb from penstock.orders") == [
                ("ann", "order.placed", {"order": id_, "customer": "ann", "total": "9.50"})
            ]
            conn.execute("alter table penstock.orders rename to gone")
        with pytest.raises(urllib.error.HTTPError, match="500"):
            order(to, customer="bob", total="1")
    with psycopg.connect(shop, autocommit=True) as conn:
        assert rows(conn, "select customer from shop_order") == [("ann",)], "what fails writes nothing"
        assert status(conn, "emails") == (0, 0, 0, 0, 0), "the worker has drained"


def test_a_worker_by_itself(shop: str) -> None:
    with served(shop, SEPARATE_WORKER="1") as (_, to):
        id_ = order(to, customer="ann", total="9.50")
        with psycopg.connect(shop, autocommit=True) as conn:
            assert status(conn, "emails") == (1, 0, 0, 0, 0)
        with running("main.py", PENSTOCK_DATABASE_URL=shop) as worker:
            printed(worker, f"mail to ann about order {id_}")


def test_a_worker_that_fails_ends_the_server(empty: Callable[[], str]) -> None:
    with served(empty()) as (server, _):
        assert server.stdout and "the worker has failed: " in server.stdout.read()
