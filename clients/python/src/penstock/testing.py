"""For tests, on PostgreSQL: find published messages and enqueued jobs, run one or all now, let time pass at once, and clear a queue."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from ._app import AnyTask, App
from ._desk import MAX_CLAIM, Desk, Done, Options, Task, log, reason_of
from ._kinds import Passed, Strangers, by_kind, shown
from ._model import HEADER_KIND, Cancelled, DeadLetter, Encoder, HoldGroup, Job, Message, NewJob, Payload, Retry, Snooze, encode
from ._seam import Transaction, run
from ._sql import Op, Rows, at_epoch, quoted
from ._worker import Handlers


def require_published(
    tx: Transaction,
    outbox: str,
    *,
    topic: str | None = None,
    key: str | None = None,
    payload: Payload = None,
    schema: str = "penstock",
    encoder: Encoder = None,
) -> Message:
    """Returns the last message of the outbox with the given topic, key and payload; those that are None match any. Raises an AssertionError that lists the
    outbox's messages if there is none."""
    rows = read(
        tx,
        f"select payload, key, topic, cast(headers as text), id from {quoted(schema)}.{quoted(outbox)} order by seq desc limit 1000",
        [],
    )
    found = [Message(bytes(row[0]), row[1], row[2], json.loads(row[3]) if row[3] else None, row[4]) for row in rows]
    for m in found:
        if (topic is None or m.topic == topic) and (key is None or m.key == key) and has(m.payload, payload, encoder):
            return m
    raise missing(f"nothing{wanted(topic=topic, key=key, payload=payload)} was published to {outbox!r}", found)


def require_enqueued(
    tx: Transaction,
    queue: str,
    *,
    kind: str | None = None,
    key: str | None = None,
    payload: Payload = None,
    task: Any = None,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    schema: str = "penstock",
    encoder: Encoder = None,
) -> NewJob:
    """Returns the last waiting or delayed job of the queue with the given kind, key and payload; those that are None match any. Claimed jobs are left out.
    `task`, `args` and `kwargs` are of a task of an App or of Django's. Raises an AssertionError that lists the queue's jobs if there is none."""
    given_to_task: dict[str, Any] = {name: value for name, value in (("args", args), ("kwargs", kwargs)) if value is not None}
    if isinstance(task, AnyTask):
        kind = task.name
        if given_to_task:
            given_to_task = json.loads(task.job(*args or (), **kwargs or {}).payload)
    elif task is not None:
        kind = task.module_path
    columns = "payload, key, group_key, priority, cast(headers as text)"
    rows = read(
        tx,
        f"select {columns}, cast(null as bigint), coalesce(id, seq) from {quoted(schema)}.{quoted(queue)} union all"
        f" select {columns}, cast(extract(epoch from case when isfinite(due) then due end) * 1000000 as bigint), id from {quoted(schema)}._scheduled"
        f" where queue = (select id from {quoted(schema)}._queue where name = $1) order by 7 desc limit 1000",
        [queue],
    )
    found = []
    for content, its_key, group_key, priority, headers, due, _ in rows:
        given = json.loads(headers) if headers else {}
        of_kind = given.pop(HEADER_KIND, "")
        found.append(NewJob(bytes(content), its_key, group_key, priority, at_epoch(due) if due else None, None, given or None, of_kind))
    for j in found:
        if (kind is None or j.kind == kind) and (key is None or j.key == key) and has(j.payload, payload, encoder) and called_with(j.payload, given_to_task):
            return j
    raise missing(f"nothing{wanted(kind=kind, key=key, payload=payload, **given_to_task)} was enqueued in {queue!r}", found)


def called_with(payload: bytes, given: Mapping[str, Any]) -> bool:
    """Whether the payload has these arguments of a task."""
    try:
        said = json.loads(payload) if given else {}
        return isinstance(said, dict) and all(name in said and said[name] == json.loads(json.dumps(value)) for name, value in given.items())
    except ValueError:
        return False


def read(tx: Transaction, statement: str, values: Sequence[Any]) -> Rows:
    def op() -> Op[Rows]:
        return (yield statement, values)

    return run(tx, op())


def has(there: Any, payload: Payload, encoder: Encoder = None) -> bool:
    """Whether a stored payload is the expected one. Two JSON texts of the same value are equal."""
    wanted = None if payload is None else encode(payload, encoder)
    if wanted is None or there == wanted:
        return True
    try:
        return not isinstance(payload, (bytes, bytearray, memoryview, str)) and bool(json.loads(there) == json.loads(wanted))
    except ValueError:
        return False


