"""What the commands and the admin pages show, and what they do, on PostgreSQL. Names are those of `penstock status` and `penstock dead`."""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any, TypeVar

from django.db import ProgrammingError, connections, transaction

from .._model import HEADER_KIND, Error, NotFoundError, SchemaError
from .._seam import OF_SCHEDULES, sqlstate
from .._sql import quoted
from . import setting

T = TypeVar("T")
MOST = 1000
"""Up to so many messages, jobs and dead letters of each kind are counted."""
AT_ONCE = 500

BACKLOG = """
    select s.id, s.name, c.n, c.age, h.holder, h.since, h.epoch, h.lease_until > clock_timestamp(),
           (select count(*) from (select from {schema}._dead_letter d where d.subscription = s.id and not d.retry limit %(most)s) n),
           (select count(*) from (select from {schema}._dead_letter d where d.subscription = s.id and d.retry limit %(most)s) n),
           (select count(*) from (
                select from {schema}._parked_key l
                  join {schema}._parked m on m.subscription = l.subscription and m.parked_key = l.parked_key and m.p >= l.head
                 where l.subscription = s.id and l.head is not null and not exists (
                    select from {schema}._parked_key x where x.subscription = l.subscription and x.parked_key = l.parked_key and x.n > l.n)
                 limit %(most)s) n)
      from {schema}._subscription s left join lateral {schema}._head(s.id) h on true
     cross join lateral (select coalesce(h.done, '3:3:') as done, coalesce(h.upto, h.done, '3:3:') as upto, coalesce(h.ahead, '{{}}') as ahead,
        case when h.upto is null then coalesce(h.low, 0) else least(h.pos, h.upto_low) end as bound,
        case when h.upto is null then 9223372036854775807 else h.pos end as pos) w
     cross join lateral (select count(*) as n, extract(epoch from clock_timestamp() - min(created_at))::float8 as age from (
        select created_at from {outbox} e where e.xid = any (array(select pg_snapshot_xip(w.upto))) and e.seq + 0 <= w.bound and not e.seq <@ w.ahead
         union all
        (select created_at from {outbox} e where e.seq > w.bound and not pg_visible_in_snapshot(e.xid, w.done)
            and not (pg_visible_in_snapshot(e.xid, w.upto) and e.seq <= w.pos) and not e.seq <@ w.ahead order by e.seq) limit %(most)s) u) c
     where s.outbox = %(name)s order by s.name collate "C\""""
"""The subscriptions of an outbox. What their cursors do not cover is the backlog: see store/postgres/sql/status.sql."""

WORKERS = """
    select q.name, l.worker, sum(coalesce(256 - bit_count(l.done), 1))::bigint, max(l.lease_until)
      from {schema}._lease l join {schema}._queue q on q.id = l.queue
     where l.lease_until > clock_timestamp() group by 1, 2 order by 1, 2"""
"""A worker that was killed keeps its leases until another takes their jobs: only those that run say that it lives."""

SCHEDULES = """
    select q.name, s.name, s.cron, s.next, coalesce(s.headers->>'{kind}', ''), coalesce(s.key, ''), coalesce(s.dedup_key, ''),
           s.group_key, s.priority, s.paused, s.skip_overlap, s.last_job, s.payload
      from {schema}._schedule s join {schema}._queue q on q.id = s.queue order by q.name collate "C", s.name collate "C\""""

MINE = "has_function_privilege(to_regproc({schema}._q(format('_%%s.cancel', q.name))), 'execute')"
"""A queue that this role may look after."""

HIDDEN = f'select q.name from {{schema}}._queue q where not {MINE} order by q.name collate "C"'

QUEUES = (
    """
    select q.name, q.lifo, q.paused, q.max_attempts, coalesce(q.max_running, 0), c.n
      from (select * from {schema}._queue q where """
    + MINE
    + """ offset 0) q cross join lateral {schema}._count_of(q.name, %(most)s) c(n) order by q.name collate "C\""""
)

FORBIDDEN = "42501"
SEES = "penstock queue grant QUEUE ROLE --operate, or penstock outbox grant ROLE --relay"


