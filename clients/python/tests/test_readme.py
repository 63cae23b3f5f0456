"""What the README says, done: its Python as it stands, and its five commands from an empty folder with the wheel that was built."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

import penstock
from penstock import aio

from .conftest import PENSTOCK, status
from .conftest import penstock as program

HERE = Path(__file__).resolve().parents[1]
README = (HERE / "README.md").read_text()
BLOCKS: list[tuple[str, str]] = re.findall(r"```(\w+)\n(.*?)```", README, re.DOTALL)


def test_python(url: str, db: psycopg.Connection) -> None:
    db.execute("create table if not exists shop_order (customer text, total int)")
    for statement in ("create_outbox('orders')", "create_queue('emails')", "create_inbox('billing')"):
        db.execute(f"select penstock.{statement}")
    names: dict[str, Any] = {"url": url, "night": lambda: False, "too_many_mails": lambda: False, "mail_server_is_busy": lambda _: False, "s3": None}
    blocks = [code for language, code in BLOCKS if language == "python" and not code.startswith("# FastAPI")]
    assert len(blocks) == 9
    for code in blocks:
        exec(compile(code, "README.md", "exec"), names)
    assert names["opened"]({}, b"inline") == b"inline"
    assert len(db.execute("select from penstock.orders").fetchall()) == 2502
    for row in db.execute("select id, key, group_key, priority, attempt, created_at, payload from penstock.claim('emails', 10)").fetchall():
        job = penstock.Job(row[0], row[1], row[2], row[3], row[4], row[5], {}, b'{"to": "ann"}', 1, row[5])
        names["send"](job)
        names["book"](db, job)


def test_fastapi(url: str, db: psycopg.Connection, queue: str) -> None:
    """The application's lifespan is the worker's: it does jobs, and has drained in the end."""
    [code] = [code for language, code in BLOCKS if language == "python" and code.startswith("# FastAPI")]
    done = asyncio.Event()

    async def send_async(_job: penstock.Job) -> None:
        done.set()

    async def main() -> None:
        async with names["api"].router.lifespan_context(names["api"]):
            await done.wait()

    names: dict[str, Any] = {"url": url, "asyncio": asyncio, "aio": aio, "send_async": send_async}
    exec(compile(code.replace('"emails"', repr(queue)), "README.md", "exec"), names)
    penstock.enqueue(db, queue, "x")
    asyncio.run(main())
    assert status(db, queue) == (0, 0, 0, 0, 0)


def test_types(tmp_path: Path) -> None:
    """All of it passes mypy --strict, the first commands too."""
    code = "".join(code for language, code in BLOCKS if language == "python")
    commands = re.findall(r"python -c '(.*)'", next(code for language, code in BLOCKS if language == "sh"))
    assert len(commands) == 2
    for n, command in enumerate(commands):
        (tmp_path / f"command{n}.py").write_text(command)
    names = 'from typing import Any\n\ns3: Any = None\nurl = ""\n\n\ndef night() -> bool:\n    return False\n\n\ntoo_many_mails = night\n\n\n'
    names += "def mail_server_is_busy(group_key: str) -> bool:\n    return False\n\n\n"
    (tmp_path / "readme.py").write_text(names + code)
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "--follow-imports=silent", "readme.py", "command0.py", "command1.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout


@pytest.mark.skipif(not list(HERE.glob("dist/*.whl")), reason="there is no wheel: test.sh builds one")
def test_five_commands(empty: Callable[[], str], tmp_path: Path) -> None:
    wheel = next(HERE.glob("dist/*.whl"))
    (tmp_path / wheel.name).write_bytes(wheel.read_bytes())
    url = empty()
    commands = next(code for language, code in BLOCKS if language == "sh").replace("postgres://postgres@localhost/shop", url)
    assert wheel.name in commands and len(commands.strip().splitlines()) == 5
    path = f"{Path(PENSTOCK).parent}{os.pathsep}{os.environ['PATH']}"
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PENSTOCK_DATABASE_URL")} | {"PATH": path}
    with subprocess.Popen(["bash", "-euc", commands], cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True, start_new_session=True) as shell:
        assert shell.stdout
        lines = iter(shell.stdout.readline, "")
        assert any(line == "mail to ann\n" for line in lines)
        os.killpg(shell.pid, signal.SIGTERM)
    with psycopg.connect(url) as conn:
        assert conn.execute("select ready + running from penstock.queue_status('emails')").fetchone() == (0,)


def test_the_program_is_there() -> None:
    assert "migrate" in program("--help")
