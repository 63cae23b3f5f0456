"""A Django project: migrations, management commands, atomic()."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from decimal import Decimal
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import UUID

import psycopg
import pytest

import penstock
from penstock import testing

from .conftest import manage, rows, until
from .conftest import penstock as program


@pytest.fixture
def conn(project: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(project, autocommit=True) as made:
        yield made
        made.execute("delete from penstock.orders")


def test_migrate(project: str, conn: psycopg.Connection) -> None:
    assert penstock.check(conn) >= penstock.SCHEMA_VERSION
    assert rows(conn, "select name, lifo, max_attempts from penstock._queue order by name") == [
        ("default", False, 25),
        ("emails", False, 5),
        ("kept", False, 2),
        ("stacks", True, 25),
    ]
    assert rows(conn, "select consumer, keep::text from penstock.inboxes()") == [("billing", "2 days")]
    policies = rows(conn, "select group_key, max_running, rate, per::text, weight from penstock.group_policies('stacks', '', 10)")
    assert policies == [("*", 3, None, None, None), ("shop", None, 60, "00:01:00", 2)]
    program("migrate", "--check", "--database-url", project)  # 3 if anything is not as Go would make it
    assert "up to date" in manage("penstock_migrate")
    manage("migrate", "--verbosity", "0")
    manage("migrate", "--verbosity", "0", "--database", "other")
    manage("makemigrations", "--check")


def test_functions_of_the_same_version_are_brought_up_to_date(project: str, conn: psycopg.Connection) -> None:
    conn.execute("update penstock._functions set hash = 'of another build'")
    conn.execute("drop function penstock.report(text, bigint, jsonb)")
    manage("penstock_migrate")
    program("migrate", "--check", "--database-url", project)


def schedule(**changes: Any) -> dict[str, Any]:
    return {"SCHEDULES": {"n": {"queue": "default", "cron": "@daily", **changes}}}


SCHEDULES = (
    "select q.name, s.name, cron, s.headers->>'penstock-kind', key, payload from penstock._schedule s join penstock._queue q on q.id = s.queue order by 1"
)
MADE = [
    ("kept", "sums", "TZ=Europe/Berlin 0 4 * * *", "tests.django_app.tasks.add", "k", b'{"args": [1], "kwargs": {"b": 2}}'),
    ("stacks", "digest", "@hourly", "digest", None, b'{"n": 1}'),
]


def test_schedules(project: str, conn: psycopg.Connection) -> None:
    """They are made after the queues, in a database of a test too, and changed as the settings say; applying them again moves no time."""
    assert rows(conn, SCHEDULES) == MADE
    conn.execute("update penstock._schedule set next = '2100-01-01'")
    assert rows(conn, "select name from penstock._schedule where skip_overlap") == [("sums",)]
    assert "made" not in manage("penstock_migrate")
    assert rows(conn, "select distinct extract(year from next)::int from penstock._schedule") == [(2100,)]
    conn.execute("select penstock.unschedule('stacks', 'digest')")
    conn.execute("select penstock.schedule('kept', 'sums', '@daily', 'old')")
    assert "made schedule digest of queue stacks" in manage("penstock_migrate")
    assert rows(conn, SCHEDULES) == MADE


def test_a_schedule_runs_its_task(project: str, conn: psycopg.Connection) -> None:
    from django.db import connection

    from penstock.django.tasks import Handlers

    testing.advance(conn, "kept", 86400)
    ran = testing.run_one(connection, "kept", Handlers("kept", "worker", None))
    assert (ran.outcome, ran.job.kind, ran.job.key) == ("done", "tests.django_app.tasks.add", "k")
    testing.clear(conn, "kept")


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"QUEUES": {"emails": {"keep_done": "1 dya"}}}, r"^settings\.PENSTOCK\['QUEUES'\]\['emails'\] is refused: .*1 dya"),
    (
        {"QUEUES": {"emails": {"groups": {"a": {"rate": 1, "per": "1 dya"}}}}},
        r"^settings\.PENSTOCK\['QUEUES'\]\['emails'\]\['groups'\]\['a'\] is refused: .*1 dya",
    ),
    (
        {"QUEUES": {"default": {"ordering": "lifo"}}},
        r"^settings\.PENSTOCK\['QUEUES'\]\['default'\]\['ordering'\] is 'lifo', and the queue is fifo, .*: penstock queue drop default\)",
    ),
    ({"INBOXES": {"new": {"keep": "1 dya"}}}, r"^settings\.PENSTOCK\['INBOXES'\]\['new'\]\['keep'\] is refused: .*1 dya"),
    (schedule(cron="0 25 * * *"), r"^settings\.PENSTOCK\['SCHEDULES'\]\['n'\] is refused: [^\n]*'0 25 \* \* \*'[^\n]* \(correct it"),
]


@pytest.mark.parametrize(("given", "says"), REFUSED)
def test_migrate_names_the_setting_that_the_database_refuses(project: str, given: dict[str, Any], says: str) -> None:
    from django.core.management import CommandError
    from django.test import override_settings

    with override_settings(PENSTOCK=given), pytest.raises(CommandError, match=says):
        manage("penstock_migrate")


def test_migrate_says_what_it_made(project: str, conn: psycopg.Connection) -> None:
    conn.execute("select penstock.unschedule('stacks', 'digest')")
    assert "Penstock: made schedule digest of queue stacks\n" in manage("migrate")
    assert "Penstock:" not in manage("migrate")


@pytest.mark.parametrize("command", [("penstock_status",), ("penstock_dead", "list", "emails"), ("penstock_work", "emails")])
def test_commands_say_that_the_database_is_not_migrated(project: str, command: tuple[str, ...]) -> None:
    from django.conf import settings
    from django.core.management import CommandError
    from django.test import override_settings

    with override_settings(PENSTOCK=settings.PENSTOCK | {"SCHEMA": "missing"}), pytest.raises(CommandError, match=r"manage\.py (penstock_)?migrate"):
        manage(*command)


SETTINGS: list[tuple[Any, str, str, str]] = [
    ([], "E002", r"is \[\]", "dict"),
    ({"QUEUE": {}}, "E001", "does not know the key 'QUEUE'", "did you mean 'QUEUES'"),
    ({"outboxes": []}, "E001", "'outboxes'", "did you mean 'OUTBOXES'"),
    ({"OUTBOXES": "orders"}, "E002", r"\['OUTBOXES'\] is 'orders'", r"\['orders'\]"),
    ({"OUTBOXES": [1]}, "E002", "has 1", "names"),
    ({"QUEUES": ["emails"]}, "E002", r"\['QUEUES'\] is", "dict"),
    ({"QUEUES": {"emails": "shop.jobs.send"}}, "E002", r"\['QUEUES'\]\['emails'\] is", "handler"),
    ({"QUEUES": {"emails": {"max_atempts": 5}}}, "E001", r"\['QUEUES'\]\['emails'\] does not know", "did you mean 'max_attempts'"),
    ({"QUEUES": {"emails": {"max_attempts": "5"}}}, "E002", r"\['max_attempts'\] is '5'", "whole number"),
    ({"QUEUES": {"emails": {"keep_done": 30}}}, "E002", "is 30", "timedelta"),
    ({"QUEUES": {"emails": {"groups": ["a"]}}}, "E002", r"\['groups'\] is", "limits of groups"),
    ({"QUEUES": {"emails": {"groups": {"a": {"max_run": 1}}}}}, "E001", r"\['groups'\]\['a'\] does not know", "did you mean 'max_running'"),
    ({"QUEUES": {"emails": {"groups": {"a": {"rate": "60"}}}}}, "E002", r"\['rate'\] is '60'", "whole number"),
    ({"QUEUES": {"emails": {"groups": {"a": {"rate": 60}}}}}, "E003", r"\['groups'\]\['a'\] has 'rate' without 'per'", "give both"),
    ({"QUEUES": {"emails": {"groups": {"a": {"burst": 6}}}}}, "E003", "has 'burst' without 'rate'", "give both"),
    ({"QUEUES": {"emails": {"max_running": True}}}, "E002", "is True", "whole number"),
    ({"QUEUES": {"emails": {"ordering": "random"}}}, "E003", "is 'random'", "'lifo'"),
    ({"QUEUES": {"emails": {"handler": "tests.django_app.jobs.sent"}}}, "E003", "sent", "dotted name"),
    ({"QUEUES": {"emails": {"handler": "tests.django_app.settings.url"}}}, "E003", "cannot be called", "dotted name"),
    ({"QUEUES": {"emails": {"handler": "tests.django_app.jobs.wrong"}}}, "E003", r"\['handler'\]\['bill'\] is 7", "function"),
    ({"QUEUES": {"emails": {"handler": {}}}}, "E003", "cannot be called", "a dict with one for each kind, or of an App"),
    ({"QUEUES": {"emails": {"keep_done": "3 dais"}}}, "E002", r"\['keep_done'\] is '3 dais', which is no time span", "30 days"),
    ({"QUEUES": {"emails": {"dedup_window": timedelta(days=-1)}}}, "E002", "which is negative", "timedelta"),
    (schedule(cron="TZ=Europe/Berlim 0 4 * * *"), "E003", "there is no time zone 'Europe/Berlim'", "TZ=Europe/Berlin"),
    ({"INBOXES": {"billing": {"keep": 30}}}, "E002", "is 30", "timedelta"),
    ({"ENCODER": 1}, "E002", r"\['ENCODER'\] is 1", "JSONEncoder"),
    ({"ENCODER": "json.Encoder"}, "E003", "Encoder", "JSONEncoder"),
    ({"ENCODER": int}, "E003", "not a subclass", "dotted name"),
    ({"DATABASE": "shop"}, "E003", "'shop'", "default, other"),
    (schedule(cron=5), "E002", r"\['n'\]\['cron'\] is 5", "cron expression"),
    (schedule(crom="@daily"), "E001", "'crom'", "did you mean 'cron'"),
    ({"SCHEDULES": {"n": {"queue": "default"}}}, "E003", "has no cron", "cron expression"),
    ({"SCHEDULES": {"n": {"cron": "@daily"}}}, "E003", "has no queue", "queue, or task"),
    (schedule(cron="0 4 * *"), "E003", "five fields are needed, and it has 4", "minute, hour"),
    (schedule(cron="TZ=Europe/Berlin 0 24 * * *"), "E003", "'24' is not a valid hour", "minute, hour"),
    (schedule(queue="missing"), "E003", "'missing', which migrate does not make", "QUEUES"),
    (schedule(task="tests.django_app.tasks.plain"), "E003", "which is not a task", "@task"),
    (schedule(task="tests.django_app.tasks.add", payload="x"), "E003", "'payload' and a task", "kind and payload"),
    (schedule(args=[1]), "E003", "'args' without a task", "kind and payload"),
]


@pytest.mark.parametrize(("given", "id_", "says", "hint"), SETTINGS)
def test_check(project: str, given: Any, id_: str, says: str, hint: str) -> None:
    """`manage.py check` names what is wrong in the settings, and what to do."""
    from django.core.management.base import SystemCheckError
    from django.test import override_settings

    manage("check")
    with override_settings(PENSTOCK=given), pytest.raises(SystemCheckError) as e:
        manage("check")
    assert re.search(rf"\(penstock\.{id_}\) settings\.PENSTOCK.*{says}.*\n\s+HINT: .*{hint}", str(e.value)), str(e.value)


@pytest.mark.parametrize("span", [
    "30 days", "1 day 02:03:04", "P1DT2H", "1.5 hours", "7d", "2 weeks 3 h", "90", "04:30", "@ 1 minute", "1 mon", "", "3 dais", "soon", "1 day x", "day",
])  # fmt: skip
def test_time_spans_are_checked_as_in_the_database(conn: psycopg.Connection, span: str) -> None:
    from penstock.django.checks import time_problem

    valid = True
    try:
        conn.execute("select cast(%s as interval)", [span])
    except psycopg.DataError:
        valid = False
    assert (time_problem(span) == "") is valid


@pytest.mark.parametrize("cron", [
    "@Daily", "@fortnightly", "", "* * * *", "* * * * * *", " 30 4 * * 1-5 ", "TZ=Europe/Berlin 30 4 * * *", "TZ=UTC @weekly", "5/20 * * * *", "*/70 * * * *",
    "*/0 * * * *", "60 * * * *", "0 0 0 * *", "0 0 1 jan-MAR,dec sun", "0 0 1 mar-jan *", "0 0 * * 7", "0 0 * * 8", "1,2, * * * *", "-1 * * * *",
    "1-5/2 * * * fri-mon", "? * * * *", "0 0 1 foo *", "٣ * * * *", "TZ=Europe/Berlim 0 0 * * *", "TZ=EST 0 0 * * *",
])  # fmt: skip
def test_cron_is_checked_as_in_the_database(conn: psycopg.Connection, cron: str) -> None:
    from penstock.django.checks import cron_problem

    queue, problem = penstock.Queue(conn, "emails"), ""
    try:
        queue.schedule("checked", cron, "")
        queue.unschedule("checked")
    except penstock.Error as e:
        assert e.sqlstate == "22023"
        problem = str(e)
    assert bool(cron_problem(cron)) == bool(problem), (cron_problem(cron), problem)


@pytest.mark.parametrize("name", ["send", "kinds", "app"])
def test_a_handler_is_a_function_a_dict_or_an_app(project: str, conn: psycopg.Connection, name: str) -> None:
    from django.db import connection
    from django.test import override_settings

    jobs = [penstock.NewJob("ann", kind="welcome"), penstock.NewJob(b'{"to": "bob"}', kind="greet")]
    with override_settings(PENSTOCK={"QUEUES": {"emails": {"handler": f"tests.django_app.jobs.{name}"}}}):
        manage("check")
        testing.clear(conn, "emails")
        penstock.enqueue(conn, "emails", jobs[name == "app"].payload, kind=jobs[name == "app"].kind)
        assert [ran.outcome for ran in testing.run_all(connection, "emails")] == ["done"]


def test_enqueue_has_the_options_of_the_client(project: str, conn: psycopg.Connection) -> None:
    import inspect

    from penstock.django import enqueue

    own = {"using", "require_atomic"}
    assert set(inspect.signature(enqueue).parameters) - own == set(inspect.signature(penstock.enqueue).parameters) - {"tx", "schema", "encoder"}
    testing.clear(conn, "emails")
    limits: dict[str, Any] = {"max_attempts": 1, "timeout": timedelta(seconds=5), "deadline": timedelta(hours=1)}
    made = enqueue("emails", "a", unique_key="u", require_atomic=False, **limits)
    assert enqueue("emails", "b", unique_key="u", on_conflict="ignore", require_atomic=False).id == made.id
    enqueue("emails", "c", unique_key="u", on_conflict="debounce", debounce_max=timedelta(hours=1), not_before=timedelta(0), require_atomic=False)
    testing.require_enqueued(conn, "emails", payload="c")
    testing.clear(conn, "emails")
    enqueue("emails", "d", require_atomic=False, **limits)
    [(headers,)] = rows(conn, "select headers from penstock.emails")
    assert isinstance(headers, dict) and {"penstock-max-attempts", "penstock-timeout", "penstock-deadline"} <= set(headers), headers
    testing.clear(conn, "emails")


def test_an_older_schema_is_led_on(project: str, empty: Callable[[], str]) -> None:
    """What was cut out of the script is what `penstock migrate --sql --from` leaves out."""
    from penstock.django.schema import SECTION, script

    versions = [int(v) for v in SECTION.findall(script(0))]
    for version in {versions[0], versions[len(versions) // 2], versions[-1]}:
        wanted = program("migrate", "--sql", "--from", str(version))
        mine = script(version)
        for there in (wanted, mine):
            assert f"if version <> {version} then" in there
        assert SECTION.findall(mine) == SECTION.findall(wanted)
        assert mine[mine.index("set local search_path") :] == wanted[wanted.index("set local search_path") :]
    with pytest.raises(penstock.SchemaError, match="lead on"):
        script(7)


def test_atomic(project: str, conn: psycopg.Connection) -> None:
    from django.db import transaction

    from penstock.django import enqueue, first, publish

    with transaction.atomic():
        publish("orders", {"total": 10}, key="ann", topic="t", headers={"a": "b"})
        made = enqueue("emails", "dead", dedup_key="d")
        assert enqueue("emails", "dead", dedup_key="d").deduplicated
        assert first("billing", "m1") and not first("billing", "m1")
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        publish("orders", "lost")
        raise ZeroDivisionError
    assert rows(conn, "select key, topic, headers, payload from penstock.orders") == [("ann", "t", {"a": "b"}, b'{"total": 10}')]
    assert made.id and rows(conn, "select ready from penstock.queue_status('emails')") == [(1,)]
    with pytest.raises(transaction.TransactionManagementError, match="atomic"):
        publish("orders", "x")
    publish("orders", "x", require_atomic=False)
    assert len(rows(conn, "select from penstock.orders")) == 2


def test_a_message_waits_for_a_barrier(project: str, conn: psycopg.Connection) -> None:
    from django.db import transaction

    from penstock.django import barrier, enqueue, publish_after, seal

    with transaction.atomic():
        rows_done = barrier("emails")
        enqueue("emails", "row", holds=rows_done)
        made = publish_after("emails", [rows_done], "orders", {"rows": 1}, key="ann", topic="t", headers={"a": "b"}, id="m1", on_dead="run")
        seal("emails", rows_done)
        for field, waits_for, on_dead in ("waits_for", [], None), ("on_dead", [rows_done], "die"):
            with pytest.raises(penstock.FieldError) as caught:
                publish_after("emails", waits_for, "orders", "x", on_dead=on_dead)
            assert caught.value.field == field
    assert made and not rows(conn, "select from penstock.orders")
    assert rows(conn, "select id from penstock.dequeue('emails', 100)")  # also jobs of other tests
    found = "select id, key, topic, headers, payload from penstock.orders"
    assert rows(conn, found) == [("m1", "ann", "t", {"a": "b"}, b'{"rows": 1}')]


def test_the_connection_itself_is_a_transaction(project: str, conn: psycopg.Connection) -> None:
    from django.db import connection, transaction

    with transaction.atomic(), penstock.Buffer(connection) as buffer:
        buffer.publish("orders", "x")
    assert len(rows(conn, "select from penstock.orders")) == 1


def test_the_encoder_of_payloads(project: str, conn: psycopg.Connection) -> None:
    """Django's own, unless the settings name another."""
    from django.core.serializers.json import DjangoJSONEncoder
    from django.db import connection
    from django.test import override_settings
    from django.utils.translation import gettext_lazy

    from penstock.django import enqueue, publish

    class Encoder(json.JSONEncoder):
        def default(self, o: Any) -> str:
            return type(o).__name__

    value = {"day": date(2030, 1, 2), "id": UUID(int=1), "total": Decimal("1.50"), "name": gettext_lazy("name")}
    publish("orders", value, require_atomic=False)
    with override_settings(PENSTOCK={"ENCODER": Encoder}):
        publish("orders", value, require_atomic=False)
    with override_settings(PENSTOCK={"ENCODER": "json.JSONEncoder"}), pytest.raises(penstock.FieldError, match="date is not JSON"):
        enqueue("emails", value, require_atomic=False)
    found: list[Any] = [json.loads(row[0]) for row in rows(conn, "select payload from penstock.orders order by seq")]  # type: ignore[arg-type]
    assert found == [
        {"day": "2030-01-02", "id": str(UUID(int=1)), "total": "1.50", "name": "name"},
        {"day": "date", "id": "UUID", "total": "Decimal", "name": "__proxy__"},
    ]
    enqueue("stacks", value, require_atomic=False)
    testing.require_enqueued(connection, "stacks", payload=value, encoder=DjangoJSONEncoder)
    testing.clear(conn, "stacks")