def rows(statement: str, values: Mapping[str, Any] | None = None, **names: str) -> list[tuple[Any, ...]]:
    connection = connections[setting("DATABASE")]
    if connection.vendor != "postgresql":
        raise SchemaError(f"this reads PostgreSQL, and {connection.alias} is {connection.vendor}", hint="run: penstock status --database-url sqlite:FILE")
    with connection.cursor() as cursor, named_rights():
        cursor.execute(statement.format(schema=quoted(setting("SCHEMA")), kind=HEADER_KIND, **names), values or {})
        return list(cursor.fetchall()) if cursor.description else []


@contextlib.contextmanager
def named_rights() -> Iterator[None]:
    """Says in the error of a role that lacks a right which one that is."""
    try:
        yield
    except ProgrammingError as e:
        if sqlstate(e) != FORBIDDEN:
            raise
        first = str(e).partition("\n")[0]
        hint = OF_SCHEDULES if "schedule" in first else f"the role that owns the schema can run: {SEES}"
        raise Error(first, sqlstate=FORBIDDEN, hint=hint) from e


def readable(read: Callable[[], T]) -> T | None:
    """What this role may read, or None."""
    try:
        with transaction.atomic(using=setting("DATABASE")):
            return read()
    except Error as e:
        if e.sqlstate != FORBIDDEN:
            raise
        return None


def status(most: int | None = MOST) -> tuple[dict[str, list[dict[str, Any]]], list[str]]:
    """Outboxes, queues and inboxes, those that this role may read, and a line for the others. Raises Error if it may read none."""
    parts: dict[str, Any] = {"outboxes": lambda: outboxes(most), "queues": lambda: queues(most), "inboxes": inboxes}
    found = {name: readable(read) for name, read in parts.items()}
    unseen = [name for name, there in found.items() if there is None]
    if len(unseen) == len(parts):
        parts["queues"]()
    told = [f"{' and '.join(unseen)}: this role may not read them; the role that owns the schema can run: {SEES}"] if unseen else []
    hidden = [row[0] for row in rows(HIDDEN)] if found["queues"] is not None else []
    if hidden:
        more = f" and {len(hidden) - 1} more" if len(hidden) > 1 else ""
        told.append(
            f"queue {hidden[0]}{more}: this role may not read it; the role that owns the schema can run: penstock queue grant {hidden[0]} ROLE --operate"
        )
    return {name: there or [] for name, there in found.items()}, told


@contextlib.contextmanager
def planned_by_index() -> Iterator[None]:
    """Settings that keep plans off statistics, as the program has them: those of a ring's segments are never up to date."""
    names = ("jit", "enable_seqscan", "enable_bitmapscan")
    with transaction.atomic(using=setting("DATABASE")):
        for name in names:
            rows(f"set local {name} = off")
        yield
        for name in names:
            rows(f"set local {name} = default")


def nanoseconds(seconds: float | None) -> int:
    return round((seconds or 0) * 1e9)


def outboxes(most: int | None = MOST) -> list[dict[str, Any]]:
    found = []
    for (outbox,) in rows('select name from {schema}._outbox order by name collate "C"'):
        subscriptions = []
        with planned_by_index():
            read = rows(BACKLOG, {"name": outbox, "most": most}, outbox=f"{quoted(setting('SCHEMA'))}.{quoted(outbox)}")
        for _, name, backlog, age, holder, since, epoch, held, dead, sent_back, parked in read:
            one = {"subscription": name, "backlog": backlog, "oldest_age_ns": nanoseconds(age), "parked": parked + sent_back, "dead_letters": dead}
            one |= {"epoch": epoch or 0} | ({"holder": holder, "holder_since": since} if held else {})
            subscriptions.append(one | at_least(one, most, "backlog", "parked", "dead_letters"))
        found.append({"outbox": outbox, "subscriptions": subscriptions})
    return found


