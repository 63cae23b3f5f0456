"""The checks of settings.PENSTOCK for `manage.py check`. Django also runs them before migrate and before the commands of this package."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Set
from datetime import timedelta
from difflib import get_close_matches
from json import JSONEncoder
from typing import Any
from zoneinfo import available_timezones

from django.conf import settings
from django.core.checks import Error, Warning
from django.db import connections
from django.utils.module_loading import import_string

from .._app import App
from .._model import FieldError
from . import task_queues
from .schema import contents

TEXT = (str, "a text")
NUMBER = (int, "a whole number")
TIME = ((str, timedelta), "a timedelta, or a text as '30 days'")
HANDLER = "the dotted name of a function that takes the job, of a dict with one for each kind, or of an App, as 'shop.jobs.send'"
KEYS: dict[str, tuple[Any, str]] = {
    "DATABASE": (str, "a text, the alias of a database in settings.DATABASES"),
    "SCHEMA": TEXT,
    "OUTBOXES": ((list, tuple, set, frozenset), "a list of names, as ['orders']"),
    "QUEUES": (Mapping, "a dict with the settings of each queue, as {'emails': {}}"),
    "INBOXES": (Mapping, "a dict with the settings of each inbox, as {'billing': {}}"),
    "SCHEDULES": (Mapping, "a dict with the settings of each schedule, as {'nightly': {'queue': 'emails', 'cron': '0 4 * * *'}}"),
    "ENCODER": ((str, type), "a subclass of json.JSONEncoder, or its dotted name"),
}
OF_A_QUEUE: dict[str, tuple[Any, str]] = {
    "handler": (object, HANDLER),
    "ordering": (str, "'fifo' or 'lifo'"),
    "max_attempts": NUMBER,
    "max_running": NUMBER,
    "dedup_window": TIME,
    "keep_done": TIME,
    "groups": (Mapping, "a dict with the limits of groups, '*' for each other one, as {'*': {'max_running': 2}}"),
}
OF_A_GROUP: dict[str, tuple[Any, str]] = {"max_running": NUMBER, "rate": NUMBER, "per": TIME, "burst": NUMBER, "weight": NUMBER}
OF_A_SCHEDULE: dict[str, tuple[Any, str]] = {
    "queue": (str, "the name of a queue"),
    "cron": (str, "a cron expression, as '0 4 * * *' or 'TZ=Europe/Berlin 0 4 * * *'"),
    "task": (str, "the dotted name of a function with @task"),
    "args": ((list, tuple), "a list"),
    "kwargs": (Mapping, "a dict"),
    "kind": (str, "a text"),
    "payload": (object, "bytes, a text, or what JSON can hold"),
    "key": TEXT,
    "group_key": TEXT,
    "priority": NUMBER,
    "dedup_key": TEXT,
    "skip_overlap": (bool, "True or False"),
}
OF_AN_INBOX: dict[str, tuple[Any, str]] = {"keep": TIME}


def check_settings(**_: Any) -> list[Error]:
    found: list[Error] = []

    def error(number: int, where: str, problem: str, hint: str) -> None:
        found.append(Error(f"settings.PENSTOCK{where} {problem}", hint=hint, id=f"penstock.E00{number}"))

    def entries(where: str, given: Any, known: Mapping[str, tuple[Any, str]]) -> dict[str, Any]:
        """Returns the valid entries."""
        if not isinstance(given, Mapping):
            error(2, where, f"is {given!r}", f"give a dict with some of: {', '.join(known)}")
            return {}
        good = {}
        for name, value in given.items():
            kind, wanted = known.get(name, (None, ""))
            if kind is None:
                near = get_close_matches(str(name), known, 1) or get_close_matches(str(name).upper(), known, 1)
                error(1, where, f"does not know the key {name!r}", (f"did you mean {near[0]!r}? " if near else "") + f"there are: {', '.join(known)}")
            elif not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
                error(2, f"{where}[{name!r}]", f"is {value!r}", f"give {wanted}")
            elif kind == TIME[0] and (problem := time_problem(value)):
                error(2, f"{where}[{name!r}]", f"is {value!r}, {problem}", f"give {wanted}")
            else:
                good[name] = value
        return good

    top = entries("", getattr(settings, "PENSTOCK", {}), KEYS)
    if top.get("DATABASE", "default") not in settings.DATABASES:
        error(3, "['DATABASE']", f"is {top['DATABASE']!r}, which is not in settings.DATABASES", f"there are: {', '.join(settings.DATABASES)}")
    elif isinstance(alias := top.get("DATABASE", "default"), str):
        found.extend(problems_of_database(alias))
    if problem := encoder_problem(top.get("ENCODER", JSONEncoder)):
        error(3, "['ENCODER']", f"is {top['ENCODER']!r}{problem}", "give a subclass of json.JSONEncoder, or its dotted name")
    for name in top.get("OUTBOXES", ()):
        if not isinstance(name, str):
            error(2, "['OUTBOXES']", f"has {name!r}", "give names")
    for name, given in top.get("INBOXES", {}).items():
        entries(f"['INBOXES'][{name!r}]", given, OF_AN_INBOX)
    for name, given in top.get("QUEUES", {}).items():
        where = f"['QUEUES'][{name!r}]"
        queue = entries(where, given, OF_A_QUEUE)
        if queue.get("ordering", "fifo") not in ("fifo", "lifo"):
            error(3, f"{where}['ordering']", f"is {queue['ordering']!r}", "give 'fifo' or 'lifo'")
        for group, policy in queue.get("groups", {}).items():
            limits = entries(f"{where}['groups'][{group!r}]", policy, OF_A_GROUP)
            found.extend(problems_of_rate(f"settings.PENSTOCK{where}['groups'][{group!r}]", limits, policy))
        for entry, problem, hint in problems_of_handler(queue.get("handler", check_settings)):
            error(3, f"{where}['handler']{entry}", problem, f"give {hint}")
    for name, given in top.get("SCHEDULES", {}).items():
        before, schedule = len(found), entries(f"['SCHEDULES'][{name!r}]", given, OF_A_SCHEDULE)
        for wrong in problems_of(schedule, {*top.get("QUEUES", {}), *task_queues()}) if len(found) == before else ():
            error(3, f"['SCHEDULES'][{name!r}]", *wrong)
    return found


def problems_of_database(alias: str) -> Iterator[Error | Warning]:
    """What this package cannot do in another database than PostgreSQL."""
    vendor, name = connections[alias].vendor, connections[alias].settings_dict["NAME"]
    given = f"settings.DATABASES[{alias!r}] is {vendor}"
    hint = "make one PostgreSQL, and name its alias in settings.PENSTOCK['DATABASE']"
    if vendor == "sqlite":
        url = shlex.quote(f"sqlite:{name}")
        yield Warning(
            f"{given}: there Django can publish and enqueue, but migrate makes nothing of Penstock's, and manage.py runs no worker",
            hint=f"{hint}; or run: penstock migrate --database-url {url}, penstock queue create NAME --database-url {url}."
            " Its jobs are run by the program, or by workers in Go",
            id="penstock.W001",
        )  # fmt: skip
    elif vendor != "postgresql":
        yield Error(f"{given}: Penstock for Django needs PostgreSQL", hint=hint, id="penstock.E003")


def problems_of_rate(where: str, limits: Mapping[str, Any], policy: Any) -> list[Error]:
    """Which of rate, per and burst lacks another."""
    alone = [(limit, needs) for limit, needs in (("rate", "per"), ("per", "rate"), ("burst", "rate")) if limit in limits and needs not in policy]
    hint = "give both, as {'rate': 60, 'per': '1 minute'}"
    return [Error(f"{where} has {limit!r} without {needs!r}", hint=hint, id="penstock.E003") for limit, needs in alone[:1]]


def problems_of_handler(handler: Any) -> Iterator[tuple[str, str, str]]:
    """Where the handler of a queue is wrong, why, and what to give."""
    try:
        handler = import_string(handler) if isinstance(handler, str) else handler
    except ImportError as e:
        yield "", f"is {handler!r}: {e}", HANDLER
        return
    kinds = handler if isinstance(handler, Mapping) else {}
    if not (callable(handler) or isinstance(handler, App) or kinds):
        yield "", f"is {handler!r}, which cannot be called", HANDLER
    for kind, one in kinds.items():
        if not callable(one):
            yield f"[{kind!r}]", f"is {one!r}, which cannot be called", "a function that takes the job"


def encoder_problem(encoder: Any) -> str:
    try:
        encoder = import_string(encoder) if isinstance(encoder, str) else encoder
    except ImportError as e:
        return f": {e}"
    return "" if isinstance(encoder, type) and issubclass(encoder, JSONEncoder) else ", which is not a subclass of json.JSONEncoder"


UNIT = r"(?:us|usecs?|microseconds?|ms|msecs?|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?|w|weeks?|mons?|months?|y|yrs?|years?)"
SPAN = re.compile(rf"(?:P[\dTYMWDHS.,]+|(?:\+?\d+(?:\.\d*)?\s*{UNIT}\s*)*(?:\d+:\d\d(?::\d\d(?:\.\d*)?)?|\d+(?:\.\d*)?)?)", re.IGNORECASE)


def time_problem(given: str | timedelta) -> str:
    """What is wrong with a time span. One as a text is PostgreSQL's."""
    if isinstance(given, timedelta):
        return "which is negative" if given < timedelta() else ""
    text = given.strip().removeprefix("@").strip()
    return "" if text and SPAN.fullmatch(text) else "which is no time span"


MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
DAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
CRON: list[tuple[str, int, int, list[str]]] = [
    ("minute", 0, 59, []), ("hour", 0, 23, []), ("day of month", 1, 31, []), ("month", 1, 12, MONTHS), ("day of week", 0, 7, DAYS),
]  # fmt: skip
PART = re.compile(r"(?:\*|([0-9]{1,2}|[a-z]{3})(?:-([0-9]{1,2}|[a-z]{3}))?)(?:/([0-9]{1,2}))?")


def cron_problem(cron: str) -> str:
    """What is wrong with a cron expression, by the rules of the database. If Python has no list of the zones, only that knows them."""
    zone, zones = re.match(r"\s*TZ=(\S+)\s", cron), available_timezones()
    if zone and zones and zone[1] != "UTC" and (zone[1].lower() not in {name.lower() for name in zones} or "/" not in zone[1]):
        return f"there is no time zone {zone[1]!r}"
    fields = re.sub(r"^\s*TZ=\S+", "", cron).lower().split()
    if fields in (["@hourly"], ["@daily"], ["@midnight"], ["@weekly"], ["@monthly"], ["@yearly"], ["@annually"]):
        return ""
    if len(fields) != len(CRON):
        return f"five fields are needed, and it has {len(fields)}"
    for field, (name, least, most, names) in zip(fields, CRON, strict=True):
        for part in field.split(","):
            m = PART.fullmatch(part)
            values = [int(v) if v.isdigit() else least + names.index(v) if v in names else -1 for v in m.groups()[:2] if v] if m else [-1]
            if not all(least <= v <= most for v in values) or values != sorted(values) or (m and m[3] and int(m[3]) == 0):
                return f"{field!r} is not a valid {name}"
    return ""


