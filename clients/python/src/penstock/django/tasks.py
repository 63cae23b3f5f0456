"""A backend for Django's tasks, those of Django 6 or of the package django-tasks: TASKS = {"default": {"BACKEND": "penstock.django.tasks.PenstockBackend"}}.

`enqueue` writes in the transaction of `atomic()`, and outside of one at once. `manage.py penstock_work QUEUE` runs the tasks of a queue."""

from __future__ import annotations

import builtins
import inspect
import json
import math
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

import django
from django.db import Error as DatabaseError
from django.db import connections
from django.utils import timezone
from django.utils.module_loading import import_string

from .. import _api
from .._app import Backoff, failed, fitting, running
from .._desk import Done, Outage, in_time, log, reason_of, unbegun
from .._model import HEADER_KIND, MEMBER_STEPS, DeadLetter, FieldError, Job, Outcome, Retry, kind_text
from .._sql import quoted
from .._worker import Handler
from . import setting

if TYPE_CHECKING:
    from ._typed import Decorator

PACKAGE = "django.tasks" if django.VERSION >= (6, 0) else "django_tasks"
try:
    base: Any = import_module(f"{PACKAGE}.base")
except ModuleNotFoundError as e:
    if e.name != PACKAGE:
        raise
    raise ModuleNotFoundError(f"Django {django.__version__} has no tasks: pip install django-tasks, or use Django 6", name=e.name) from None
exceptions: Any = import_module(f"{PACKAGE}.exceptions")
signals: Any = import_module(f"{PACKAGE}.signals")
normalize_json: Any = import_module("django.utils.json" if django.VERSION >= (6, 0) else "django_tasks.utils").normalize_json
BaseTaskBackend: Any = import_module(f"{PACKAGE}.backends.base").BaseTaskBackend
BaseTask: Any = base.Task
Status: Any = base.TaskResultStatus
# Django's decorator, with types that know the fields of a job.
task: Decorator = import_module(PACKAGE).task
InvalidTask: Any = getattr(exceptions, "InvalidTask", None) or exceptions.InvalidTaskError

OF_THE_JOB = ("key", "group_key", "dedup_key", "unique_key", "on_conflict", "debounce_max", "timeout", "deadline", "holds", "waits_for", "on_dead")
OURS = (*OF_THE_JOB, "max_attempts", "backoff")
MAX_REPORT = 65536
"""Bytes that a queue keeps of a job's arguments and its result."""
NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
MAX_ATTEMPTS = 25
"""That of a queue for which none was set."""


@dataclass(frozen=True, kw_only=True)
class PenstockTask(BaseTask):
    """A task with fields of Penstock's, for `@task(max_attempts=5)` and `welcome.using(key="ann")`."""

    key: str | None = None
    group_key: str = ""
    dedup_key: str | None = None
    unique_key: str | None = None
    on_conflict: str | None = None
    debounce_max: timedelta | None = None
    timeout: timedelta | None = None
    deadline: datetime | timedelta | None = None
    holds: int | None = None
    waits_for: Sequence[int] | None = None
    on_dead: str | None = None
    max_attempts: int | None = None
    backoff: Backoff | None = None

    def using(self, **changes: Any) -> Any:
        ours = {name: changes.pop(name) for name in OURS if name in changes}
        return replace(BaseTask.using(self, **changes), **ours)