@pytest.mark.parametrize("atomic", [False, True])
def test_work(project: str, conn: psycopg.Connection, atomic: bool) -> None:
    conn.execute("select penstock.cancel('emails', array(select id from penstock.claim('emails', 100)))")
    conn.execute("select penstock.discard_dead_jobs('emails', array(select id from penstock._dead_job))")
    texts = ["a", "b"] if atomic else ["a", "dead"]
    penstock.enqueue_many(conn, "emails", [penstock.NewJob(t) for t in texts])
    options: list[Any] = ["--atomic", "--handler", "tests.django_app.jobs.book"] if atomic else []
    args = [sys.executable, "-m", "django", "penstock_work", "emails", "--concurrency", "2", *options]
    with subprocess.Popen(args, stdout=subprocess.PIPE, text=True) as worker:
        try:
            assert worker.stdout
            assert sorted(worker.stdout.readline().strip() for _ in texts) == texts
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(60) == 0
        finally:
            worker.kill()  # else a test that failed would wait for it
    found = sorted(row[0] for row in rows(conn, "select payload from penstock.orders"))  # type: ignore[type-var]
    assert found == ([b"booked a 2", b"booked b 2"] if atomic else [b"sent a", b"sent dead"])
    assert rows(conn, "select ready, running, delayed, dead from penstock.queue_status('emails')") == [(0, 0, 0, 0 if atomic else 1)]


