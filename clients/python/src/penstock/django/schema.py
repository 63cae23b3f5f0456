"""The schema, as `penstock migrate` makes it. schema.sql is the output of `penstock migrate --sql` of this version; hatch_build.py puts it into the
package."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import files
from typing import Any

from django.db import DataError, connections, transaction

from .._model import FieldError, SchemaError, encode
from .._sql import quoted
from . import _encoder, setting

SECTION = re.compile(r"\n    -- version (\d+) of the schema\n    execute ")
FUNCTIONS = re.compile(r"insert into _functions \(hash\) values \('(\w+)'\)")


def script(version: int, schema: str = "penstock") -> str:
    """The statement that migrates from a version; 0 means that there is no schema."""
    source = files(__package__).joinpath("schema.sql")
    if not source.is_file():
        raise SchemaError("this installation has no schema.sql", hint="install the package from its wheel, or run: penstock migrate")
    text = source.read_text(encoding="utf-8")
    if schema != "penstock":
        raise SchemaError(f"schema.sql is for the schema penstock, not {schema}", hint=f"run: penstock migrate --schema {schema}")
    if not version:
        return text
    parts = SECTION.split(text)  # the beginning, then each version and its change; the functions behind the last one stay
    versions = [int(v) for v in parts[1::2]]
    if version not in versions:
        raise SchemaError(f"the schema is version {version}, which this package does not lead on from", hint="run: penstock migrate")
    last, functions = parts[-1].split("\n    -- the functions of the schema\n", 1)
    parts[-1] = last
    kept = "".join(f"\n    -- version {v} of the schema\n    execute {change}" for v, change in zip(versions, parts[2::2], strict=True) if v > version)
    head = parts[0].replace("if version <> 0 then", f"if version <> {version} then")
    return f"{head}{kept}\n    -- the functions of the schema\n{functions}"


def version(using: str | None = None) -> int:
    """The version of the database's schema; 0 if there is none."""
    with connections[using or setting("DATABASE")].cursor() as cursor:
        cursor.execute("select to_regclass(%s) is not null", [f"{quoted(setting('SCHEMA'))}._migration"])
        if not cursor.fetchone()[0]:
            return 0
        cursor.execute(f"select coalesce(max(version_id), 0) from {quoted(setting('SCHEMA'))}._migration")
        return int(cursor.fetchone()[0])


def newest() -> int:
    return max(int(v) for v in SECTION.findall(script(0)))


def migrate(using: str | None = None) -> tuple[int, int]:
    """Brings the schema up to date, and returns the old and the new version. They are equal if only functions changed. A newer schema is left alone."""
    connection: Any = connections[using or setting("DATABASE")]
    if connection.vendor != "postgresql":
        step = (
            f"run: penstock migrate --database-url {shlex.quote('sqlite:' + str(connection.settings_dict['NAME']))}"
            if connection.vendor == "sqlite"
            else "use PostgreSQL"
        )
        raise SchemaError(f"this makes the schema in PostgreSQL, and {connection.alias} is {connection.vendor}", hint=step)
    before, made = version(using), newest()
    with transaction.atomic(using=connection.alias), connection.cursor() as cursor:
        old = before < made
        if before == made:
            cursor.execute(f"select hash from {quoted(setting('SCHEMA'))}._functions")
            old = [row[0] for row in cursor.fetchall()] != FUNCTIONS.findall(script(0))
        if old:
            cursor.execute(script(before, setting("SCHEMA")))
    return before, max(before, made)


def drop(using: str | None = None) -> None:
    """Drops the outboxes, queues and inboxes of settings.PENSTOCK with their contents, between tests."""
    schema = quoted(setting("SCHEMA"))
    with transaction.atomic(using=using or setting("DATABASE")), connections[using or setting("DATABASE")].cursor() as cursor:
        for kind, table, column in (("outbox", "_outbox", "name"), ("queue", "_queue", "name"), ("inbox", "_inbox", "consumer")):
            names = list(setting({"outbox": "OUTBOXES", "queue": "QUEUES", "inbox": "INBOXES"}[kind]))
            cursor.execute(f"select {schema}.drop_{kind}({column}) from {schema}.{table} where {column} = any(%s)", [names])