def queues(most: int | None = MOST) -> list[dict[str, Any]]:
    """With who works on each, and its schedules, if this role may read these."""
    leases, planned = readable(lambda: rows(WORKERS)), readable(schedules)
    workers: dict[str, list[dict[str, Any]]] = {}
    for queue, worker, running, until in leases or ():
        workers.setdefault(queue, []).append({"worker": worker, "running": running, "lease_until": until})
    timed: dict[str, list[dict[str, Any]]] = {}
    for schedule in planned or ():
        timed.setdefault(schedule.pop("queue"), []).append(schedule)
    found = []
    for queue, lifo, paused, max_attempts, max_running, n in rows(QUEUES, {"most": most}):
        one = {"queue": queue, "order": "lifo" if lifo else "fifo", "paused": paused, "max_attempts": max_attempts, "max_running": max_running}
        one |= dict(zip(("ready", "running", "delayed", "waiting", "dead_letters"), n, strict=False)) | {"oldest_age_ns": n[5] * 1000}
        one |= at_least(one, most, "ready", "running", "delayed", "waiting", "dead_letters")
        one |= {} if leases is None else {"workers": workers.get(queue, [])}
        found.append(one | ({} if planned is None else {"schedules": timed.get(queue, [])}))
    return found


def waiting_groups(queue: str, seconds: float) -> tuple[list[str], list[str]]:
    """Of the first groups with ready jobs: those whose jobs have waited for so long though none runs, and those that a hold or a limit keeps. Both are empty
    for a role that may not read groups."""
    read = """
        select group_key, held_until is not null or running >= max_running or tokens = 0, running = 0 and oldest >= make_interval(secs => %(seconds)s)
          from {schema}.queue_groups(%(queue)s) where ready > 0"""
    try:
        with transaction.atomic(using=setting("DATABASE")):
            found = rows(read, {"queue": queue, "seconds": seconds})
    except (ProgrammingError, Error):
        return [], []
    return [group for group, kept, left in found if left and not kept], [group for group, kept, _ in found if kept]


def works(queue: str) -> bool:
    """Whether a worker of the queue lives."""
    read = """
        select exists (select from (select distinct on (l.worker) l.report from {schema}._lease l join {schema}._queue q on l.queue = -q.id
                                     where q.name = %(queue)s and l.lease_until > clock_timestamp() order by l.worker, l.lease_until desc) h
                        where h.report->>'stopped' is distinct from 'true')"""
    return bool(rows(read, {"queue": queue})[0][0])


def at_least(one: Mapping[str, Any], most: int | None, *names: str) -> dict[str, list[str]]:
    """Which of the figures were not counted to their end."""
    more = [name for name in names if most and one[name] >= most]
    return {"at_least": more} if more else {}


def inboxes() -> list[dict[str, Any]]:
    return [{"consumer": consumer, "keep": keep} for consumer, keep in rows("select consumer, keep::text from {schema}.inboxes() order by 1")]


def schedules() -> list[dict[str, Any]]:
    names = ("queue", "name", "cron", "next", "kind", "key", "dedup_key", "group", "priority", "paused", "skip_overlap", "last_job")
    found = [dict(zip(names, row, strict=False)) | payload_of(bytes(row[12])) for row in rows(SCHEDULES)]
    return [{name: value for name, value in one.items() if name != "last_job" or value} for one in found]


def drop_schedule(queue: str, name: str) -> None:
    rows("select {schema}.unschedule(%(queue)s, %(name)s)", {"queue": queue, "name": name})


def on_schedule(function: str, queue: str, name: str) -> None:
    """Calls pause_schedule, resume_schedule or run_schedule."""
    rows(f"select {{schema}}.{function}(%(queue)s, %(name)s)", {"queue": queue, "name": name})


def pause(queue: str, paused: bool) -> None:
    rows(f"select {{schema}}.{'pause' if paused else 'resume'}_queue(%(queue)s)", {"queue": queue})


def payload_of(payload: bytes) -> dict[str, str]:
    try:
        return {"payload": payload.decode()}
    except UnicodeDecodeError:
        return {"payload_base64": base64.b64encode(payload).decode()}