class PenstockBackend(BaseTaskBackend):
    task_class = PenstockTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def validate_task(self, task: Any) -> None:
        super().validate_task(task)
        try:
            kind_text(task.module_path)
        except FieldError as e:
            raise InvalidTask(f"The name {task.module_path} is the kind of the task's jobs: {e}") from e

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        self.validate_task(task)
        parameters = list(inspect.signature(task.func).parameters.values())[task.takes_context :]
        fitting(task.module_path, inspect.Signature(parameters), args, kwargs)
        now = timezone.now()
        result = result_of(task, "", Status.READY, now, args, kwargs)
        due = task.run_after
        fields: dict[str, Any] = {name: getattr(task, name, "" if name == "group_key" else None) for name in OF_THE_JOB}
        made = _api.enqueue(
            connections[setting("DATABASE")],
            task.queue_name,
            {"args": result.args, "kwargs": result.kwargs, "enqueued_at": now.isoformat()},
            kind=task.module_path,
            priority=priority_of(task.priority),
            not_before=timezone.make_aware(due) if due is not None and timezone.is_naive(due) else due,
            schema=setting("SCHEMA"),
            **fields,
        )
        change(result, id=f"{task.queue_name}:{made.id}")
        signals.task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> Any:
        """Finds a task wherever it is. One that is done is there if its queue keeps those, by keep_done in settings.PENSTOCK."""
        queue, _, number = str(result_id).rpartition(":")
        if not (queue and number.isascii() and number.isdigit() and int(number) < 1 << 63):
            raise exceptions.TaskResultDoesNotExist(result_id)
        found = found_job(queue, int(number))
        task: Any = task_of(found.kind or "") if found else None
        if not found or task is None:
            kept = f"a task that has succeeded is found if settings.PENSTOCK['QUEUES'][{queue!r}] has keep_done"
            raise exceptions.TaskResultDoesNotExist(result_id if found else f"{result_id} ({kept})")
        if found.due or queue != task.queue_name:
            task = task.using(queue_name=queue, run_after=found.due)
        status = {"ready": Status.READY, "running": Status.RUNNING, "dead": Status.FAILED, "done": Status.SUCCESSFUL}[found.state]
        enqueued = datetime.fromisoformat(found.said["enqueued_at"]) if "enqueued_at" in found.said else found.created_at
        result = result_of(task, result_id, status, enqueued, found.said.get("args", []), found.said.get("kwargs", {}))
        times = [datetime.fromisoformat(f["at"]) for f in found.failures] + ([found.began] if found.began else [])
        change(
            result,
            started_at=min(times, default=None),
            last_attempted_at=max(times, default=None),
            finished_at=found.ended,
            errors=[error_of(f["error"]) for f in found.failures],
            worker_ids=[found.worker] * found.attempt,
            _return_value=found.said.get("return_value") if found.state == "done" else None,
        )
        return result


def priority_of(theirs: int) -> int:
    """Django's tasks have -100 to 100, the highest first, and jobs 15 to -16. No task with a priority runs among those without one."""
    return -math.ceil(theirs * 16 / 100) if theirs > 0 else math.ceil(-theirs * 15 / 100)


def result_of(task: Any, id: str, status: Any, enqueued_at: datetime, args: Any, kwargs: Any) -> Any:
    return base.TaskResult(
        task=task, id=id, status=status, enqueued_at=enqueued_at, started_at=None, last_attempted_at=None, finished_at=None, args=list(args),
        kwargs=dict(kwargs), backend=task.backend, errors=[], worker_ids=[],
    )  # fmt: skip


def change(result: Any, **values: Any) -> None:
    for name, value in values.items():
        object.__setattr__(result, name, value)


def error_of(text: str) -> Any:
    """Of an attempt a job keeps the text, which begins with the name of the exception's class."""
    name = text.partition(":")[0].partition(" ")[0]
    return base.TaskError(exception_class_path=f"builtins.{name}" if hasattr(builtins, name) else name, traceback=text)


def task_of(kind: str) -> Any:
    """The task of a kind, or None."""
    try:
        found = import_string(kind)
    except ImportError:
        return None
    return found if isinstance(found, BaseTask) else None