def problems_of(schedule: Mapping[str, Any], queues: Set[str]) -> Iterator[tuple[str, str]]:
    """What is wrong with a schedule as a whole, and what to do."""
    if "cron" not in schedule:
        yield "has no cron", f"give {OF_A_SCHEDULE['cron'][1]}"
    elif problem := cron_problem(schedule["cron"]):
        fields = "give minute, hour, day of month, month and day of week, as '30 4 * * 1-5', or '@daily'"
        yield f"has the cron {schedule['cron']!r}: {problem}", "name one as in 'TZ=Europe/Berlin 30 4 * * *'" if "zone" in problem else fields
    is_task = "task" in schedule
    for entry in {"kind", "payload"} & set(schedule) if is_task else {"args", "kwargs"} & set(schedule):
        yield f"has {entry!r} {'and' if is_task else 'without'} a task", "give task, args and kwargs, or kind and payload"
    if not is_task and "queue" not in schedule:
        yield "has no queue", "give queue, or task"
        return
    try:
        queue = contents(schedule)[0]
    except (FieldError, ImportError) as e:
        yield f"has a task that cannot be used: {e}", "give the dotted name of a function with @task"
    else:
        if queue not in queues:
            yield f"has the queue {queue!r}, which migrate does not make", "name it in settings.PENSTOCK['QUEUES'] or in settings.TASKS"
