"""The backend for Django's tasks: those of Django 6, or of django-tasks."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
import uuid
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

import penstock
from penstock import testing

from .conftest import rows, until


@pytest.fixture
def tasks(project: str) -> Any:
    from penstock.django.schema import create_missing, drop
    from tests.django_app import tasks

    drop()
    create_missing()
    return tasks


def handlers(queue: str) -> Any:
    from penstock.django.tasks import Handlers

    return Handlers(queue, "worker", None)


def ran(queue: str) -> testing.Ran:
    from django.db import connection

    return testing.run_one(connection, queue, handlers(queue))


def test_the_result_through_its_life(tasks: Any) -> None:
    from django.db import connection

    made = tasks.add.enqueue(1, b=2)
    assert made.status == "READY" and not made.is_finished and made.attempts == 0
    queue, _, number = made.id.partition(":")
    assert queue == "kept"
    job = testing.require_enqueued(connection, "kept")
    assert job.kind == "tests.django_app.tasks.add"
    assert {name: json.loads(bytes(job.payload))[name] for name in ("args", "kwargs")} == {"args": [1], "kwargs": {"b": 2}}
    assert tasks.add.get_result(made.id) == made
    with connection.cursor() as cursor:
        cursor.execute("select lease from penstock.claim('kept', 1, '1 h')")
    made.refresh()
    assert (made.status, made.attempts) == ("RUNNING", 1) and made.started_at >= made.enqueued_at
    testing.advance(connection, "kept", 3700)
    assert ran("kept").outcome == "done"
    made.refresh()
    assert (made.status, made.return_value, made.attempts, made.args, made.kwargs) == ("SUCCESSFUL", 3, 2, [1], {"b": 2})
    assert made.enqueued_at <= made.started_at <= made.finished_at
    assert tasks.add.get_result(made.id) == made
    assert asyncio.run(tasks.add.aget_result(made.id)).return_value == 3
    assert int(number) > 0


def test_attempts_and_errors(tasks: Any) -> None:
    signals, seen = sys.modules["penstock.django.tasks"].signals, list[tuple[str, str]]()

    def listen(name: str) -> Any:
        def receiver(task_result: Any, **_: Any) -> None:
            seen.append((name, task_result.status))

        getattr(signals, f"task_{name}").connect(receiver)
        return receiver

    receivers = [listen(name) for name in ("enqueued", "started", "finished")]
    good, bad, once = tasks.context.enqueue(fails=1), tasks.context.enqueue(fails=9), tasks.once.enqueue()
    assert seen == [("enqueued", "READY")] * 3
    del seen[:]
    assert [ran("kept").outcome, ran("kept").outcome] == ["retry", "retry"]
    assert seen == [("started", "RUNNING")] * 2, "an attempt that is followed by another is no end"
    from django.db import connection

    testing.advance(connection, "kept", 1)
    assert tasks.context.get_result(good.id).status == "READY"
    assert {ran("kept").outcome, ran("kept").outcome} == {"done", "retry"}
    assert ran("default").outcome == "dead_letter"
    good.refresh()
    assert good.return_value == [good.id, 2] and [e.exception_class for e in good.errors] == [ValueError] and good.attempts == 2
    bad.refresh()
    once.refresh()
    for result, attempts in ((bad, 2), (once, 1)):
        assert (result.status, result.attempts, len(result.errors)) == ("FAILED", attempts, attempts)
        assert result.finished_at >= result.enqueued_at
        with pytest.raises(ValueError, match="Task failed"):
            _ = result.return_value
    assert bad.errors[1].traceback.startswith("ValueError: no 2 (tasks.py:")
    assert sorted(seen[2:]) == [("finished", "FAILED")] * 2 + [("finished", "SUCCESSFUL")] + [("started", "RUNNING")] * 3
    assert receivers


def test_the_last_attempt_is_an_end_however_it_fails(tasks: Any) -> None:
    from django.db import connection

    finished = sys.modules["penstock.django.tasks"].signals.task_finished
    seen = list[str]()

    def receiver(task_result: Any, **_: Any) -> None:
        seen.append(task_result.status)
        raise ZeroDivisionError("a receiver's fault is not the task's")

    finished.connect(receiver)
    try:
        retried = tasks.retries.enqueue()  # the queue allows two attempts
        penstock.enqueue(connection, "kept", '{"args": [], "kwargs": {"fails": 9}}', kind="tests.django_app.tasks.context", max_attempts=1)
        assert tasks.add.enqueue(1).id and len(testing.run_all(connection, "kept")) == 4
    finally:
        finished.disconnect(receiver)
    retried.refresh()
    assert sorted(seen) == ["FAILED", "FAILED", "SUCCESSFUL"] and retried.status == "FAILED"


def test_fields_of_a_job(tasks: Any) -> None:
    from django.db import connection

    from penstock.django.tasks import priority_of

    due = datetime.now(timezone.utc) + timedelta(hours=1)
    made = tasks.add.using(priority=10, run_after=due, key="k", dedup_key="d", queue_name="default").enqueue(1)
    job = testing.require_enqueued(connection, "default", key="k")
    assert (job.priority, job.not_before) == (-2, due)
    again = tasks.add.using(dedup_key="d", queue_name="default").enqueue(1)
    assert again.id == made.id
    assert tasks.add.get_result(made.id).task.run_after == due
    assert [priority_of(n) for n in (-100, -1, 0, 1, 100)] == [15, 1, 0, -1, -16]


def test_unique_jobs_and_limits(tasks: Any) -> None:
    from django.db import connection

    first = tasks.add.using(unique_key="u", timeout=timedelta(seconds=5), deadline=timedelta(hours=1)).enqueue(1)
    assert tasks.add.using(unique_key="u").enqueue(2).id == first.id
    replaced = tasks.add.using(unique_key="u", on_conflict="replace").enqueue(3)
    assert tasks.add.get_result(replaced.id).args == [3]
    assert ran("kept").outcome == "done"
    assert testing.run_all(connection, "kept", handlers("kept")) == []
    assert tasks.add.using(unique_key="u").enqueue(4).id != replaced.id


def test_the_current_job(tasks: Any) -> None:
    """Its steps are kept for the next attempt."""
    from django.db import connection

    made = tasks.stepped.enqueue()
    assert [ran.outcome for ran in testing.run_all(connection, "kept", handlers("kept"))] == ["retry", "done"]
    made.refresh()
    assert made.return_value == 1
    tasks.which.enqueue()
    assert ran("default").outcome == "done"
    testing.require_published(connection, "orders", payload="tests.django_app.tasks.which")
    with pytest.raises(RuntimeError, match="no job runs here"):
        penstock.current_job()


def test_enqueue_is_part_of_the_transaction(tasks: Any) -> None:
    from django.db import connection, transaction

    with pytest.raises(ZeroDivisionError), transaction.atomic():
        lost = tasks.add.enqueue(1)
        assert tasks.add.get_result(lost.id).status == "READY"
        raise ZeroDivisionError
    with pytest.raises(sys.modules["penstock.django.tasks"].exceptions.TaskResultDoesNotExist):
        tasks.add.get_result(lost.id)
    with pytest.raises(AssertionError):
        testing.require_enqueued(connection, "kept")


@pytest.mark.parametrize("id_", ["123", "kept:0", "kept:x", "missing:1", "kept:99999999999999999999", ""])
def test_results_that_are_not_there(tasks: Any, id_: str) -> None:
    with pytest.raises(sys.modules["penstock.django.tasks"].exceptions.TaskResultDoesNotExist):
        tasks.add.get_result(id_)


def test_what_is_refused(tasks: Any) -> None:
    module = sys.modules["penstock.django.tasks"]
    with pytest.raises(module.InvalidTask, match="Queue 'emails' is not valid"):
        tasks.add.using(queue_name="emails")
    with pytest.raises(TypeError, match="Unsupported type"):
        tasks.add.enqueue(datetime.now())
    long = type(tasks.plain)(tasks.plain.__code__, tasks.plain.__globals__, "x" * 101)
    long.__qualname__ = "x" * 101
    long.__module__ = "tests.django_app.tasks"
    with pytest.raises(module.InvalidTask, match="is the kind of the task's jobs"):
        tasks.task()(long)


def test_outcomes_and_payloads(tasks: Any) -> None:
    from django.db import connection

    tasks.snooze.enqueue()
    assert ran("kept").outcome == "snooze"
    odd = tasks.odd.enqueue()
    assert "Unsupported type" in str(ran("kept").how)
    assert penstock.Queue(connection, "kept").cancel([int(odd.id.rpartition(":")[2])]) == 1  # its second attempt would come among the others
    for payload in ("{", "{}", '{"args": 1, "kwargs": {}}'):
        penstock.enqueue(connection, "kept", payload, kind="tests.django_app.tasks.add")
        told = ran("kept")
        assert told.outcome == "dead_letter" and "reading the payload" in str(told.how)
    for kind in ("tests.django_app.tasks.plain", "tests.django_app.missing", "no_name", ""):
        penstock.enqueue(connection, "kept", '{"args": [], "kwargs": {}}', kind=kind)
        assert ran("kept").outcome == "snooze", "it is left to another worker"


def test_tasks_run_in_tests_without_a_handler(tasks: Any) -> None:
    from django.db import connection

    good, bad = tasks.context.enqueue(fails=1), tasks.context.enqueue(fails=9)
    assert sorted(ran.outcome for ran in testing.run_all(connection, "kept")) == ["done", "retry", "retry", "retry"]
    good.refresh()
    bad.refresh()
    assert (good.return_value, bad.status) == ([good.id, 2], "FAILED")
    penstock.enqueue(connection, "emails", "sent by the handler of the settings")
    assert testing.run_one(connection, "emails").outcome == "done"
    with pytest.raises(TypeError, match="no handler for the queue stacks"):
        testing.run_all(connection, "stacks")


def test_a_backend_without_a_list_of_queues_takes_every_one(tasks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from django.conf import settings
    from django.db import connection

    monkeypatch.setattr(settings, "TASKS", {"default": {**settings.TASKS["default"], "QUEUES": []}})
    tasks.add.enqueue(1)
    assert [ran.outcome for ran in testing.run_all(connection, "kept")] == ["done"]


TYPED = """
from penstock.django.tasks import task