FIND = """
    with q as (select id from {schema}._queue where name = %(queue)s), found as (
        select t.headers, t.payload, t.attempt, t.created_at, t.failures, 'ready' as state, '' as worker, null::timestamptz as due, null::timestamptz as at
          from generate_series(-16, 15) p, {own} t where t.group_key = '' and t.priority = p and t.seq = %(id)s and t.id is null
        union all select t.headers, t.payload, t.attempt, t.created_at, t.failures, 'ready', '', null, null from {own} t where t.id = %(id)s
        union all select s.headers, s.payload, s.attempt, s.created_at, s.failures, 'ready', '', case when isfinite(s.due) then s.due end, null
          from {schema}._scheduled s where s.queue = (select id from q) and s.id = %(id)s
        union all select l.headers, l.payload, l.attempt, l.created_at, l.failures, 'running', l.worker, null, l.claimed_at
          from {schema}._lease l where l.queue = (select id from q) and l.id = %(id)s
        union all select j.headers, j.payload, j.attempt, j.created_at, j.failures, 'running', l.worker, null, l.claimed_at
          from {schema}._lease l cross join lateral unnest(l.jobs) j
         where l.queue = (select id from q) and j.id = %(id)s and get_bit(l.done, (j.lease >> 1 & 255)::int) = 0
        union all select d.headers, d.payload, d.attempt, d.created_at, d.failures, 'dead', '', null, d.died_at
          from {schema}._dead_job d where d.queue = (select id from q) and d.id = %(id)s)
    select f.headers->>'{kind}', f.payload, f.attempt, f.created_at, f.failures::text, f.state, f.worker, f.due, f.at from found f limit 1"""
"""A job that is ready and was not tried yet is found by its number within its priority: the ring has no other index."""

DONE = """
    select d.report->>'task', d.report::text, d.attempt, d.created_at, d.failures::text, 'done', d.worker, d.claimed_at, d.finished_at
      from jsonb_to_recordset({schema}._done_of(%(queue)s, 1, null, array[%(id)s]::bigint[])->'jobs')
           as d(report jsonb, attempt int, created_at timestamptz, failures jsonb, worker text, claimed_at timestamptz, finished_at timestamptz)"""


@dataclass
class Found:
    kind: str | None
    said: dict[str, Any]
    attempt: int
    created_at: datetime
    failures: list[dict[str, Any]]
    state: str
    worker: str
    due: datetime | None
    began: datetime | None
    ended: datetime | None


def found_job(queue: str, id: int) -> Found | None:
    """A job wherever it is; what is done is in the history, if the queue keeps one."""
    names = {"schema": quoted(setting("SCHEMA")), "own": f"{quoted(setting('SCHEMA'))}.{quoted(queue)}", "kind": HEADER_KIND}
    values = {"queue": queue, "id": id}
    with connections[setting("DATABASE")].cursor() as cursor:
        cursor.execute("select 1 from {schema}._queue where name = %(queue)s".format(**names), values)
        if not cursor.fetchone():
            return None
        cursor.execute(FIND.format(**names), values)
        row = cursor.fetchone()
        if not row:
            cursor.execute(DONE.format(**names), values)
            row = cursor.fetchone()
        if not row:
            return None
    kind, said, attempt, created_at, failures, state, worker, due, at = row
    try:
        content = json.loads(bytes(said) if isinstance(said, memoryview) else said or "{}")
    except ValueError:
        content = {}
    began, ended = (at, None) if state == "running" else (due, at) if state == "done" else (None, at)
    return Found(
        kind, content if isinstance(content, dict) else {}, attempt, created_at, failures_of(failures), state, worker, None if state == "done" else due,
        began, ended,
    )  # fmt: skip


def failures_of(text: str | None) -> list[dict[str, Any]]:
    return [f for f in json.loads(text or "[]") if isinstance(f, dict) and "at" in f]


# In a worker


