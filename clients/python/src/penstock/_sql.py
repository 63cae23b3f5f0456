"""Every statement, as a generator: it yields (text, values) and is sent the rows.

Values are only str, bytes, int, None and lists of them, each used once and in order ($1, $2, …). So every driver can send them, and casts give their
types. Times are returned as microseconds and headers as text, whatever loaders a connection has.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Generator, Iterable, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any, TypeVar

from ._model import (
    HEADER_KIND,
    HEADER_REPORT,
    HEADER_UNIQUE_KEY,
    SCHEMA_VERSION,
    DeadJob,
    Encoder,
    Enqueued,
    FieldError,
    FoundJob,
    GroupPolicy,
    Job,
    Message,
    NewJob,
    NotFoundError,
    QueueStatus,
    Schedule,
    SchemaError,
    job_row,
    message_row,
    on_dead_text,
    text,
    waits_text,
)

T = TypeVar("T")
Rows = Sequence[Sequence[Any]]
Op = Generator[tuple[str, Sequence[Any]], Rows, T]

SQLITE_VERSION = 6
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
JOB_COLUMNS = (
    "id, key, group_key, priority, attempt, cast(extract(epoch from created_at) * 1000000 as bigint), cast(headers as text), payload, "
    "lease, cast(extract(epoch from lease_until) * 1000000 as bigint)"
)


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


MAX_SECONDS = 3e9
"""The longest delay, about 95 years: a time further away may be beyond the database's."""


def seconds(n: float | None) -> str | None:
    return None if n is None else f"{min(max(n, 0), MAX_SECONDS):.6f} s"