def wanted(**fields: Payload) -> str:
    """What was asked for, in words."""
    return " with " * any(value is not None for value in fields.values()) + ", ".join(f"{n} {value!r}" for n, value in fields.items() if value is not None)


def missing(what: str, found: Sequence[object]) -> AssertionError:
    there = "\n".join(f"  {m!r}" for m in found[:10]) or "  nothing"
    return AssertionError(f"{what}. There is:\n{there}")


class Met(Strangers):
    """Of the jobs without a handler, those that the tests of this process have met. A job's time passes by `advance`, from its first meeting."""

    def __init__(self, queue: str, options: Options):
        super().__init__(queue, options)
        self.advanced = 0.0
        self.first = dict[tuple[int, datetime], float]()

    def now(self, job: Job) -> datetime:
        return super().now(job) + timedelta(seconds=self.advanced - self.first.setdefault((job.id, job.created_at), self.advanced))


MET: dict[tuple[str, str], Met] = {}


class NoJobError(AssertionError):
    """There is nothing to run, or nothing in the given group."""


@dataclass
class Ran:
    """`outcome`: done, retry, snooze, hold_group, dead_letter, cancelled or error; `how` is what the handler raised or returned."""

    job: Job
    outcome: str
    how: Any = None


def run_one(
    tx: Transaction,
    queue: str,
    handler: Handlers | App | None = None,
    *,
    kind: str | None = None,
    group_key: str | None = None,
    schema: str = "penstock",
) -> Ran:
    """Claims the next job in the test's own transaction, calls its handler, or its task of an App, and ends the attempt as a worker does. The job may have
    been enqueued in the same transaction. A job to be retried runs after `advance`. Nothing is committed. Raises an AssertionError if there is no job.
    Jobs without a group come first, and then the groups by name. `group_key` chooses one group, or with "" the jobs without. `kind` chooses the next job of
    a kind: those before it stay, behind the others of the queue. Without a handler it is that of `manage.py penstock_work`: Django's tasks, and the handler
    of settings.PENSTOCK."""
    handler = handler or of_django(queue, tx)
    desk = Desk(queue, Options(schema=schema))
    strangers = MET.setdefault((schema, queue), Met(queue, desk.o))
    chosen = by_kind(handler.handlers(queue, tx) if isinstance(handler, App) else handler, queue, desk.o, strangers)
    for when in ("immediate", "deferred"):  # barriers open at the commit, which a test does not reach
        read(tx, f"set constraints {quoted(schema)}.turn {when}", [])

    seen = set[str]()

    def claim(group: str) -> list[Job]:
        jobs = run(tx, desk.sql.claim(queue, {group: 1 if kind is None else MAX_CLAIM}, desk.o.lease, "test"))[1]
        if kind is None:
            return jobs
        seen.update(job.kind for job in jobs)
        found = next((job for job in jobs if job.kind == kind), None)
        if others := [job.lease for job in jobs if job is not found]:
            run(tx, desk.sql.release(queue, others))
        return [found] if found else []

    if not (jobs := claim(group_key or "")):
        others = list(dict.fromkeys(run(tx, desk.sql.ready_groups(queue, None, "", 1000))))
        jobs = next(filter(None, map(claim, others)), []) if group_key is None else []
    if not jobs and seen:
        raise NoJobError(f"there is no job of kind {shown(str(kind))} to run in {queue!r}; there are jobs of: {', '.join(map(shown, sorted(seen)))}")
    if not jobs:
        of = "" if group_key is None else f" of the group {group_key!r}" if group_key else " without a group"
        there = f"; other groups have jobs: {', '.join(map(repr, others[:10]))}" if of and others else ""
        raise NoJobError(f"there is no job to run in {queue!r}{of}{there}")
    jobs[0]._call = lambda op: run(tx, op)
    how: object
    try:
        how = chosen(jobs[0])
    except (Exception, SystemExit) as e:
        how = e
    words = {Retry: "retry", Snooze: "snooze", HoldGroup: "hold_group", DeadLetter: "dead_letter", Cancelled: "cancelled"}
    word = "done" if how is None or isinstance(how, Done) else next((word for kind, word in words.items() if isinstance(how, kind)), "error")
    if word in ("done", "cancelled"):
        if isinstance(how, Done):
            run(tx, desk.sql.report(queue, jobs[0].lease, how.result))
            how = None
        run(tx, desk.sql.ack_one(queue, jobs[0].lease))
    else:
        try:
            run(tx, desk.verdict(Task(jobs[0], 0), how, reason_of(how))[1])
        except Exception as e:  # perhaps the handler's own error has ended the transaction
            raise e from (how if isinstance(how, BaseException) else None)
    if word == "error":
        log.error("job %d of queue %s failed: %s", jobs[0].id, queue, reason_of(how), exc_info=how if isinstance(how, BaseException) else None)
        how = how if isinstance(how, BaseException) else TypeError(reason_of(how))
    return Ran(jobs[0], word, how)