def test_work_runs_the_tasks_of_an_app(project: str, conn: psycopg.Connection) -> None:
    from tests.django_app.jobs import greet

    greet.enqueue(conn, "ann")
    with subprocess.Popen([sys.executable, "-m", "django", "penstock_work", "emails", "--handler", "tests.django_app.jobs.app"]) as worker:
        until(lambda: rows(conn, "select payload from penstock.orders") == [(b"greeted ann",)])
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0


def test_a_task_of_an_app_has_the_transaction_that_ends_its_job(project: str, conn: psycopg.Connection) -> None:
    from django.db import connection, transaction
    from django.test import override_settings

    from tests.django_app.jobs import grant

    grant.enqueue(conn, "ann")
    args = [sys.executable, "-m", "django", "penstock_work", "emails", "--handler", "tests.django_app.jobs.with_tx", "--atomic"]
    with subprocess.Popen(args) as worker:
        until(lambda: rows(conn, "select payload from penstock.orders") == [(b"granted ann 2",)])
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0
    assert rows(conn, "select ready, running, delayed, dead from penstock.queue_status('emails')") == [(0, 0, 0, 0)]
    with override_settings(PENSTOCK={"QUEUES": {"emails": {"handler": "tests.django_app.jobs.with_tx"}}}), transaction.atomic():
        grant.enqueue(connection, "bob")
        assert [ran.outcome for ran in testing.run_all(connection, "emails")] == ["retry", "done"]
        transaction.set_rollback(True)