class Postgres:
    """The functions of the schema, called in the connection's current transaction."""

    def __init__(self, schema: str = "penstock", encoder: Encoder = None):
        self.schema, self.encoder = quoted(schema), encoder

    def check(self) -> Op[int]:
        rows = yield f"select {self.schema}.check_client(cast($1 as bigint))", [SCHEMA_VERSION]
        return int(rows[0][0])

    def publish(self, outbox: str, messages: Iterable[Message]) -> Op[None]:
        made = [message_row(m, self.encoder) for m in messages]
        if len(made) == 1:
            id_, key, topic, headers, payload = made[0]
            yield (
                f"select {self.schema}.publish_bytes(cast($1 as text), cast($2 as bytea), cast($3 as text), cast($4 as text),"
                " cast(cast($5 as text) as jsonb), cast($6 as text))",
                [outbox, payload, key, topic, headers, id_],
            )
        elif made:
            yield (
                f"insert into {self.schema}.{quoted(outbox)} (id, key, topic, headers, payload) select * from unnest("
                "cast($1 as text[]), cast($2 as text[]), cast($3 as text[]), cast(cast($4 as text[]) as jsonb[]), cast($5 as bytea[]))",
                [list(column) for column in zip(*made, strict=True)],
            )

    def enqueue(self, queue: str, jobs: Iterable[NewJob]) -> Op[list[Enqueued]]:
        made = [job_row(j, self.encoder) for j in jobs]
        if not made:
            return []
        told = f"{self.schema}.deduplicated(e.n)" if any(row[5] or HEADER_UNIQUE_KEY in (row[6] or "") for row in made) else "false"
        columns: list[Any] = [list(column) for column in zip(*made, strict=True)]
        for i, nothing in enumerate((None, None, "", 0, None, None, None)):
            if i and all(v == nothing for v in columns[i]):
                columns[i] = None
        rows = yield (
            f"select e.id, {told} from {self.schema}.enqueue_many_bytes(cast($1 as text), cast($2 as bytea[]), cast($3 as text[]), cast($4 as text[]),"
            " cast($5 as int[]), cast(cast($6 as text[]) as timestamptz[]), cast($7 as text[]), cast(cast($8 as text[]) as jsonb[]))"
            " with ordinality e(id, n) order by e.n",
            [queue, *columns],
        )
        return [Enqueued(int(row[0]), bool(row[1])) for row in rows]

    def barrier(self, queue: str) -> Op[int]:
        rows = yield f"select {self.schema}.barrier(cast($1 as text))", [queue]
        return int(rows[0][0])

    def seal(self, queue: str, barrier: int) -> Op[None]:
        yield f"select {self.schema}.seal(cast($1 as text), cast($2 as bigint))", [queue, barrier]

    def publish_after(self, queue: str, waits_for: Sequence[int], outbox: str, m: Message, on_dead: str | None) -> Op[int]:
        id_, key, topic, headers, payload = message_row(m, self.encoder)
        rows = yield (
            f"select {self.schema}.publish_after(cast($1 as text), cast(cast($2 as text) as bigint[]), cast($3 as text), cast($4 as bytea), cast($5 as text),"
            " cast($6 as text), cast(cast($7 as text) as jsonb), cast($8 as text), cast($9 as text))",
            [queue, waits_text(waits_for), outbox, payload, key, topic, headers, id_, on_dead_text(on_dead)],
        )
        return int(rows[0][0])

    def first(self, consumer: str, ids: Sequence[str]) -> Op[list[str]]:
        if not ids:
            return []
        rows = yield f"select * from {self.schema}.inbox_many(cast($1 as text), cast($2 as text[]))", [consumer, list(ids)]
        return [row[0] for row in rows]

    def claim(self, queue: str, shares: dict[str, int], lease: float, worker: str, acks: Sequence[int] | None = None) -> Op[tuple[list[int], list[Job], bool]]:
        """Claims a number of jobs of each of these groups. The acks go with the first: the claims of the others see these jobs gone. Returns the leases
        of `acks` that were held, the jobs, and whether a limit of running jobs is close."""
        for group_key in shares:
            text("group_key", group_key)
        text("worker", worker, 256)
        groups, counts = list(shares), list(shares.values())
        share: list[Any] = [counts[0], seconds(lease), groups[0], worker]
        at = "cast(${} as int), cast(cast(${} as text) as interval), cast(${} as text), cast(${} as text))"
        if len(shares) > 1:
            call = (
                f"unnest(cast($1 as int[]), cast($2 as text[])) with ordinality g(n, in_group, i) cross join lateral {self.schema}.ack_claim(cast($3 as text),"
                " case when g.i = 1 then cast($4 as bigint[]) else '{}' end, g.n, cast(cast($5 as text) as interval), g.in_group, cast($6 as text))"
            )
            values: list[Any] = [counts, groups, queue, list(acks or ()), seconds(lease), worker]
        elif acks is None:
            call, values = f"{self.schema}.claim(cast($1 as text), {at.format(2, 3, 4, 5)}", [queue, *share]
        else:
            call, values = f"{self.schema}.ack_claim(cast($1 as text), cast($2 as bigint[]), {at.format(3, 4, 5, 6)}", [queue, list(acks), *share]
        rows = yield f"select {JOB_COLUMNS} from {call}", values
        home, held = (self, queue), [int(row[8]) for row in rows if row[0] is None]
        return [lease for lease in held if lease], [job(row, home) for row in rows if row[0] is not None], 0 in held

    def ready_groups(self, queue: str, groups: Sequence[str] | None, behind: str, most: int) -> Op[list[str]]:
        """The groups that have jobs to claim, of some or of all, each as often as it weighs. Those behind one come first."""
        rows = yield (
            f"select * from {self.schema}.ready_groups(cast($1 as text), cast($2 as text[]), cast($3 as text), cast($4 as int))",
            [queue, groups, behind, most],
        )
        return [row[0] for row in rows]

    def dequeue(self, queue: str, n: int = 1, group_key: str = "") -> Op[list[Job]]:
        columns = JOB_COLUMNS.replace("lease,", "0,").replace("lease_until", "created_at")
        rows = yield (
            f"select {columns} from {self.schema}.dequeue(cast($1 as text), cast($2 as int), cast($3 as text))",
            [queue, n, group_key],
        )
        return [job(row) for row in rows]

    def ack(self, queue: str, leases: Sequence[int]) -> Op[list[int]]:
        return self._many("ack_many", queue, leases)

    def ack_one(self, queue: str, lease: int) -> Op[None]:
        yield f"select {self.schema}.ack(cast($1 as text), cast($2 as bigint))", [queue, lease]

    def extend(self, queue: str, leases: Sequence[int], by: float) -> Op[list[int]]:
        return self._many("extend_many", queue, leases, by)

    def release(self, queue: str, leases: Sequence[int], after: float = 0) -> Op[list[int]]:
        return self._many("release_many", queue, leases, after)

    def _many(self, function: str, queue: str, leases: Sequence[int], time: float | None = None) -> Op[list[int]]:
        if not leases:
            return []
        call = "cast($1 as text), cast($2 as bigint[])"
        values: list[Any] = [queue, list(leases)]
        if time is not None:
            call, values = call + ", cast(cast($3 as text) as interval)", [*values, seconds(time)]
        rows = yield f"select * from {self.schema}.{function}({call})", values
        return [int(row[0]) for row in rows]

    def retry(self, queue: str, lease: int, after: float | None, error: str) -> Op[bool]:
        """Returns whether the job is a dead letter now."""
        rows = yield (
            f"select {self.schema}.retry(cast($1 as text), cast($2 as bigint), cast(cast($3 as text) as interval), cast($4 as text))",
            [queue, lease, seconds(after), storable(error)],
        )
        return not rows[0][0]

    def dead_letter(self, queue: str, lease: int, error: str) -> Op[None]:
        yield f"select {self.schema}.dead_letter(cast($1 as text), cast($2 as bigint), cast($3 as text))", [queue, lease, storable(error)]

    def heartbeat(self, queue: str, report: dict[str, Any]) -> Op[None]:
        """Says that a worker lives; lease 0 stands for the worker itself."""
        yield f"select {self.schema}.report(cast($1 as text), 0, cast(cast($2 as text) as jsonb))", [queue, json.dumps(report)]

    def report(self, queue: str, lease: int, report: str) -> Op[None]:
        """Replaces the report of a running job, but for the results of its steps. It is JSON."""
        yield f"select {self.schema}.report(cast($1 as text), cast($2 as bigint), cast(cast($3 as text) as jsonb))", [queue, lease, report]

    def reports(self, queue: str, leases: Sequence[int], reports: Sequence[str]) -> Op[None]:
        """Several reports. It raises LeaseLostError, and writes none, if one of the jobs does not run here any more."""
        yield (
            f"select {self.schema}.report(cast($1 as text), r.lease, cast(r.report as jsonb)) from unnest(cast($2 as bigint[]), cast($3 as text[]))"
            " r(lease, report)",
            [queue, list(leases), list(reports)],
        )

    def schedule(self, queue: str, name: str, cron: str, job: NewJob, skip_overlap: bool) -> Op[datetime]:
        payload, key, group_key, priority, _, dedup_key, headers = job_row(job, self.encoder)
        rows = yield (
            f"select cast(extract(epoch from s) * 1000000 as bigint) from {self.schema}.schedule_bytes(cast($1 as text), cast($2 as text), cast($3 as text),"
            " cast($4 as bytea), key => cast($5 as text), group_key => cast($6 as text), priority => cast($7 as int),"
            " headers => cast(cast($8 as text) as jsonb), dedup_key => cast($9 as text), skip_overlap => cast($10 as int) = 1) s",
            [queue, name, cron, payload, key, group_key, priority, headers, dedup_key, int(skip_overlap)],
        )
        return at_epoch(rows[0][0])

    def on_schedule(self, function: str, queue: str, name: str) -> Op[None]:
        yield f"select {self.schema}.{function}(cast($1 as text), cast($2 as text))", [queue, name]

    def run_schedule(self, queue: str, name: str) -> Op[Enqueued]:
        rows = yield (
            f"select e.id, coalesce({self.schema}.deduplicated(e.n), false) from {self.schema}.run_schedule(cast($1 as text), cast($2 as text))"
            " with ordinality e(id, n)",
            [queue, name],
        )
        return Enqueued(int(rows[0][0]), bool(rows[0][1]))

    def schedules(self, queue: str) -> Op[list[Schedule]]:
        rows = yield (
            "select name, cron, cast(extract(epoch from next) * 1000000 as bigint), paused, skip_overlap, last_job, kind, key, group_key, priority, dedup_key,"
            f" cast(headers as text), payload from {self.schema}.schedules(cast($1 as text))",
            [queue],
        )
        return [Schedule(r[0], r[1], at_epoch(r[2]), r[3], r[4], r[5], r[6], r[7], r[8], r[9], r[10], headers_of(r[11]), bytes(r[12])) for r in rows]

    def dead_jobs(self, queue: str, most: int, after: int) -> Op[list[DeadJob]]:
        rows = yield (
            "select id, key, group_key, priority, attempt, cast(extract(epoch from created_at) * 1000000 as bigint),"
            " cast(extract(epoch from died_at) * 1000000 as bigint), cast(headers as text), payload, error, cast(failures as text)"
            f" from {self.schema}.dead_jobs(cast($1 as text), cast($2 as int), cast($3 as bigint))",
            [queue, most, after],
        )
        found = []
        for r in rows:
            headers = headers_of(r[7])
            times = at_epoch(r[5]), at_epoch(r[6])
            found.append(DeadJob(r[0], headers.get(HEADER_KIND, ""), r[1], r[2], r[3], r[4], *times, headers, bytes(r[8]), r[9], json.loads(r[10])))
        return found

    def find_job(self, queue: str, id: int) -> Op[FoundJob | None]:
        times = ", ".join(f"cast(extract(epoch from {at}) * 1000000 as bigint)" for at in ("created_at", "claimed_at", "until", "ended_at"))
        rows = yield (
            f"select id, state, kind, key, group_key, priority, attempt, worker, error, cast(report as text), {times}"
            f" from {self.schema}.find_job(cast($1 as text), cast($2 as bigint))",
            [queue, id],
        )
        for r in rows:
            claimed, until, ended = (None if at is None else at_epoch(at) for at in r[11:14])
            report = None if r[9] is None else json.loads(r[9])
            return FoundJob(r[0], r[1], r[2], r[3], r[4], r[5], r[6], at_epoch(r[10]), claimed, until, ended, r[7], r[8], report)
        return None

    def create_queue(self, queue: str, ordering: str) -> Op[None]:
        yield f"select {self.schema}.create_queue(cast($1 as text), cast($2 as text))", [queue, ordering]

    def status(self, queue: str) -> Op[QueueStatus]:
        rows = yield (
            "select ready, running, delayed, waiting, dead, cast(extract(epoch from oldest) * 1000000 as bigint), expired"
            f" from {self.schema}.queue_status(cast($1 as text))",
            [queue],
        )
        ready, running, delayed, waiting, dead, oldest, expired = rows[0]
        return QueueStatus(ready, running, delayed, waiting, dead, timedelta(microseconds=oldest), expired)

    def on_queue(self, function: str, queue: str) -> Op[None]:
        yield f"select {self.schema}.{function}(cast($1 as text))", [queue]

    def on_jobs(self, function: str, queue: str, ids: Sequence[int]) -> Op[int]:
        rows = yield f"select {self.schema}.{function}(cast($1 as text), cast($2 as bigint[]))", [queue, list(ids)]
        return int(rows[0][0])

    def set_group(
        self, queue: str, group_key: str, max_running: int | None, rate: int | None, per: float | timedelta | None, burst: int | None, weight: int | None
    ) -> Op[None]:
        text("group_key", group_key)
        for name, value in (("max_running", max_running), ("rate", rate), ("burst", burst), ("weight", weight)):
            if value is not None and (type(value) is not int or not 1 <= value < 1 << 31):
                raise FieldError(name, f"is {value!r}", "give a number of 1 or more, or None")
        yield (
            f"select {self.schema}.set_group(cast($1 as text), cast($2 as text), cast($3 as int), cast($4 as int), cast(cast($5 as text) as interval),"
            " cast($6 as int), cast($7 as int))",
            [queue, group_key, max_running, rate, None if per is None else span("per", per), burst, weight],
        )

    def hold_group(self, queue: str, group_key: str, hold_for: float | timedelta, reason: str) -> Op[None]:
        text("group_key", group_key)
        yield (
            f"select {self.schema}.hold_group(cast($1 as text), cast($2 as text), cast(cast($3 as text) as interval), cast($4 as text))",
            [queue, group_key, span("hold_for", hold_for), text("reason", reason, MAX_REASON)],
        )

    def group_policies(self, queue: str, most: int, after: str) -> Op[list[GroupPolicy]]:
        rows = yield (
            "select group_key, max_running, rate, cast(extract(epoch from per) * 1000000 as bigint), burst, weight, tokens,"
            " cast(extract(epoch from held_until) * 1000000 as bigint), reason"
            f" from {self.schema}.group_policies(cast($1 as text), cast($2 as text), cast($3 as int))",
            [queue, after, most],
        )
        return [
            GroupPolicy(
                r[0],
                r[1],
                r[2],
                None if r[3] is None else timedelta(microseconds=int(r[3])),
                r[4],
                r[5],
                r[6],
                None if r[7] is None else at_epoch(r[7]),
                r[8] or "",
            )
            for r in rows
        ]

    def maintain(self, queue: str) -> Op[None]:
        yield f"select {self.schema}.maintain_queue(cast($1 as text))", [queue]


