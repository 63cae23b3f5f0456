"""Handlers by kind, and what becomes of a job that has none of them."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from ._desk import Options, log
from ._model import DeadLetter, FieldError, Job, Outcome, Snooze, kind_text

PASS_FOR = 10.0
"""Seconds after which a job that has no handler here comes back, for another worker. Up to an eighth longer or shorter."""
PASS_UNTIL = timedelta(hours=1)
"""The age from which such a job is a dead letter: perhaps its kind is a typing error."""
WARN_OF = 100


class Passed(Snooze):
    """Leaves a job to another worker, perhaps one of a newer version."""

    passed = True


def pass_on(job: Job, lease: float) -> Outcome:
    claimed = job.lease_until - timedelta(seconds=lease)  # by the database's clock
    if claimed - job.created_at > PASS_UNTIL:
        return DeadLetter(f"no handler for kind {json.dumps(job.kind, ensure_ascii=False)}")
    return Passed(PASS_FOR * random.uniform(0.875, 1.125))


def by_kind(handler: Any, queue: str, options: Options) -> Callable[..., Any]:
    """The handler, or a function that calls the one of its job's kind. That of the kind '' takes jobs without one. The job is the last argument."""
    if not isinstance(handler, Mapping):
        return handler  # type: ignore[no-any-return]
    if not handler:
        raise FieldError("handler", "has no kind", "give a handler for each kind, as {'welcome': send_welcome}")
    for kind in handler:
        kind_text(kind)
    told, lock = set[str](), threading.Lock()

    def handle(*args: Any) -> Any:
        job: Job = args[-1]
        chosen = handler.get(job.kind)
        if chosen is not None:
            return chosen(*args)
        with lock:
            new = job.kind not in told and len(told) < WARN_OF
            told.add(job.kind) if new else None
        if new:
            log.warning("the worker of queue %s has no handler for kind %r: it leaves such jobs to others, until they are dead letters", queue, job.kind)
        raise pass_on(job, options.lease)

    return handle
