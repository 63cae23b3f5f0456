"""The checks of settings.PENSTOCK for `manage.py check`. Django also runs them before migrate and before the commands of this package."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from difflib import get_close_matches
from json import JSONEncoder
from typing import Any

from django.conf import settings
from django.core.checks import Error
from django.utils.module_loading import import_string

TEXT = (str, "a text")
NUMBER = (int, "a whole number")
TIME = ((str, timedelta), "a timedelta, or a text as '30 days'")
KEYS: dict[str, tuple[Any, str]] = {
    "DATABASE": (str, "a text, the alias of a database in settings.DATABASES"),
    "SCHEMA": TEXT,
    "OUTBOXES": ((list, tuple, set, frozenset), "a list of names, as ['orders']"),
    "QUEUES": (Mapping, "a dict with the settings of each queue, as {'emails': {}}"),
    "INBOXES": (Mapping, "a dict with the settings of each inbox, as {'billing': {}}"),
    "ENCODER": ((str, type), "a subclass of json.JSONEncoder, or its dotted name"),
}
OF_A_QUEUE: dict[str, tuple[Any, str]] = {
    "handler": (object, "the dotted name of a function, as 'shop.jobs.send'"),
    "ordering": (str, "'fifo' or 'lifo'"),
    "max_attempts": NUMBER,
    "max_running": NUMBER,
    "dedup_window": TIME,
    "keep_done": TIME,
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
            elif not isinstance(value, kind) or isinstance(value, bool):
                error(2, f"{where}[{name!r}]", f"is {value!r}", f"give {wanted}")
            else:
                good[name] = value
        return good

    top = entries("", getattr(settings, "PENSTOCK", {}), KEYS)
    if top.get("DATABASE", "default") not in settings.DATABASES:
        error(3, "['DATABASE']", f"is {top['DATABASE']!r}, which is not in settings.DATABASES", f"there are: {', '.join(settings.DATABASES)}")
    encoder = top.get("ENCODER", JSONEncoder)
    try:
        encoder = import_string(encoder) if isinstance(encoder, str) else encoder
        problem = "" if isinstance(encoder, type) and issubclass(encoder, JSONEncoder) else ", which is no subclass of json.JSONEncoder"
    except ImportError as e:
        problem = f": {e}"
    if problem:
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
        handler = queue.get("handler", check_settings)
        try:
            handler = import_string(handler) if isinstance(handler, str) else handler
        except ImportError as e:
            error(3, f"{where}['handler']", f"is {handler!r}: {e}", "give the dotted name of a function that takes the job, as 'shop.jobs.send'")
        else:
            if not callable(handler):
                error(3, f"{where}['handler']", f"is {handler!r}, which cannot be called", "give the dotted name of a function that takes the job")
    return found