class SQLite:
    """Producing, with the file's tables and triggers. Only Go programs work on such jobs: penstock work --database-url sqlite:FILE."""

    CHUNK = 150  # rows: below the limit of 999 parameters in old libraries

    def __init__(self, encoder: Encoder = None):
        self.encoder = encoder

    def check(self) -> Op[int]:
        rows = yield "select max(version_id) from penstock_schema where is_applied", []
        version = int(rows[0][0])
        if version < SQLITE_VERSION:
            raise SchemaError(
                f"the file's tables are version {version}, this client needs {SQLITE_VERSION}", hint="run: penstock migrate --database-url sqlite:FILE"
            )
        return version

    def publish(self, outbox: str, messages: Iterable[Message]) -> Op[None]:
        made = [message_row(m, self.encoder) for m in messages]
        for at in range(0, len(made), self.CHUNK):
            part = made[at : at + self.CHUNK]
            yield (
                f"insert into {sqlite_table('penstock_outbox_', outbox)} (id, key, topic, headers, payload) values {marks(part)}",
                flat(part),
            )

    def enqueue(self, queue: str, jobs: Iterable[NewJob]) -> Op[list[Enqueued]]:
        made = [job_row(j, self.encoder) for j in jobs]
        for name in ("unique_key", "max_attempts", "deadline", "holds", "waits_for"):
            if any(f'"penstock-{name.replace("_", "-")}"' in (row[6] or "") for row in made):
                raise FieldError(name, "is given, and queues in SQLite do not have it", "leave it out, or use PostgreSQL")
        now = yield (
            "select cast((julianday('now') - 2440587.5) * 86400000000 as integer), id, dedup_window from penstock_queues where name = $1",
            [queue],
        )
        ids: dict[int, Enqueued] = {}
        first: dict[str, int] = {}
        if any(row[5] for row in made) and now and now[0][2]:
            keys = json.dumps([row[5] for row in made if row[5]])
            rows = yield (
                "select d.dedup_key, d.id from json_each($1) j cross join penstock_dedup d on d.queue_id = $2 and d.dedup_key = j.value where d.at > $3",
                [keys, now[0][1], now[0][0] - now[0][2] // 1000],
            )
            known = {str(key): int(id_) for key, id_ in rows}
            for i, row in enumerate(made):
                if row[5] in known:
                    ids[i] = Enqueued(known[row[5]], True)
                elif row[5] and first.setdefault(row[5], i) != i:
                    ids[i] = Enqueued(0, True)
        fresh = [i for i in range(len(made)) if i not in ids]
        for at in range(0, len(fresh), self.CHUNK):
            part = [sqlite_job(made[i]) for i in fresh[at : at + self.CHUNK]]
            yield (
                f"insert into {sqlite_table('penstock_queue_', queue)} (not_before, priority, group_key, key, headers, payload) values {marks(part)}",
                flat(part),
            )
            last = int((yield "select last_insert_rowid()", [])[0][0])  # one statement draws its numbers without gaps
            for i, n in zip(fresh[at : at + self.CHUNK], range(last - len(part) + 1, last + 1), strict=True):
                ids[i] = Enqueued(n, False)
        if first:
            notes = json.dumps([[key, ids[i].id] for key, i in first.items()])
            yield (
                "insert or replace into penstock_dedup (queue_id, dedup_key, id, at) select cast($1 as integer), json_extract(j.value, '$[0]'),"
                " json_extract(j.value, '$[1]'), cast($2 as integer) from json_each($3) j",
                [now[0][1], now[0][0], notes],
            )
        return [ids[i] if ids[i].id else Enqueued(ids[first[made[i][5] or ""]].id, True) for i in range(len(made))]

    def first(self, consumer: str, ids: Sequence[str]) -> Op[list[str]]:
        for id_ in ids:
            text("id", id_)
        box = yield (
            "select id, keep, cast((julianday('now') - 2440587.5) * 86400000000 as integer) from penstock_inboxes where consumer = $1",
            [consumer],
        )
        if not box:
            raise NotFoundError(
                f"there is no inbox of {consumer!r}",
                sqlstate="42P01",
                hint=f"create it with: penstock inbox create {shlex.quote(consumer)} --database-url sqlite:FILE",
            )
        inbox, keep, now = box[0]
        yield (
            "delete from penstock_received where inbox_id = $1 and id in (select r.id from penstock_received r where r.inbox_id = $2 and r.at < $3"
            " and not exists (select 1 from penstock_held h where h.inbox_id = $4 and h.id = r.id) order by r.at limit $5)",
            [inbox, inbox, now - keep, inbox, 2 * len(ids)],
        )
        rows = yield (
            "insert into penstock_received (inbox_id, id, at) select cast($1 as integer), value, cast($2 as integer) from json_each($3) where true"
            " on conflict do nothing returning id",
            [inbox, now, json.dumps(list(ids))],
        )
        new = {row[0] for row in rows}
        return [id_ for id_ in dict.fromkeys(ids) if id_ in new]


MAX_REASON = 1024
"""The longest reason of a hold."""


def storable(reason: str, most: int = 4096) -> str:
    """A reason as text that every database can store, cut to some bytes."""
    return reason.replace("\0", "\ufffd").encode(errors="replace")[:most].decode(errors="ignore")


def span(name: str, time: float | timedelta) -> str:
    """A time as an interval. Raises FieldError."""
    n = time.total_seconds() if isinstance(time, timedelta) else time
    if not isinstance(n, (int, float)) or not 0 <= n < 1e10:
        raise FieldError(name, f"is {time!r}", "give seconds, or a timedelta")
    return f"{n:.6f} s"


def at_epoch(us: int) -> datetime:
    return EPOCH + timedelta(microseconds=int(us))


def headers_of(given: str | None) -> dict[str, str]:
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in json.loads(given).items()} if given else {}


