"""What Penstock's commands share."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from django.core.management.base import CommandError
from django.db import DatabaseError, InterfaceError

from .._model import Error


@contextlib.contextmanager
def told() -> Iterator[None]:
    """What is a sentence for whoever runs the command is no traceback; --traceback has one all the same."""
    try:
        yield
    except (Error, DatabaseError, InterfaceError, ImportError) as e:
        raise CommandError(str(e).strip()) from e
