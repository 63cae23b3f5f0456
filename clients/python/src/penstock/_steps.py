"""Reports of a running job, and its steps."""

from __future__ import annotations

import contextlib
import inspect
import json
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from ._model import MEMBER_STEPS, Error, FieldError, Job, text
from ._seam import Transaction, run
from ._sql import Op

T = TypeVar("T")
MAX_NAME = 100


def reporting(job: Job, value: object) -> Op[None]:
    """The statement that writes a report."""
    if job._home is None:
        raise FieldError("job", "was not claimed", "report of a job that a worker runs")
    sql, queue = job._home
    try:
        made = json.dumps(value, cls=sql.encoder, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as e:
        raise FieldError("report", f"is not JSON: {e}", "report what JSON can hold") from e
    return sql.report(queue, job.lease, made)  # type: ignore[no-any-return]


def calling(job: Job) -> Callable[[Op[None]], Any]:
    if job._call is None:
        raise FieldError("job", "is not run by a worker", "give the transaction: tx=…")
    return job._call


def call(job: Job, op: Op[None], tx: Transaction | None) -> None:
    if tx is not None:
        run(tx, op)
        return
    made = calling(job)(op)
    if inspect.iscoroutine(made):
        made.close()
        raise TypeError("the worker is one with asyncio: await report and step of penstock.aio")


def results(job: Job, name: str) -> dict[str, Any]:
    """The results of the job's steps by name: of earlier attempts, and of this one."""
    if text("step", name, MAX_NAME) is None:
        raise FieldError("step", "has no name", "give each step of a job a different one")
    if job._steps is None:
        kept = job.report.get(MEMBER_STEPS) if isinstance(job.report, dict) else None
        job._steps = dict(kept or {})
    return job._steps


@contextlib.contextmanager
def naming(name: str) -> Iterator[None]:
    """Says in the error of a result that could not be written which step it is of."""
    try:
        yield
    except Error as e:
        e.args = (f"the result of step {name!r}: {e}",)
        raise
    except Exception as e:
        raise Error(f"the result of step {name!r}: {e}") from e


def report(job: Job, value: object, *, tx: Transaction | None = None) -> None:
    """Replaces the report of a job that runs: its progress, or its result. The results of its steps stay. The next attempt has it as `job.report`. It is kept
    as JSON of up to 64 KiB, and is a dict if the job has steps. With `tx` it takes effect if that transaction commits. Raises LeaseLostError."""
    call(job, reporting(job, value), tx)


def step(job: Job, name: str, fn: Callable[[], T], *, tx: Transaction | None = None) -> T:
    """Runs a part of a job that is not to run again once it has returned. A later attempt gets the result, which is kept with the job as JSON. An error is not
    kept. The name is different for each step of a job.

    If the process dies after fn has returned, and before its result is written, fn runs again. With `tx` the result is written in that transaction, and the
    step has run if it commits: what fn writes with `tx` takes effect once."""
    done = results(job, name)
    if name in done:
        return done[name]  # type: ignore[no-any-return]
    result = fn()
    with naming(name):
        call(job, reporting(job, {MEMBER_STEPS: {name: result}}), tx)
    if tx is None:
        done[name] = result
    return result