@task
def plain(a: int) -> int:
    return a

@task(takes_context=True, queue_name="emails", max_attempts=5, backoff=60)
def welcome(context: object, customer: str, *, lang: str = "en") -> str:
    return customer

@task(key="k")
async def later() -> None: ...

plain.enqueue(1)
welcome.using(key="ann", priority=5).enqueue("ann", lang="de")
later.enqueue()
"""


WRONG = {
    "plain.enqueue('x')": "arg-type",
    "welcome.enqueue(7)": "arg-type",
    "welcome.using(kye='a')": "call-arg",
    "task(tries=1)": "call-overload",
}


def test_types_of_the_decorator(tmp_path: Path) -> None:
    file = tmp_path / "shop.py"
    file.write_text(TYPED + "\n".join(WRONG) + "\n")
    args = [sys.executable, "-m", "mypy", "--strict", "--hide-error-context", "--config-file", "", str(file)]
    printed = subprocess.run(args, check=False, capture_output=True, text=True, cwd=tmp_path).stdout
    found = [line.rpartition("[")[2].rstrip("]") for line in printed.splitlines() if ": error: " in line]
    assert found == list(WRONG.values()), printed


def test_one_worker_of_several_queues(tasks: Any, project: str) -> None:
    results = [tasks.add.enqueue(1, b=1), tasks.once.enqueue()]
    with psycopg.connect(project, autocommit=True) as conn:
        penstock.enqueue(conn, "emails", "ann")
        args = [sys.executable, "-m", "django", "penstock_work", "kept", "default", "emails"]
        with subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as worker:
            until(lambda: rows(conn, "select sum(s.ready + s.running) from penstock._queue q, penstock.queue_status(q.name) s") == [(0,)])
            worker.send_signal(signal.SIGTERM)
            printed, logged = worker.communicate(timeout=60)
            assert worker.returncode == 0, logged
        assert printed == "ann\n" and rows(conn, "select payload from penstock.orders") == [(b"sent ann",)]
    for result, status in zip(results, ("SUCCESSFUL", "FAILED"), strict=True):
        result.refresh()
        assert result.status == status
    assert logged.count("Traceback") == 1, logged
    for queue in ("kept", "default", "emails"):
        assert f"a worker of queue {queue} has started" in logged and f"the worker of queue {queue} stops" in logged, logged


@pytest.mark.parametrize("atomic", [False, True])
def test_work(tasks: Any, project: str, atomic: bool) -> None:
    results = [tasks.add.enqueue(n, b=1) for n in range(3)]
    asynchronous = tasks.coroutine.enqueue("written")
    with psycopg.connect(project, autocommit=True) as conn:
        for queue in ("kept", "default"):
            args = [sys.executable, "-m", "django", "penstock_work", queue, *(["--atomic"] if atomic else [])]
            with subprocess.Popen(args) as worker:
                until(lambda queue=queue: rows(conn, "select ready + running + delayed from penstock.queue_status(%s)", queue) == [(0,)])  # type: ignore[misc]
                worker.send_signal(signal.SIGTERM)
                assert worker.wait(60) == 0
        assert rows(conn, "select payload from penstock.orders") == [(b"written",)]
    for n, result in enumerate(results):
        result.refresh()
        assert result.return_value == n + 1
    with pytest.raises(sys.modules["penstock.django.tasks"].exceptions.TaskResultDoesNotExist, match="keep_done"):
        asynchronous.refresh()  # its queue keeps none that are done


def worked(queue: str) -> Any:
    """A worker as `manage.py penstock_work` makes it, which runs in a thread."""
    from penstock.django.management.commands.penstock_work import worker_of

    worker = worker_of(queue, None, False, penstock.Options(concurrency=2))
    thread = threading.Thread(target=worker.run)
    thread.start()
    return worker, thread


def test_a_finished_task_does_not_run_again_when_its_result_cannot_be_written(tasks: Any, project: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The result is tried again, as an ack is; one that the database refuses is left out."""
    from django.db import OperationalError
    from django.db.backends.utils import CursorWrapper

    execute, away = CursorWrapper.execute, [3]

    def failing(self: Any, sql: Any, params: Any = None) -> Any:
        if away[0] and ".report(" in str(sql) and "0, cast" not in str(sql):  # which a heartbeat has
            away[0] -= 1
            raise OperationalError("the database is away")
        return execute(self, sql, params)

    monkeypatch.setattr(CursorWrapper, "execute", failing)
    results = [tasks.counted.using(max_attempts=1).enqueue(n) for n in ("a", "b", "\0", "x" * 70_000)]
    with psycopg.connect(project, autocommit=True) as conn:
        worker, thread = worked("kept")
        until(lambda: rows(conn, "select ready + running + delayed from penstock.queue_status('kept')") == [(0,)])
        worker.stop()
        thread.join()
        assert away == [0] and sorted(rows(conn, "select payload from penstock.orders")) == [(b"ran 1",), (b"ran 1",), (b"ran 1",), (b"ran 70000",)]
        assert rows(conn, "select dead from penstock.queue_status('kept')") == [(0,)]
    for result, value in zip(results[:2], ("a", "b"), strict=True):
        result.refresh()
        assert result.return_value == value
    for result in results[2:]:
        with pytest.raises(sys.modules["penstock.django.tasks"].exceptions.TaskResultDoesNotExist):
            result.refresh()