class Handlers(Mapping[str, Handler]):
    """The tasks by their names, which are kinds, and what else handles a queue's jobs."""

    also = "Django's tasks"

    def __init__(self, queue: str, worker: str, otherwise: Handler | Mapping[str, Handler] | None):
        self.queue, self.worker, self.otherwise = queue, worker, otherwise
        self.outage, self.lock, self.read = Outage(queue), threading.Lock(), (0, False)

    def limits(self) -> tuple[int, bool]:
        """How many attempts the queue allows, and whether it keeps what is done."""
        with self.lock:
            self.read = self.read if self.read[0] else self._limits()
        return self.read

    def _limits(self) -> tuple[int, bool]:
        given, table = setting("QUEUES").get(self.queue, {}), f"{quoted(setting('SCHEMA'))}._queue"
        row: Any = given.get("max_attempts", MAX_ATTEMPTS), given.get("keep_done") is not None
        with connections[setting("DATABASE")].cursor() as cursor:
            cursor.execute("select has_table_privilege(%s, 'select')", [table])
            if cursor.fetchone()[0]:  # otherwise the role may only work, and the settings tell what migrate has made of them
                cursor.execute(f"select max_attempts, keep_done is not null from {table} where name = %s", [self.queue])
                row = cursor.fetchone() or row
        return int(row[0]), bool(row[1])

    def __getitem__(self, kind: str) -> Handler:
        if isinstance(self.otherwise, Mapping) and kind in self.otherwise:
            return self.otherwise[kind]
        if (task := task_of(kind)) is not None:
            return lambda job: self.run(task, job)
        if callable(self.otherwise):
            return self.otherwise
        raise KeyError(kind)

    def __iter__(self) -> Iterator[str]:
        return iter(self.otherwise if isinstance(self.otherwise, Mapping) else ("",))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def run(self, task: Any, job: Job) -> Done | None:
        backend = type(task.get_backend())
        try:
            keeps = self.limits()[1]
        except DatabaseError as e:
            raise unbegun(self.outage, e) from e
        self.outage.works("begin the transactions of jobs")
        try:
            said = job.json()
            args, kwargs = said["args"], said["kwargs"]
            enqueued = datetime.fromisoformat(said["enqueued_at"]) if "enqueued_at" in said else job.created_at
            result = result_of(task.using(queue_name=self.queue), f"{self.queue}:{job.id}", Status.RUNNING, enqueued, args, kwargs)
        except (ValueError, TypeError, KeyError) as e:
            raise DeadLetter(f"reading the payload: {type(e).__name__}: {e}") from e
        now = timezone.now()
        change(result, started_at=now, last_attempted_at=now, worker_ids=[self.worker] * job.attempt)
        signals.task_started.send(backend, task_result=result)
        error: BaseException | None = None
        token = running.set(job)
        try:
            value = task.call(*([base.TaskContext(task_result=result)] if task.takes_context else []), *args, **kwargs)
            if isinstance(value, Outcome):
                raise value
            value = normalize_json(value)
        except BaseException as e:
            error = e
        finally:
            running.reset(token)
        if error is not None:  # outside of except: within it Django's log of the signal has the traceback, which the worker's log has
            self.ended(task, job, error, result)
        change(result, status=Status.SUCCESSFUL, finished_at=timezone.now(), _return_value=value)
        signals.task_finished.send_robust(backend, task_result=result)  # the task is done, whatever a receiver raises
        if not keeps:
            return None
        return self.done(job, {"task": job.kind, "args": args, "kwargs": kwargs, "enqueued_at": enqueued.isoformat(), "return_value": value})

    def ended(self, task: Any, job: Job, e: BaseException, result: Any) -> NoReturn:
        how = failed(e, job, getattr(task, "max_attempts", None), getattr(task, "backoff", None))
        given = job.headers.get("penstock-max-attempts", "")
        most = int(given) if re.fullmatch("[1-9][0-9]{0,8}", given) else self.limits()[0]
        if isinstance(how or e, DeadLetter) or (job.attempt >= most and (isinstance(e, Retry) or not isinstance(e, Outcome))):
            change(result, status=Status.FAILED, finished_at=timezone.now(), errors=[*result.errors, error_of(reason_of(in_time(job, e)))])
            signals.task_finished.send_robust(type(task.get_backend()), task_result=result)
        if how is None:
            raise e
        raise how from e

    def done(self, job: Job, report: dict[str, Any]) -> Done | None:
        """The end of a job with its result, for get_result. One that the database would refuse is left out: the job is done all the same."""
        before = job.report.get(MEMBER_STEPS) if isinstance(job.report, dict) else None
        try:
            made = json.dumps(report, ensure_ascii=False, allow_nan=False)
            size = len(made.encode()) + len(json.dumps(job._steps or before or "", ensure_ascii=False).encode())
            problem = f"it has {size} bytes with the arguments and steps, the limit is {MAX_REPORT}" if size > MAX_REPORT else ""
            problem = "it has a NUL" if NUL.search(made) else problem
        except ValueError as e:  # a number that JSON does not have, or half of a character
            problem = str(e)
        if not problem:
            return Done(made)
        log.warning("the result of job %d, kind %s, of queue %s is not kept: %s", job.id, job.kind, self.queue, problem)
        return None