def create_missing(using: str | None = None) -> list[str]:
    """Creates missing outboxes, queues and inboxes of settings.PENSTOCK, and applies the schedules and the settings of queues and groups. Returns what it
    created."""
    schema, made = quoted(setting("SCHEMA")), []
    with transaction.atomic(using=using or setting("DATABASE")), connections[using or setting("DATABASE")].cursor() as cursor:

        def names(table: str, column: str) -> set[str]:
            cursor.execute(f"select {column} from {schema}.{table}")
            return {row[0] for row in cursor.fetchall()}

        for outbox in sorted(set(setting("OUTBOXES")) - names("_outbox", "name")):
            cursor.execute(f"select {schema}.create_outbox(%s)", [outbox])
            made.append(f"outbox {outbox}")
        cursor.execute(f"select name, case when lifo then 'lifo' else 'fifo' end from {schema}._queue")
        there = dict(cursor.fetchall())
        for queue, options in setting("QUEUES").items():
            if queue not in there:
                cursor.execute(f"select {schema}.create_queue(%s, %s)", [queue, options.get("ordering", "fifo")])
                made.append(f"queue {queue}")
            elif there[queue] != options.get("ordering", there[queue]):
                raise FieldError(
                    f"settings.PENSTOCK['QUEUES'][{queue!r}]['ordering']",
                    f"is {options['ordering']!r}, and the queue is {there[queue]}, which does not change",
                    f"give {there[queue]!r}, or drop the queue with its jobs, and let penstock_migrate make it again: penstock queue drop {shlex.quote(queue)}",
                )
            if chosen := {name: options[name] for name in ("max_attempts", "max_running", "dedup_window", "keep_done") if name in options}:
                with of_setting("QUEUES", queue):
                    cursor.execute(f"select {schema}.set_queue(%s, {', '.join(f'{name} => %s' for name in chosen)})", [queue, *chosen.values()])
            for group, policy in options.get("groups", {}).items():
                fields = "".join(f", {name} => %s" for name in policy)
                with of_setting("QUEUES", queue, "groups", group):
                    cursor.execute(f"select {schema}.set_group(%s, %s{fields})", [queue, group, *policy.values()])
        consumers = names("_inbox", "consumer")
        for consumer, options in setting("INBOXES").items():
            if consumer not in consumers:
                with of_setting("INBOXES", consumer, "keep"):
                    cursor.execute(f"select {schema}.create_inbox(%s, cast(%s as interval))", [consumer, options.get("keep", "7 days")])
                made.append(f"inbox {consumer}")
        cursor.execute(f"select q.name, s.name from {schema}._schedule s join {schema}._queue q on q.id = s.queue")
        known = set(cursor.fetchall())
        for name, options in setting("SCHEDULES").items():
            queue, kind, payload = contents(options)
            given = {field: options[field] for field in ("key", "group_key", "priority", "dedup_key", "skip_overlap") if field in options}
            fields = "".join(f", {field} => %s" for field in given)
            with of_setting("SCHEDULES", name):
                cursor.execute(
                    f"select {schema}.schedule_bytes(%s, %s, %s, %s, kind => %s{fields})",
                    [queue, name, options["cron"], encode(payload, _encoder()), kind, *given.values()],
                )
            if (queue, name) not in known:
                made.append(f"schedule {name} of queue {queue}")
    return made


@contextmanager
def of_setting(*keys: str) -> Iterator[None]:
    """Names the entry of settings.PENSTOCK whose value the database refuses."""
    try:
        yield
    except DataError as e:
        where = "".join(f"[{key!r}]" for key in keys)
        raise FieldError(f"settings.PENSTOCK{where}", f"is refused: {str(e).partition(chr(10))[0]}", "correct it, and run: manage.py penstock_migrate") from e


def contents(schedule: Mapping[str, Any]) -> tuple[str, str, Any]:
    """The queue, the kind and the payload of a schedule's jobs."""
    if "task" in schedule:
        from .tasks import task_of

        task: Any = task_of(schedule["task"])
        if task is None:
            raise FieldError("the schedule's task", f"is {schedule['task']!r}, which is not a task", "give the dotted name of a function with @task")
        return schedule.get("queue", task.queue_name), task.module_path, {"args": schedule.get("args", []), "kwargs": schedule.get("kwargs", {})}
    return schedule["queue"], schedule.get("kind", ""), schedule.get("payload", {})
