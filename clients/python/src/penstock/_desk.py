"""The state of a worker's jobs: claimed, begun, done, written. It does no I/O and starts no threads. Workers with threads hold a lock for each call."""

from __future__ import annotations

import inspect
import logging
import os
import random
import socket
import sysconfig
import threading
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from ._model import Cancelled, DeadLetter, FieldError, HoldGroup, Job, LeaseLostError, NotFoundError, Outcome, Retry, SchemaError, Snooze, keywords
from ._seam import FORBIDDEN, away, sqlstate, told
from ._sql import MAX_REASON, MAX_SECONDS, Op, Postgres, storable

log = logging.getLogger("penstock")

CALL_TIMEOUT = 30.0
"""Seconds after which a hanging call is ended."""
ACK_EVERY = 0.02
"""Seconds for which the end of a job waits for a claim to carry it, or for others."""
MAINTAIN_EVERY = 0.5
HEARTBEAT_EVERY = 30.0
MAX_UNHANDLED = 10
"""Kinds without a handler that heartbeats name. The worker remembers ten times as many."""
LOG_AGAIN, MAX_ERRORS = 10.0, 100
"""Seconds between two lines about an outage, and how many of its errors are remembered."""
IGNORED_AFTER = 1.0
"""Seconds after its timeout at which a handler that goes on ignores it."""
REMOVED = "%s was removed while it ran, as cancel does"
POLL_MIN, POLL_MAX = 0.002, 0.05
YIELDS_FOR = POLL_MAX * 1.25
"""Seconds for which a worker claims nothing once it has given a job back for another one."""
MAX_CLAIM = 10_000
LEAST_LEASE = 1.0
"""Seconds. A shorter lease may end before a call has extended it."""

SETTLED = object()
"""Returned by a handler that has ended its job itself."""


class Done:
    """Returned by a handler whose job is done, with the result that a queue keeps with it: JSON."""

    def __init__(self, result: str):
        self.result = result


REACH = "reach the database"

Count = Callable[[str, Job, float], Any]


@dataclass
class Options:
    """`concurrency`: handlers at a time. `batch`: the most jobs that one claim asks for. `lease`: how many seconds, 1 or more, a job stays with a worker that
    has died. `group_key`: the group to claim from. `groups`: several, which take turns, and `all_groups`: all. `drain_timeout`: how many seconds handlers may
    continue when the worker stops. `give_up`: the age in seconds from which a job whose kind has no handler is a dead letter; the worker must also have known
    the job for half of this time. `observe(outcome, job, seconds)` is called when an attempt has ended."""

    concurrency: int = 10
    batch: int = 100
    lease: float = 30.0
    group_key: str = ""
    groups: Sequence[str] = ()
    all_groups: bool = False
    worker: str = ""
    drain_timeout: float = 10.0
    give_up: float = 3600.0
    schema: str = "penstock"
    observe: Count | None = None

    def __post_init__(self) -> None:
        self.worker = self.worker or f"{socket.gethostname()}/{os.getpid()}"
        for name, ok in (
            ("concurrency", self.concurrency >= 1),
            ("batch", 1 <= self.batch <= MAX_CLAIM),
            ("lease", self.lease >= LEAST_LEASE),
            ("drain_timeout", self.drain_timeout >= 0),
            ("give_up", self.give_up > 0),
        ):
            if not ok:
                least = f"give {LEAST_LEASE:g} second or more" if name == "lease" else "see penstock.Options"
                raise FieldError(name, f"is {getattr(self, name)}", least)
        if isinstance(self.groups, str):
            raise FieldError("groups", f"is {self.groups!r}", "give a list of groups, or group_key")
        if bool(self.group_key) + bool(self.groups) + self.all_groups > 1:
            raise FieldError("group_key", "is given in several ways", "give one of group_key, groups and all_groups")


Options.__init__ = keywords(Options.__init__)  # type: ignore[method-assign]