def test_a_role_that_may_only_work_runs_tasks(tasks: Any, project: str) -> None:
    made, bad = tasks.add.enqueue(1, b=1), tasks.context.enqueue(fails=9)
    role = f"worker_{uuid.uuid4().hex[:8]}"
    url = urlsplit(project)
    with psycopg.connect(project, autocommit=True) as conn:
        conn.execute(f"create role {role} login password 'w'".encode())
        try:
            conn.execute(f"grant usage on schema penstock to {role}; select penstock.grant_worker('kept', '{role}')".encode())
            env = os.environ | {"DJANGO_TEST_URL": urlunsplit(url._replace(netloc=f"{role}:w@{url.hostname}:{url.port}"))}
            with subprocess.Popen([sys.executable, "-m", "django", "penstock_work", "kept"], env=env, stderr=subprocess.PIPE, text=True) as worker:
                until(lambda: worker.poll() is not None or rows(conn, "select ready + running + delayed from penstock.queue_status('kept')") == [(0,)])
                worker.send_signal(signal.SIGTERM)
                assert worker.wait(60) == 0, worker.stderr and worker.stderr.read()
        finally:
            conn.execute(f"drop owned by {role}; drop role {role}".encode())
    made.refresh()
    bad.refresh()
    assert (made.return_value, bad.status) == (2, "FAILED")


