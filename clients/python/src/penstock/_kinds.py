"""Handlers by kind, and what becomes of a job that has none of them."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from ._desk import Options, log, monotonic
from ._model import DeadLetter, FieldError, Job, Outcome, Snooze, kind_text

PASS_FOR = 10.0
"""The most seconds after which a job that has no handler here comes back, for another worker. Up to an eighth longer or shorter."""
FORGET_AFTER = 15.0
"""Seconds after which a job that has not come back is new to the worker, up to twice that."""
WARN_OF = 100
SHOWN = 20
MAX_MET = 10_000
"""Bounds the memory of a worker that meets many such jobs. Others rest for `PASS_FOR`, and are not given up meanwhile."""


class Passed(Snooze):
    """Leaves a job to another worker, perhaps one of a newer version."""

    passed = True


class Strangers:
    """The jobs of a queue that have no handler in this worker."""

    def __init__(self, queue: str, options: Options):
        self.queue, self.o, self.known, self.lock = queue, options, "", threading.Lock()
        self.told = set[str]()
        self.met: dict[tuple[int, datetime], datetime] = {}  # the old ones, with the time at which the worker first met each
        self.lately: dict[int, tuple[float, bool]] = {}  # those met since `turned`: when first, and whether it rests if it is met again
        self.before: dict[int, tuple[float, bool]] = {}  # and those before
        self.turned = 0.0

    def now(self, job: Job) -> datetime:
        """When the job was claimed, by the database's clock."""
        return job.lease_until - timedelta(seconds=self.o.lease)

    def pass_on(self, job: Job) -> Outcome:
        """Leaves a job to another worker, or gives it up: perhaps its kind is a typing error."""
        with self.lock:
            new = job.kind not in self.told and len(self.told) < WARN_OF
            self.told.add(job.kind) if new else None
            over = self._is_over(job, self.now(job))
            rest = self.rest(job, monotonic())
        if new:
            log.warning(
                "queue %s: no handler for kind %s in this worker, which has %s. Such jobs are left to other workers, and are dead letters after %g min:"
                " add a handler, or enqueue with one of these kinds", self.queue, shown(job.kind), self.known, self.o.give_up / 60,
            )  # fmt: skip
        if over:
            return DeadLetter(f"no handler for kind {shown(job.kind)}")
        return Passed(rest * random.uniform(0.875, 1.125))

    def rest(self, job: Job, now: float) -> float:
        """For how long a job that is passed on may not be claimed. First it may be at once, and this worker leaves others the time to do so. If it meets
        the job again, none has had room, and the job rests for half as long as the worker knows it. Then it is the others' turn again."""
        if now - self.turned >= FORGET_AFTER:
            self.lately, self.before, self.turned = {}, self.lately, now
        if job.id not in self.lately and len(self.lately) >= MAX_MET:
            return PASS_FOR
        first, rests = self.lately.get(job.id) or self.before.get(job.id) or (now, False)
        self.lately[job.id] = first, not rests
        return min(max((now - first) / 2, 0.001), PASS_FOR) if rests else 0.0

    def _is_over(self, job: Job, now: datetime) -> bool:
        """Jobs that have waited long, or were enqueued for later, meet other workers first: they have half of the time from the first meeting."""
        half = self.o.give_up / 2
        if (now - job.created_at).total_seconds() < half:  # need not be remembered
            return False
        which = job.id, job.created_at
        if first := self.met.get(which):
            over = (now - first).total_seconds() >= half
            if over:
                del self.met[which]
            return over
        if len(self.met) >= MAX_MET:
            oldest = next(iter(self.met))
            if (now - self.met[oldest]).total_seconds() > self.o.give_up:  # another worker has taken it, probably
                del self.met[oldest]
        if len(self.met) < MAX_MET:
            self.met[which] = now
        return False


def shown(kind: str) -> str:
    return json.dumps(kind, ensure_ascii=False)


def known_of(handlers: Mapping[str, Any]) -> str:
    """The kinds that have a handler, for people."""
    kinds = sorted(kind for kind in handlers if handlers.get(kind) is not None)
    more = "others" if len(kinds) > SHOWN else ""
    return ", ".join(filter(None, [*map(shown, kinds[:SHOWN]), more, getattr(handlers, "also", "")])) or "none"


def called(handler: Any, what: str) -> Callable[..., Any]:
    """The handler, if it can be called. A worker would spend an attempt of each job on another."""
    if callable(handler):
        return handler  # type: ignore[no-any-return]
    if hasattr(handler, "handlers"):
        raise FieldError("handler", f"{what} an App", "run it with its work or awork, or give its handlers(queue)")
    raise FieldError("handler", f"{what} {handler!r:.100}", "give a function that takes the job, or one for each kind, as {'welcome': send_welcome}")


def by_kind(handler: Any, queue: str, options: Options, strangers: Strangers | None = None) -> Callable[..., Any]:
    """The handler, or a function that calls the one of its job's kind. That of the kind '' takes jobs without one. The job is the last argument."""
    if not isinstance(handler, Mapping):
        return called(handler, "is")
    if not handler:
        raise FieldError("handler", "has no kind", "give a handler for each kind, as {'welcome': send_welcome}")
    for kind in handler:
        kind_text(kind)
        if (one := handler.get(kind)) is not None:
            called(one, f"of kind {shown(kind)} is")
    passing = strangers or Strangers(queue, options)
    passing.known = known_of(handler)

    def handle(*args: Any) -> Any:
        job: Job = args[-1]
        chosen = handler.get(job.kind)
        if chosen is not None:
            return chosen(*args)
        raise passing.pass_on(job)

    return handle