class Task:
    """A claimed job, from its claim until its end is written."""

    __slots__ = ("ascii", "begun", "done", "ended", "gone", "job", "left", "lost", "outcome", "result", "took", "until", "waited")

    def __init__(self, job: Job, until: float):
        self.job, self.until = job, until
        self.begun = self.ended = self.lost = self.left = False
        self.waited = False  # it was queued when leases were extended
        self.gone = False  # it was lost before its time: the job was removed
        self.ascii = False  # the database has refused characters of the reason
        self.took, self.done = 0.0, 0.0
        self.outcome = "done"
        self.result: str | None = None


class Desk:
    def __init__(self, queue: str, options: Options):
        self.queue, self.o, self.sql, self.outage, self.turns = queue, options, Postgres(options.schema), Outage(queue), Turns(options)
        self.held: dict[int, Task] = {}
        self.queued: deque[Task] = deque()
        self.acks: list[Task] = []
        self.failures: deque[tuple[Task, object, str]] = deque()  # with the reason as text
        self.busy = 0
        self.writing = 0
        self.pace = 0.0  # how long a handler takes, about; 0 is not known
        self.extend_every = options.lease / 3
        self.pause, self.next_claim = POLL_MIN, 0.0
        self.stopping = self.interrupted = False
        self.settles = False  # handlers end their jobs in their own transactions
        self.full = False  # a limit of running jobs left hardly room at the last claim
        self.keyed = False  # the last claim brought jobs of keys: the next of these are ready once they have ended
        self.started, self.claimed_at, self.outcomes = datetime.now(timezone.utc), "", Counter[str]()
        self.next_heartbeat = 0.0
        self.passed_by: set[str] | None = set()  # groups with ready jobs at the last look, which it takes none of; None once it has said so
        self.unhandled = set[str]()  # kinds of jobs that it has met and has no handler for

    def starts(self) -> None:
        log.info("a worker of queue %s has started: %s, concurrency %d", self.queue, self.o.worker, self.o.concurrency)

    def stops(self) -> None:
        log.info("the worker of queue %s stops: %d handlers run, and have %g s to end", self.queue, self.busy, self.o.drain_timeout)

    def heartbeat(self, now: float, stopped: bool = False) -> Op[None] | None:
        """What says that this worker lives, if it is time. Only operators see it, so nothing else depends on it."""
        if now < self.next_heartbeat and not stopped:
            return None
        self.next_heartbeat = now + HEARTBEAT_EVERY * random.uniform(0.875, 1.125)
        said: dict[str, Any] = {
            "worker": self.o.worker, "version": f"penstock-client {version()}", "started_at": self.started.isoformat(),
            "concurrency": self.o.concurrency, "groups": self.turns.groups, "running": len(self.held),
            "done": self.outcomes["done"] + self.outcomes["settled"], "failed": self.outcomes["failed"], "dead": self.outcomes["dead"],
        }  # fmt: skip
        if self.unhandled:
            said["unhandled"] = sorted(self.unhandled)[:MAX_UNHANDLED]
        said |= ({"claimed_at": self.claimed_at} if self.claimed_at else {}) | ({"stopped": True} if stopped else {})
        return self._heartbeat(said, not stopped and self.turns.groups == [""])

    def _heartbeat(self, said: dict[str, Any], looks: bool) -> Op[None]:
        """With a look at groups, if this worker takes none: jobs that no other worker takes either would wait for ever, and nothing would say so."""
        yield from self.sql.heartbeat(self.queue, said)
        if not looks or self.passed_by is None:
            return
        found = {group for group in (yield from self.sql.ready_groups(self.queue, None, "", GROUPS_AT_ONCE)) if group}
        left, self.passed_by = sorted(found & self.passed_by), found
        if left:
            self.passed_by = None
            log.warning(
                "queue %s: jobs of group %r%s wait, and this worker takes only jobs without a group: start one with all_groups, or with groups",
                self.queue, left[0], " and of others" if len(left) > 1 else "",
            )  # fmt: skip

    # What is done with the database: the statements of each step, and how their rows are used

    def reach(self) -> Op[None]:
        """Looks whether the schema fits, the queue exists and the role may work on it. Another error of the maintenance may pass."""
        yield from self.sql.check()
        try:
            yield from self.sql.maintain(self.queue)
        except Exception as e:
            if permanent(e) or away(e) or sqlstate(e) == FORBIDDEN:
                raise

    def step(self, what: str, n: float) -> Op[None]:
        return self.claim(int(n)) if what == "claim" else self.ack() if what == "ack" else self.fail()

    def claim(self, n: int) -> Op[None]:
        shares = yield from self.turns.next(self.sql, self.queue, n, self.full and not self.settles)
        if not shares and not self.acks:
            return self.claimed([], {}, 0, monotonic())
        shares = shares or {self.turns.last: n}  # jobs of this group may wait for the end of those that are acked
        tasks = self.take_acks()
        try:
            yield from self.keep(tasks)
            leases, start = self.acks_of(tasks), monotonic()
            acked, jobs, self.full = yield from self.sql.claim(self.queue, shares, self.o.lease, self.o.worker, leases)
        except BaseException:
            self.return_acks(tasks)
            raise
        self.acked(tasks, acked)
        jobs, until = yield from self.still_leased(jobs, start + self.o.lease)
        self.claimed(jobs, shares, until, monotonic())

    def ack(self) -> Op[None]:
        tasks = self.take_acks()
        try:
            yield from self.keep(tasks)
            acked = yield from self.sql.ack(self.queue, [t.job.lease for t in tasks])
        except BaseException:
            self.return_acks(tasks)
            raise
        self.acked(tasks, acked)

    def keep(self, tasks: list[Task]) -> Op[None]:
        """Writes the results of jobs before their acks. One that the database refuses is left out: its job is done all the same."""
        with_result = [t for t in tasks if t.result is not None]
        parts = [with_result] if with_result else []
        while parts:
            part = parts.pop()
            try:
                yield from self.sql.reports(self.queue, [t.job.lease for t in part], [t.result or "" for t in part])
            except Exception as e:
                if not isinstance(e, (LeaseLostError, UnicodeEncodeError)) and (sqlstate(e) or "")[:2] not in ("22", "23"):
                    raise
                if len(part) > 1:
                    parts += [[t] for t in part]
                    continue
                part[0].result = None
                if not isinstance(e, LeaseLostError):  # the ack reports that
                    log.warning("the result of %s is not kept: %s", self.named(part[0].job), told(e))

    def fail(self) -> Op[None]:
        """Writes the end of an attempt that is not done."""
        task, how, reason = self.failures[0]
        word, op = self.verdict(task, how, reason)
        try:
            answer: object = yield from op
        except LeaseLostError:
            word, answer = "lost", True
        except Exception as e:
            self.refused(task, e)
            raise
        self.failures.popleft()
        self.written(task, word, answer, how, reason)

    def still_leased(self, jobs: list[Job], until: float) -> Op[tuple[list[Job], float]]:
        """Returns those of the jobs of a claim whose leases last, and until when. After a claim that took longer than a lease they may run elsewhere. So
        they are extended first. Without an answer none of them begins."""
        start = monotonic()
        if not jobs or start < until:
            return jobs, until
        try:
            lasting = set((yield from self.sql.extend(self.queue, [job.lease for job in jobs], self.o.lease)))
        except Exception:
            return [], until
        return [job for job in jobs if job.lease in lasting], start + self.o.lease

    def extend(self) -> Op[list[Task]]:
        """Returns the tasks whose handlers must be aborted."""
        leases, start = self.leases(), monotonic()
        held = yield from self.sql.extend(self.queue, leases, self.o.lease)
        return self.extended(leases, held, start + self.o.lease)

    # Claiming

    def wanted(self) -> int:
        """How many jobs to claim now: one for each free handler, and some ahead for the time until the next claim."""
        if self.stopping:
            return 0
        ahead = 0
        if self.pace and not self.full:  # what is claimed ahead would take places of jobs that could run elsewhere
            ahead = int(min(self.o.batch, self.o.concurrency * (min(0.1, self.o.lease / 10) / self.pace)))
        if len(self.queued) > ahead / 2 or len(self.acks) + self.writing >= 4 * self.o.batch:
            return 0
        return max(0, min(self.o.batch, self.o.concurrency - self.busy + ahead - len(self.queued)))

    def due(self, now: float) -> tuple[str, float]:
        """What to do now, or how long to wait: ("fail"|"claim"|"ack"|"wait"|"end", jobs or seconds)."""
        if self.failures:
            return "fail", 0
        n = self.wanted()
        if n and (now >= self.next_claim or (self.keyed and not self.busy and not self.queued)):
            return "claim", n
        if self.acks and (self.stopping or len(self.acks) >= self.o.batch or now - self.acks[0].done >= ACK_EVERY):
            return "ack", 0
        if self.stopping and not self.held:
            return "end", 0
        at = [self.next_claim] if n else []
        if self.acks:
            at.append(self.acks[0].done + ACK_EVERY)
        return "wait", max(min(at) - now, 0.0) if at else 1.0

    def take_acks(self) -> list[Task]:
        tasks, self.acks = self.acks[:MAX_CLAIM], self.acks[MAX_CLAIM:]
        self.writing += len(tasks)
        return tasks

    def acks_of(self, tasks: list[Task]) -> list[int] | None:
        """The leases that a claim acks. None if handlers end their own jobs: then each job gets a lease that can be ended alone, because acks of jobs that
        share one wait for each other."""
        return [t.job.lease for t in tasks] if tasks or not self.settles else None

    def return_acks(self, tasks: list[Task]) -> None:
        self.writing -= len(tasks)
        self.acks = tasks + self.acks

    def acked(self, tasks: list[Task], leases: Sequence[int]) -> None:
        held = set(leases)
        self.writing -= len(tasks)
        for t in tasks:
            if t.gone:
                log.warning(REMOVED, self.named(t.job))
            self.finish(t, t.outcome if t.job.lease in held else "lost")

    def claimed(self, jobs: list[Job], shares: dict[str, int], until: float, now: float) -> None:
        self.keyed = any(job.key is not None for job in jobs)
        for job in jobs:
            task = Task(job, until)
            self.held[job.lease] = task
            self.queued.append(task)
        if jobs:
            self.pause = POLL_MIN
            self.claimed_at = datetime.now(timezone.utc).isoformat()
        # Up to an eighth longer or shorter, to keep workers that started together from polling together.
        more = self.turns.took(len(jobs), shares)
        self.next_claim = now if more else now + max(self.pause, 4 * self.turns.looked) * random.uniform(0.875, 1.125)
        if not jobs:
            self.pause = min(2 * self.pause, POLL_MAX)

    # Running

    def begin(self) -> Task | None:
        if self.interrupted or self.stopping or not self.queued or self.busy >= self.o.concurrency:
            return None
        if self.failures and any(isinstance(how, HoldGroup) for _, how, _ in self.failures):  # the next may be of that group
            return None
        task = self.queued.popleft()
        task.begun = True
        self.busy += 1
        return task

    def ended(self, task: Task, how: object, took: float, now: float) -> None:
        """The handler has returned `how`, or raised it."""
        if task.left:
            return
        if task.job.aborted == "timeout" and task.job._limit is not None and (how is None or how is SETTLED or isinstance(how, (Done, Cancelled))):
            log.warning(
                "%s ran longer than its timeout of %g s: its handler ended after %.3g s, and its outcome counts",
                self.named(task.job),
                task.job._limit.total_seconds(),
                took,
            )
        how = in_time(task.job, how)
        self.busy -= 1
        task.ended, task.took, task.done = True, took, now
        passed = isinstance(how, Snooze) and how.passed  # on to another worker: no handler ran
        if not passed:
            pace = self.pace or took
            self.pace = max(pace + (took - pace) / 8, 1e-6)
        if how is SETTLED:
            self.settles = True
            self.finish(task, "settled")
        elif isinstance(how, LeaseLostError) and how.sqlstate == "PS001":
            self.finish(task, "lost")
        elif how is None or isinstance(how, (Cancelled, Done)):  # if the lease was lost, the database will report it
            task.outcome = "cancelled" if isinstance(how, Cancelled) else "done"
            task.result = how.result if isinstance(how, Done) else None
            self.acks.append(task)
        elif task.lost:
            log.warning(REMOVED if task.gone else "the lease of %s was lost while it ran; it may run elsewhere", self.named(task.job))
            self.finish(task, "lost")
        else:
            if passed and len(self.unhandled) < 10 * MAX_UNHANDLED:
                self.unhandled.add(task.job.kind)
            self.failures.append((task, how, reason_of(how)))

    def verdict(self, task: Task, how: object, reason: str) -> tuple[str, Op[Any]]:
        """The outcome of an attempt that is not done, and the statement that ends it."""
        q, lease = self.queue, task.job.lease
        kept = reason + trace_of(how)
        if task.ascii:
            reason, kept = (text.encode("ascii", errors="replace").decode("ascii") for text in (reason, kept))
        if isinstance(how, Snooze):
            return "released" if how.passed else "snoozed", self.sql.release(q, [lease], how.after or 0)
        if isinstance(how, HoldGroup):
            return "snoozed", self._hold(task.job, how.after or 0, reason if how.reason else "")
        if isinstance(how, DeadLetter):
            return "dead", self.sql.dead_letter(q, lease, kept)
        if isinstance(how, Retry):
            return "failed", self.sql.retry(q, lease, how.after, kept)
        if task.job.aborted not in (None, "timeout"):  # not the job's fault
            return "released", self.sql.release(q, [lease])
        return "failed", self.sql.retry(q, lease, None, kept)

    def _hold(self, job: Job, after: float, reason: str) -> Op[list[int]]:
        """Holds the group of a job and gives the job back. A group of the name *, which stands for all, cannot be held: then the job waits alone."""
        if after <= 0 or job.group_key == "*":
            return (yield from self.sql.release(self.queue, [job.lease], after))
        yield from self.sql.hold_group(self.queue, job.group_key, min(after, MAX_SECONDS), storable(reason, MAX_REASON))
        log.warning("%s holds its group %r for %g s%s", self.named(job), job.group_key, after, reason and f": {reason}")
        ahead = [t for t in self.queued if t.job.group_key == job.group_key]  # claimed ahead
        self.queued = deque(t for t in self.queued if t.job.group_key != job.group_key)
        for t in ahead:
            del self.held[t.job.lease]
        try:
            held = yield from self.sql.release(self.queue, [job.lease, *(t.job.lease for t in ahead)])
        except BaseException:
            self.queued.extendleft(reversed(ahead))
            self.held |= {t.job.lease: t for t in ahead}
            raise
        for t in ahead:
            self.finish(t, "released")
        return [job.lease] if job.lease in held else []

    def refused(self, task: Task, e: Exception) -> None:
        """The end of an attempt could not be written. If the database's encoding lacks characters of the reason, the next try replaces them."""
        task.ascii = task.ascii or isinstance(e, UnicodeEncodeError) or sqlstate(e) == "22P05"

    def written(self, task: Task, word: str, answer: object, how: object, reason: str) -> None:
        if word == "failed" and answer:
            word = "dead"
        if word in ("failed", "dead"):
            said = ("%s %s in attempt %d: %s", self.named(task.job), word, task.job.attempt, reason)
            error = how.error if isinstance(how, Outcome) else how
            raised = error if isinstance(error, BaseException) else None
            if word == "dead" and error is not None:
                log.error(*said, exc_info=raised)
            else:  # another attempt follows, or the handler chose it: one line is enough
                log.warning(*said, exc_info=raised if log.isEnabledFor(logging.DEBUG) else None)
        if isinstance(how, Snooze) and how.passed and not how.after:  # others that look for jobs meet it first
            self.next_claim, self.keyed = max(self.next_claim, monotonic() + YIELDS_FOR), False
        if word in ("released", "snoozed") and not answer:
            word = "lost"
        self.finish(task, word)

    def named(self, job: Job) -> str:
        """A job for the log."""
        return named(job, self.queue)

    def finish(self, task: Task, word: str) -> None:
        self.held.pop(task.job.lease, None)
        self.outcomes[word] += 1
        if word in ("done", "settled", "cancelled") and log.isEnabledFor(logging.DEBUG):
            log.debug("%s is %s after %.3f s", self.named(task.job), "cancelled" if word == "cancelled" else "done", task.took)
        if self.o.observe:
            try:
                self.o.observe(word, task.job, task.took)
            except Exception:
                log.exception("observe has failed")

    # Leases

    def leases(self) -> list[int]:
        return [lease for lease, t in self.held.items() if not t.lost]

    def extended(self, asked: Sequence[int], held: Sequence[int], until: float) -> list[Task]:
        """Returns the tasks whose handlers must be aborted, because their leases are lost."""
        kept = set(held)
        for lease in kept:
            if lease in self.held:
                self.held[lease].until = until
        lost = self._lose([self.held[lease] for lease in asked if lease not in kept and lease in self.held])
        for t in lost:
            t.gone = monotonic() < t.until
        return lost

    def expired(self, now: float) -> list[Task]:
        """Returns the tasks whose leases have expired without an answer of the database."""
        return self._lose([t for t in self.held.values() if now >= t.until])

    def stuck(self) -> list[Task]:
        """Takes out the jobs that were queued when leases were extended last. The handlers hang, and other workers may be free. So none is claimed ahead until
        one has ended."""
        tasks = [t for t in self.queued if t.waited]
        if tasks:
            log.warning("no handler has begun %d jobs of queue %s for long: they are given back for other workers", len(tasks), self.queue)
            self.pace = max(self.pace, self.extend_every)
            self.queued = deque(t for t in self.queued if not t.waited)
        for t in self.queued:
            t.waited = True
        return tasks

    def _lose(self, tasks: list[Task]) -> list[Task]:
        aborted = []
        for t in tasks:
            if t.ended or t.lost:  # the call that writes its end will report it
                continue
            t.lost = True
            if t.begun:
                aborted.append(t)
            elif t in self.queued:  # otherwise it is being given back
                self.queued.remove(t)
                self.finish(t, "lost")
        return aborted

    # Stopping

    def stop(self) -> list[Task]:
        """Keeps jobs from beginning, and returns those that have not begun."""
        self.stopping = True
        tasks, self.queued = list(self.queued), deque()
        return tasks

    def interrupt(self) -> list[Task]:
        """The drain time is over. Returns the tasks whose handlers still run."""
        self.interrupted = True
        running = [t for t in self.held.values() if t.begun and not t.ended]
        if running:
            log.warning("the worker of queue %s aborts the jobs that still run, with the ids %s", self.queue, ", ".join(str(t.job.id) for t in running))
        return running

    def leave(self) -> int:
        """Gives up the handlers that still run, and returns how many. Their jobs run again once their leases end, and their results are not written."""
        running = [t for t in self.held.values() if t.begun and not t.ended]
        for t in running:
            t.ended = t.left = True
            del self.held[t.job.lease]
            self.busy -= 1
        return len(running)