def job(row: Sequence[Any], home: tuple[Postgres, str] | None = None) -> Job:
    headers = headers_of(row[6])
    made = Job(int(row[0]), row[1], row[2], row[3], row[4], at_epoch(row[5]), headers, bytes(row[7]), int(row[8]), at_epoch(row[9]), _home=home)
    if HEADER_REPORT in headers:  # they may be copied to another job, which has no report
        made.report = json.loads(headers.pop(HEADER_REPORT))
    return made


def sqlite_table(prefix: str, name: str) -> str:
    """Names of tables ignore case, so a number behind the name marks its capitals."""
    capitals = sum(1 << i for i, c in enumerate(name.encode()) if 65 <= c <= 90)
    return quoted(prefix + name + (f"~{capitals:x}" if capitals or "~" in name else ""))


def sqlite_job(row: Sequence[Any]) -> Sequence[Any]:
    payload, key, group_key, priority, not_before, _, headers = row
    due = None
    if not_before and (at := datetime.fromisoformat(not_before)) > datetime.now(timezone.utc):
        due = -((EPOCH - at) // timedelta(milliseconds=1))  # rounded up: never too early
    return due, priority, group_key, key, headers, payload


def flat(rows: Sequence[Sequence[Any]]) -> list[Any]:
    return [value for row in rows for value in row]


def marks(rows: Sequence[Sequence[Any]]) -> str:
    wide = len(rows[0])
    return ", ".join("(" + ", ".join(f"${r * wide + c + 1}" for c in range(wide)) + ")" for r in range(len(rows)))


PLACEHOLDER = re.compile(r"\$(\d+)")