@dataclass
class Choice:
    """Of dead letters; what is empty chooses all. `error` is a part of the last error's text, `cause` its whole first line."""

    ids: Sequence[str] = ()
    seqs: Sequence[int] = ()
    key: str = ""
    kind: str = ""
    topic: str = ""
    group: str = ""
    error: str = ""
    cause: str | None = None
    older_than: timedelta | None = None
    newer_than: timedelta | None = None
    after: int = 0
    limit: int | None = None

    def narrows(self) -> bool:
        return (
            bool(self.ids or self.seqs or self.key or self.kind or self.topic or self.group or self.error or self.older_than or self.newer_than)
            or self.cause is not None
        )


class Dead:
    """The dead letters of a queue, or of a subscription of an outbox."""

    def __init__(self, name: str, subscription: str = ""):
        self.name, self.subscription = name, subscription
        found = [] if subscription else rows("select id from {schema}._queue where name = %(name)s", {"name": name})
        self.is_queue = bool(found)
        if not found:
            found = self._subscriptions(name, subscription)
        self.id = found[0][0]
        self.table, self.of, self.number = ("_dead_job", "d.queue", "id") if self.is_queue else ("_dead_letter", "not d.retry and d.subscription", "seq")

    def _subscriptions(self, name: str, subscription: str) -> list[tuple[Any, ...]]:
        found = rows(
            "select s.id, s.name from {schema}._outbox o left join {schema}._subscription s on s.outbox = o.name"
            ' where o.name = %(name)s order by s.name collate "C"',
            {"name": name},
        )
        if not found:
            raise NotFoundError(f"there is no queue and no outbox {name!r}", hint="manage.py penstock_status shows those there are")
        names = [row[1] for row in found if row[1] is not None]
        chosen = [row for row in found if row[1] is not None and row[1] == (subscription or row[1])]
        if len(chosen) != 1:
            there = ", ".join(names) or "none: a relay makes them"
            raise NotFoundError(f"which subscription of the outbox {name!r} is meant?", hint=f"give --subscription; there are: {there}")
        self.subscription = chosen[0][1]
        return chosen

    def where(self, c: Choice) -> tuple[str, dict[str, Any]]:
        """The conditions, and their values."""
        values: dict[str, Any] = {"of": self.id, "limit": c.limit}
        parts = [f"{self.of} = %(of)s"]

        def add(condition: str, **given: Any) -> None:
            values.update(given)
            parts.append(condition)

        if c.ids:
            add("d.id::text = any (%(ids)s)", ids=list(c.ids))
        if c.seqs:
            add(f"d.{self.number} = any (%(seqs)s)", seqs=list(c.seqs))
        for name, column in (("key", "key"), ("topic", "topic"), ("group", "group_key")):
            if value := getattr(c, name):
                add(f"d.{column} = %({name})s", **{name: value})
        if c.kind:
            add(f"d.headers->>'{HEADER_KIND}' = %(kind)s", kind=c.kind)
        if c.error:
            add("strpos(d.failures -> -1 ->> 'error', %(error)s) > 0", error=c.error)
        if c.cause is not None:
            add("coalesce(split_part(d.failures -> -1 ->> 'error', E'\\n', 1), '') = %(cause)s", cause=c.cause)
        if c.after:
            add(f"d.{self.number} > %(after_number)s", after_number=c.after)
        now = datetime.now(timezone.utc)
        if c.older_than is not None:
            add("d.died_at < %(before)s", before=now - c.older_than)
        if c.newer_than is not None:
            add("d.died_at > %(after)s", after=now - c.newer_than)
        return " and ".join(parts), values

    def numbers(self, c: Choice) -> list[int]:
        """The seqs of messages, or the ids of jobs, in order."""
        where, values = self.where(c)
        return [row[0] for row in rows(f"select d.{self.number} from {{schema}}.{self.table} d where {where} order by 1 limit %(limit)s", values)]

    def letters(self, numbers: Sequence[int]) -> Iterator[dict[str, Any]]:
        """What `penstock dead show --json` prints."""
        own = "d.group_key, d.priority" if self.is_queue else "d.topic, d.held"
        for at in range(0, len(numbers), AT_ONCE):
            for row in rows(
                f"select d.{self.number}, d.id, d.key, {own}, d.headers::text, d.payload, d.created_at, d.died_at, d.attempt, d.failures::text"
                f" from {{schema}}.{self.table} d where {self.of} = %(of)s and d.{self.number} = any (%(some)s) order by 1",
                {"of": self.id, "some": list(numbers[at : at + AT_ONCE])},
            ):
                number, id_, key, first, second, headers, payload, created_at, died_at, attempt, failures = row
                headers, failures = json.loads(headers or "{}"), json.loads(failures or "[]")
                one: dict[str, Any] = {"id": id_} if self.is_queue else {"seq": number, "id": id_ or ""}
                one |= {"kind": headers.get(HEADER_KIND, ""), "key": key or "", "group": first} if self.is_queue else {"key": key or "", "topic": first}
                one |= {"priority": second} if self.is_queue else {"held": second}
                one |= {"headers": headers} if headers else {}
                one |= {"payload_bytes": len(bytes(payload)), "created_at": created_at, "died_at": died_at}
                one["attempts"] = max(attempt, failures[-1]["attempt"]) if failures else attempt
                yield one | {"error": failures[-1]["error"] if failures else "", "failures": failures} | payload_of(bytes(payload))

    def count(self, c: Choice | None = None) -> int:
        where, values = self.where(c or Choice(limit=MOST))
        return int(rows(f"select count(*) from (select from {{schema}}.{self.table} d where {where} limit %(limit)s) n", values)[0][0])

    def causes(self, c: Choice) -> list[tuple[str, int]]:
        """The first lines of the last errors, the most frequent first."""
        where, values = self.where(c)
        first = "coalesce(split_part(d.failures -> -1 ->> 'error', E'\\n', 1), '')"
        return [
            (row[0], row[1])
            for row in rows(f"select {first}, count(*) from {{schema}}.{self.table} d where {where} group by 1 order by 2 desc limit 20", values)
        ]

    def kinds(self) -> list[str]:
        if not self.is_queue:
            return []
        kind = f"d.headers->>'{HEADER_KIND}'"
        return [
            row[0]
            for row in rows(
                f"select distinct {kind} from {{schema}}._dead_job d where d.queue = %(of)s and {kind} is not null order by 1 limit 100", {"of": self.id}
            )
        ]

    def retry(self, numbers: Sequence[int]) -> int:
        """Returns how many were still there."""
        return self._decide(
            "retry", "update {schema}._dead_letter set retry = true where subscription = %(of)s and not retry and seq = any (%(some)s)", numbers
        )

    def discard(self, numbers: Sequence[int]) -> int:
        return self._decide("discard", "delete from {schema}._dead_letter where subscription = %(of)s and not retry and seq = any (%(some)s)", numbers)

    def _decide(self, verb: str, statement: str, numbers: Sequence[int]) -> int:
        n = 0
        for at in range(0, len(numbers), AT_ONCE):
            values = {"queue": self.name, "of": self.id, "some": list(numbers[at : at + AT_ONCE])}
            with transaction.atomic(using=setting("DATABASE")):
                if self.is_queue:
                    n += rows(f"select {{schema}}.{verb}_dead_jobs(%(queue)s, %(some)s)", values)[0][0]
                else:
                    n += len(rows(f"{statement} returning seq", values))
        return n


def boxes() -> list[tuple[str, str, int]]:
    """Queue or outbox, subscription, dead letters: all that this role may read, counted up to MOST. Raises Error if it may read none."""
    queues = readable(lambda: rows(f'select q.name from {{schema}}._queue q where {MINE} order by q.name collate "C"'))
    subscriptions = readable(lambda: rows('select outbox, name from {schema}._subscription order by outbox collate "C", name collate "C"'))
    if queues is None and subscriptions is None:
        rows("select from {schema}._queue")
    found = [(name, "", Dead(name).count()) for (name,) in queues or ()]
    return found + [(outbox, name, Dead(outbox, name).count()) for outbox, name in subscriptions or ()]
