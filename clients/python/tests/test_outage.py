"""What a worker says of an outage."""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Sequence
from typing import Any

import psycopg
import pytest

import penstock

from .conftest import until
from .running import Run


def test_an_outage_is_a_line_when_it_begins_and_one_when_it_is_over(
    request: pytest.FixtureRequest, start: Run, db: psycopg.Connection, queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    away, calls = False, 0

    def execute(text: str, values: Sequence[Any]) -> Sequence[Sequence[Any]]:
        nonlocal calls
        if away:
            calls += 1
            raise ConnectionError("away")
        return psycopg.RawCursor(db).execute(text.encode(), values).fetchall()

    async def execute_async(text: str, values: Sequence[Any]) -> Sequence[Sequence[Any]]:
        return execute(text, values)

    def handler(job: penstock.Job) -> None:
        nonlocal away, calls
        if job.text == "last":
            return
        away, calls = True, 0
        until(lambda: calls > 3)
        away = False
        if job.text == "error":
            raise ValueError

    def lines() -> list[str]:
        return [r.getMessage() for r in caplog.records if "in attempt" not in r.getMessage()]

    def over(jobs: int, said: int) -> bool:
        return len(running.ended) == jobs and len(lines()) == said

    caplog.set_level(logging.INFO, logger="penstock")
    chosen = execute_async if request.node.callspec.params["start"] == "asyncio" else execute
    running = start(queue, handler, db=lambda: chosen, concurrency=1)
    for n, text in enumerate(("done", "error", "last")):
        penstock.enqueue(db, queue, text)
        until(functools.partial(over, n + 1, min(3 + 2 * n, 5)))
    running.join()
    outage = r"cannot .*: away\n.* goes on, \d+\.\d s later\n"
    assert re.fullmatch(rf".* has started: .*, concurrency 1\n(?:.*{outage}){{2}}.* stops: 0 handlers run.*\n", "".join(line + "\n" for line in lines()))