def test_a_sentence_is_no_traceback(project: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from django.core.management.base import CommandError
    from django.db import connections

    for args, says in (
        (["missing", "--handler", "tests.django_app.jobs.send"], "penstock queue create"),
        (["emial"], "no handler for the queue emial: did you mean 'emails'[?] there are: .*emails"),
        (["emails", "--handler", "tests.django_app.jobs.nothing"], "nothing"),
        (["emails", "--handler", "tests.django_app.jobs.with_tx"], "grant needs a transaction.* --atomic"),
        (["missing", "--handler", "tests.django_app.jobs.app"], "no task of the queue missing.*its queues are: emails"),
        (["emails", "--handler", "tests.django_app.jobs.send", "--concurrency", "0"], "concurrency"),
    ):
        with pytest.raises(CommandError, match=says):
            manage("penstock_work", *args)
    monkeypatch.setitem(connections["default"].settings_dict, "PORT", "1")
    connections["default"].close()
    with pytest.raises(CommandError, match=r"connect.*refused"):
        manage("penstock_status")


def test_a_worker_waits_for_its_database(project: str) -> None:
    url = urlsplit(project)
    env = os.environ | {"DJANGO_TEST_URL": urlunsplit(url._replace(netloc="postgres@127.0.0.1:1"))}
    with subprocess.Popen([sys.executable, "-m", "django", "penstock_work", "kept", "emails"], env=env, stderr=subprocess.PIPE, text=True) as worker:
        assert worker.stderr
        first = worker.stderr.readline()
        worker.send_signal(signal.SIGTERM)
        rest = worker.stderr.read()
    assert "cannot reach the database, and tries until it can" in first and worker.returncode == 0 and "Traceback" not in rest, first + rest


def test_a_second_ctrl_c_ends_a_worker_at_once(project: str, conn: psycopg.Connection) -> None:
    penstock.enqueue(conn, "emails", "x")
    args = [sys.executable, "-m", "django", "penstock_work", "emails", "stacks", "--handler", "tests.django_app.jobs.hang"]
    with subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as worker:
        assert worker.stdout and worker.stderr
        assert worker.stdout.readline() == "begun\n"
        worker.send_signal(signal.SIGINT)
        logged = ""
        while " stops: 1 handlers run" not in logged:
            logged += worker.stderr.readline()
        worker.send_signal(signal.SIGINT)
        rest = worker.stderr.read()
    assert worker.returncode == 130 and "interrupted: jobs that were running run again when their leases end" in rest and "Traceback" not in rest, rest


@pytest.mark.filterwarnings("ignore:Overriding setting DATABASES")
def test_sqlite_names_what_to_do(project: str) -> None:
    from django.core.management.base import CommandError
    from django.test import override_settings

    from penstock.django import enqueue
    from penstock.django.checks import check_settings

    with override_settings(PENSTOCK={"DATABASE": "other", "QUEUES": {"emails": {}}}):
        [warning] = check_settings()
        assert warning.id == "penstock.W001" and "penstock migrate --database-url sqlite:" in str(warning.hint)
        with pytest.raises(CommandError, match="run: penstock migrate --database-url"):
            manage("penstock_migrate")
        with pytest.raises(penstock.NotFoundError, match="each with --database-url sqlite:FILE") as e:
            enqueue("emails", "x", require_atomic=False)
        assert "manage.py" not in str(e.value)


def test_nothing_leaks_between_tests(project: str, conn: psycopg.Connection) -> None:
    from django.core.management import call_command
    from django.test.utils import setup_test_environment, teardown_test_environment

    from penstock.django import enqueue, publish

    enqueue("emails", "x", require_atomic=False, dedup_key="once")
    publish("orders", "x", require_atomic=False)
    call_command("flush", "--no-input", verbosity=0)
    assert rows(conn, "select ready from penstock.queue_status('emails')") == [(1,)]
    setup_test_environment()
    try:
        call_command("flush", "--no-input", verbosity=0)  # as a TransactionTestCase does at its end
    finally:
        teardown_test_environment()
    assert rows(conn, "select ready from penstock.queue_status('emails')") == [(0,)]
    assert rows(conn, "select from penstock.orders") == []
    assert not enqueue("emails", "x", require_atomic=False, dedup_key="once").deduplicated
    assert rows(conn, "select name, lifo, max_attempts from penstock._queue order by name") == [
        ("default", False, 25),
        ("emails", False, 5),
        ("kept", False, 2),
        ("stacks", True, 25),
    ]
    assert rows(conn, SCHEDULES) == MADE