GROUPS_AT_ONCE = 16
"""How many groups one search asks for, and so the most claims between two."""


class Turns:
    """Which group the next claim is from. With several groups it is a deficit round robin over those that have jobs: in each round a group gets as many as
    its weight says, in one claim or in several."""

    def __init__(self, o: Options):
        self.of = sorted(set(o.groups)) or None  # None: all
        self.groups = [] if o.all_groups else self.of or [o.group_key]
        self.last = self.groups[0] if len(self.groups) == 1 else ""
        self.ready: deque[tuple[str, int]] = deque()  # those that have not had their turn, and how many jobs each may still get
        self.unit = 1  # jobs for a weight of 1 in this round: 1, or more if all weigh the same
        self.looked = 0.0  # how long the last search took
        self.brought, self.more = False, False  # since then: whether there were jobs, and whether there may be others

    def next(self, sql: Postgres, queue: str, n: int, several: bool) -> Op[dict[str, int]]:
        """The group whose turn it is, and how many of n jobs to claim from it. With `several` those behind it, too, if n is enough for more. None if no
        group has jobs."""
        if len(self.groups) == 1:
            return {self.last: n}
        if not self.ready:
            start = monotonic()
            found = yield from sql.ready_groups(queue, self.of, self.last, GROUPS_AT_ONCE)
            weights = Counter(found)
            self.unit = 1  # small rounds: jobs claimed ahead would be out of proportion
            if len(weights) == len(found) > 0:
                self.unit = max(n // len(weights), 1) if several else -(-n // len(weights))
            self.ready = deque((group, weight * self.unit) for group, weight in weights.items())
            self.looked, self.brought, self.more = monotonic() - start, False, len(weights) == GROUPS_AT_ONCE
        shares: dict[str, int] = {}
        for group, left in self.ready:
            if n <= 0 or (shares and not several):
                break
            self.last, shares[group], n = group, min(n, left), n - left
        return shares

    def took(self, jobs: int, shares: dict[str, int]) -> bool:
        """Notes how many jobs a claim has brought, and returns whether another claim is worthwhile at once. Of several groups, each has had its turn."""
        asked, several = sum(shares.values()), len(shares) > 1
        if len(self.groups) == 1:
            return jobs == asked
        self.brought, self.more = self.brought or jobs > 0, self.more or several or jobs == asked > 0
        for group, share in shares.items() if self.ready else ():
            left = self.ready.popleft()[1] - (share if several else jobs)
            # A claim passes over jobs that others are claiming, and leaves more.
            if left > 0 and (several or (jobs > 0 and (jobs == share or self.unit == 1))):
                self.ready.appendleft((group, left))
        return bool(self.ready) or (self.more and self.brought)


class Outage:
    """Tracks failing calls of the database: one log line when the first fails, one when all work again. In between each other error is logged once, one
    line in ten seconds at most: a server that was stopped may have another password now."""

    def __init__(self, queue: str):
        self.queue, self.calls, self.since, self.lock = queue, set[str](), 0.0, threading.Lock()
        self.logged, self.errors = 0.0, set[str]()

    def fails(self, call: str, e: BaseException) -> None:
        with self.lock:
            now, error = monotonic(), " ".join(told(e).split())
            if not self.calls:
                self.since, self.errors = now, set()
            if not self.calls or (error not in self.errors and now - self.logged >= LOG_AGAIN):
                self.logged = now
                if len(self.errors) == MAX_ERRORS:
                    self.errors.clear()
                self.errors.add(error)
                step = " (start the database, or correct its address)" if call == REACH else ""
                log.warning("the worker of queue %s cannot %s, and tries until it can: %s%s", self.queue, call, error, step)
            self.calls.add(call)

    def works(self, call: str) -> None:
        if not self.calls:
            return
        with self.lock:
            self.calls.discard(call)
            if not self.calls:
                log.warning("the worker of queue %s goes on, %.1f s later", self.queue, monotonic() - self.since)


IDLE = 1.0
"""Seconds after which a connection for a job's transaction is tried before it is used again."""


def unbegun(outage: Outage, e: Exception) -> Outcome:
    """The outcome of a job whose transaction cannot begin: its handler was not called, so no attempt is spent."""
    outage.fails("begin the transactions of jobs", e)
    return Snooze(random.uniform(0.875, 1.125))


def within(job: Job, timeout: timedelta | None, later: Callable[..., Callable[[], object]]) -> Callable[[], object]:
    """Aborts a handler after that time, with `later(seconds, function, argument)`. Returns what stops the clock. The log names a handler that ignores it:
    nothing can stop a thread."""
    if timeout is None:
        return lambda: None
    seconds, ended, queue = timeout.total_seconds(), False, job._home[1] if job._home else ""
    job._limit = timeout

    def rings(why: str) -> None:
        job.abort(why)
        if not ended:
            stops.append(later(IGNORED_AFTER, ignored, why))

    def ignored(_why: str) -> None:
        if not ended:
            log.warning("%s runs longer than its timeout of %g s: its handler ignores it", named(job, queue), seconds)

    def stop() -> None:
        nonlocal ended
        ended = True
        for one in stops:
            one()

    stops = [later(seconds, rings, "timeout")]
    return stop


def named(job: Job, queue: str) -> str:
    """A job for the log."""
    return f"job {job.id}{job.kind and f', kind {job.kind},'} of queue {queue}"


def in_thread(seconds: float, fn: Callable[[str], object], why: str) -> Callable[[], object]:
    timer = threading.Timer(seconds, fn, [why])
    timer.daemon = True
    timer.start()
    return timer.cancel


def in_time(job: Job, how: Any) -> Any:
    """How an attempt ended: if it failed after its time was over, for that reason."""
    if job.aborted != "timeout" or job._limit is None or isinstance(how, Outcome) or not isinstance(how, BaseException):
        return how
    over = TimeoutError(f"the job ran longer than its timeout of {job._limit.total_seconds():g} s")
    over.__cause__ = how  # which has the traceback
    return over


def reason_of(how: object) -> str:
    """The reason that is kept with the job. Converting a handler's exception to text runs the handler's code, which may raise."""
    name = type(how).__name__
    try:
        if isinstance(how, Outcome):
            return f"{how.reason or name}"
        if isinstance(how, BaseException):
            first, line, rest = f"{name}: {how}".removesuffix(": ").partition("\n")
            return first + "".join(f" ({place})" for place in places_of(how)[:1]) + line + rest
        return f"the handler returned {how!r}, which is not an outcome"
    except BaseException as e:
        return f"{name}, whose text raises {type(e).__name__}"


MAX_PLACES, MAX_CAUSES = 10, 5
LIBRARIES = ("<frozen", *(os.path.join(path, "") for path in {*map(sysconfig.get_path, ("stdlib", "purelib", "platlib")), os.path.dirname(__file__)}))


def places_of(e: BaseException) -> list[str]:
    """The lines of the program's own code in the traceback of an exception, or else of its cause, the innermost first. The log gets the whole
    traceback."""
    raised = e if e.__traceback__ or not e.__cause__ else e.__cause__
    frames = [(frame.f_code, line) for frame, line in traceback.walk_tb(raised.__traceback__)]
    own = [(code, line) for code, line in frames if not code.co_filename.startswith(LIBRARIES)]
    return [f"{os.path.basename(code.co_filename)}:{line} in {code.co_name}" for code, line in reversed(own or frames[-1:])]


def trace_of(how: object) -> str:
    """The text that is kept behind the reason of a failure: from where the program's own code was called, and the causes."""
    e = how.error if isinstance(how, Outcome) else how
    if not isinstance(e, BaseException):
        return ""
    lines = [f"  from {place}" for place in places_of(e)[1:MAX_PLACES]]
    for _ in range(MAX_CAUSES):
        cause = e.__cause__ or (None if e.__suppress_context__ else e.__context__)
        if cause is None:
            break
        e = cause
        lines.append("caused by " + reason_of(e).partition("\n")[0])
    return "".join(f"\n{line}" for line in lines)


def threads_take(handler: object) -> None:
    """Refuses a coroutine function: a thread would only get a coroutine, and do no work."""
    if isinstance(handler, Mapping):
        for one in handler.values():
            threads_take(one)
    if inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(getattr(handler, "__call__", None)):  # noqa: B004
        raise TypeError("the handler is an async function, which a worker with threads cannot call: use penstock.aio.work, or work_tx of penstock.aio")


def permanent(e: BaseException) -> bool:
    """Whether another attempt would not help."""
    return isinstance(e, (NotFoundError, SchemaError, FieldError))


def version() -> str:
    from . import __version__

    return __version__


def growing(failures: int) -> float:
    """The pause after failures in a row. It doubles from 50 ms to 5 s and is up to half shorter, to keep many workers from coming back together."""
    return min(0.05 * (1 << min(failures, 7)), 5.0) * random.uniform(0.5, 1)


monotonic = time.monotonic