def test_arguments_that_do_not_fit_are_refused(tasks: Any) -> None:
    from django.db import connection

    name = r"do not fit the task tests\.django_app\.tasks\."
    for call, says in (
        (tasks.add.enqueue, name + "add.*: missing a required argument: 'a'"),
        (lambda: tasks.add.enqueue(1, c=2), name + "add.*: got an unexpected keyword argument 'c'"),
        (lambda: tasks.context.enqueue(1), name + "context.*: too many positional arguments"),
    ):
        with pytest.raises(TypeError, match=says):
            call()
    assert testing.run_all(connection, "kept") == []


def test_require_enqueued_of_a_task(tasks: Any) -> None:
    from django.db import connection

    tasks.add.enqueue(1, b=2)
    tasks.add.enqueue(3)
    assert testing.require_enqueued(connection, "kept", task=tasks.add, args=[1], kwargs={"b": 2}).kind.endswith(".add")
    for wrong in ({"args": (2,)}, {"args": [1], "kwargs": {}}, {"task": tasks.context}):
        with pytest.raises(AssertionError, match="was enqueued in 'kept'"):
            testing.require_enqueued(connection, "kept", **{"task": tasks.add, **wrong})


def test_a_task_of_a_group(tasks: Any) -> None:
    from django.db import connection

    tasks.add.using(group_key="shop-17").enqueue(1)
    [ran] = testing.run_all(connection, "kept", group_key="shop-17")
    assert (ran.outcome, ran.job.group_key) == ("done", "shop-17")


def test_django_without_tasks_names_the_package(tasks: Any) -> None:
    import django

    if django.VERSION >= (6, 0):
        pytest.skip("it has tasks")
    program = """
import sys, django
class Blocks:
    def find_spec(self, name, *_):
        if name.partition(".")[0] == "django_tasks":
            raise ModuleNotFoundError("No module named 'django_tasks'", name="django_tasks")
django.setup()
sys.meta_path.insert(0, Blocks())
import penstock.django.tasks
"""
    ended = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    assert re.search(r"ModuleNotFoundError: Django \S+ has no tasks: pip install django-tasks, or use Django 6\n$", ended.stderr), ended.stderr