def of_django(queue: str, tx: Transaction) -> Any:
    from .django import handlers_of

    if (found := handlers_of(queue, "test", tx=tx)) is None:
        raise TypeError(f"there is no handler for the queue {queue}: give one, or name it in settings.PENSTOCK['QUEUES'] or in settings.TASKS")
    return found


def run_all(
    tx: Transaction, queue: str, handler: Handlers | App | None = None, *, group_key: str | None = None, most: int = 1000, schema: str = "penstock"
) -> list[Ran]:
    """Runs the queue's jobs, of every group or of one, until each is done or a dead letter, and returns the attempts. Time passes at once: for retries,
    snoozes and delayed jobs. Raises an AssertionError after that many attempts, if a handler snoozes for ever, for example, and at once at a job whose kind
    has no handler. Without a handler it is as in run_one."""
    handler = handler or of_django(queue, tx)
    ran: list[Ran] = []
    name = f"(select id from {quoted(schema)}._queue where name = $1)"
    while True:
        try:
            ran.append(run_one(tx, queue, handler, group_key=group_key, schema=schema))
        except NoJobError:
            due = f"select cast(extract(epoch from min(due) - clock_timestamp()) as float) from {quoted(schema)}._scheduled where queue = {name}"
            [(seconds,)] = read(tx, f"{due} and isfinite(due) and group_key = coalesce(cast($2 as text), group_key)", [queue, group_key])
            if seconds is None:
                return ran
            advance(tx, queue, max(seconds, 0) + 0.001, schema=schema)
            continue
        if isinstance(ran[-1].how, Passed):
            raise AssertionError(f"no handler for kind {shown(ran[-1].job.kind)} in {queue!r}: there is one for {MET[schema, queue].known}")
        if len(ran) > most:
            raise AssertionError(f"after {most} attempts {queue!r} still has jobs to run. The last was: {ran[-1]!r}")


def clear(tx: Transaction, queue: str, *, schema: str = "penstock") -> None:
    """Removes the queue's jobs in every state, its dead letters and its memory of dedup keys. The role must own the schema."""
    own, s = f"{quoted(schema)}.{quoted(queue)}", quoted(schema)
    q = f"with q as (select id from {s}._queue where name = $1)"
    ids = read(
        tx,
        f"{q} select coalesce(id, seq) from {own} union all select t.id from {s}._scheduled t join q on q.id = t.queue"
        f" union all select t.id from {s}._lease t join q on q.id = t.queue where t.id is not null"
        f" union all select j.id from {s}._lease t join q on q.id = t.queue cross join lateral unnest(t.jobs) j",
        [queue],
    )
    read(tx, f"select {s}.cancel(cast($1 as text), cast($2 as bigint[]))", [queue, [row[0] for row in ids]])
    for table in ("_dead_job", "_dedup"):
        read(tx, f"{q} delete from {s}.{table} t using q where t.queue = q.id", [queue])


def advance(tx: Transaction, queue: str, seconds: float, *, schema: str = "penstock") -> None:
    """Lets that many seconds pass for a queue at once. Jobs that are delayed, snoozed or retried until then become due, leases that end until then have
    ended, and schedules run. The server's clock does not change. In a transaction it blocks others until the transaction ends. The role must own the
    schema."""
    read(tx, f"select {quoted(schema)}.advance_queue(cast($1 as text), cast(cast($2 as text) as interval))", [queue, f"{seconds:.6f} s"])
    MET.setdefault((schema, queue), Met(queue, Options(schema=schema))).advanced += seconds
