"""Code that Penstock's commands share."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from django.core.management.base import CommandError
from django.db import Error as DatabaseError

from .._model import Error


@contextlib.contextmanager
def told() -> Iterator[None]:
    """Prints an error as a sentence without a traceback; --traceback adds it."""
    try:
        yield
    except (Error, DatabaseError, ImportError) as e:
        raise CommandError(str(e).strip()) from e
