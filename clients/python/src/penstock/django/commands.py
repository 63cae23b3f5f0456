"""Code that Penstock's commands share."""

from __future__ import annotations

import argparse
import contextlib
import re
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

from django.core.management.base import CommandError
from django.db import Error as DatabaseError

from .._model import Error
from .._seam import known, sqlstate

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@contextlib.contextmanager
def told() -> Iterator[None]:
    """Prints an error as a sentence without a traceback; --traceback adds it."""
    try:
        yield
    except (Error, DatabaseError, ImportError) as e:
        if isinstance(e, DatabaseError) and sqlstate(e) in ("3F000", "42P01"):  # a schema, or a table, is missing
            first = str(e).partition("\n")[0]
            raise CommandError(f"{first} (the database is not migrated, or older than this client; run: manage.py migrate)") from e
        raise CommandError(said(e)) from e


def said(e: BaseException) -> str:
    """An error as a sentence, with the next step."""
    return str(e if isinstance(e, Error) else known(e)).strip()


def duration(text: str) -> timedelta:
    """Of an argument, such as 90s, 24h or 7d."""
    if not (found := re.fullmatch(r"(\d+)([smhd])", text)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration: give one such as 90s, 24h or 7d")
    return timedelta(seconds=int(found[1]) * UNITS[found[2]])


def age(seconds: float) -> str:
    """One such as 570ms, 4.2s, 3m5s, 26h7m0s or 12d."""
    if seconds <= 0:
        return "-"
    if seconds < 60:
        return f"{round(seconds * 1000)}ms" if seconds < 1 else f"{seconds:.1f}s"
    if seconds >= 100 * 3600:
        return f"{int(seconds // 86400)}d"
    hours, rest = divmod(round(seconds), 3600)
    return (f"{hours}h" if hours else "") + f"{rest // 60}m{rest % 60}s"


def since(at: datetime) -> str:
    return age(max((datetime.now(timezone.utc) - at).total_seconds(), 0.001))


def clock(at: datetime) -> str:
    return f"{at.astimezone(timezone.utc):%Y-%m-%d %H:%M:%S}"


def plural(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def figure(one: dict[str, Any], name: str) -> str:
    """With a + if there are more."""
    return f"{one[name]:,}" + ("+" if name in one.get("at_least", ()) else "")


def visible(text: object, most: int = 0) -> str:
    """On one line, without characters that steer a terminal."""
    made = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))
    return made[: most - 1] + "…" if most and len(made) > most else made


def table(head: str, cells: Sequence[Sequence[str]]) -> str:
    """Columns whose names begin with > are aligned to the right."""
    names = head.split("  ")
    lines = [[name.lstrip(">") for name in names], *[[cell or "-" for cell in row] for row in cells]]
    wide = [max(len(line[i]) for line in lines) for i in range(len(names))]
    return "\n".join(
        "  ".join(cell.rjust(wide[i]) if names[i].startswith(">") else cell.ljust(wide[i]) for i, cell in enumerate(line)).rstrip() for line in lines
    )
