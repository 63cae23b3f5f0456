"""The types of messages and jobs, and the errors. No I/O."""

from __future__ import annotations

import functools
import inspect
import json
import logging
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from difflib import get_close_matches
from typing import Any, TypeAlias, TypeVar

MAX_PAYLOAD = 64 << 20
MAX_HEADERS = 64 << 10
LIMITS = {"id": 256, "key": 1024, "topic": 1024, "group_key": 256, "dedup_key": 256, "kind": 100}

HEADER_KIND = "penstock-kind"
"""The header that carries the kind of a job. A message that becomes a job may carry it as well."""

HEADER_UNIQUE_KEY = "penstock-unique-key"
"""The header that carries the unique_key of a job. Each option of NewJob has such a header."""

HEADER_TIMEOUT = "penstock-timeout"
"""The header that carries the timeout of a job, in seconds."""

HEADER_REPORT = "penstock-report"
"""The header that carries the report of an earlier attempt."""

MEMBER_STEPS = "penstock-steps"
"""The member of a report that holds the results of steps."""

SCHEMA_VERSION = 300
"""The version of the database's schema that this client was written for. An older one lacks functions that it calls."""


F = TypeVar("F", bound=Callable[..., Any])


ELSEWHERE = {"retries": "max_attempts", "attempts": "max_attempts", "delay": "not_before", "eta": "not_before", "workers": "concurrency"}
"""What other libraries call a keyword."""


def nearest(word: str, words: Collection[str]) -> str:
    """The words, after the one that was probably meant."""
    near = get_close_matches(word, [*words, *(other for other, own in ELSEWHERE.items() if own in words)], 1)
    return (f"did you mean {ELSEWHERE.get(near[0], near[0])!r}? " if near else "") + f"there are: {', '.join(words)}"


def keywords(fn: F) -> F:
    """The function, whose TypeError for an unknown keyword names those that there are."""
    parameters = inspect.signature(fn).parameters

    @functools.wraps(fn)
    def called(*args: Any, **kwargs: Any) -> Any:
        try:
            return fn(*args, **kwargs)
        except TypeError:
            for word in kwargs:
                if word not in parameters:
                    its = [name for name, p in parameters.items() if p.default is not p.empty]
                    raise TypeError(f"{fn.__qualname__.removesuffix('.__init__')} has no keyword {word!r}: {nearest(word, its)}") from None
            raise

    return called  # type: ignore[return-value]


class Error(Exception):
    """An error of Penstock. `sqlstate` is the database's SQLSTATE, or None; `hint` says what to do."""

    def __init__(self, message: str, *, sqlstate: str | None = None, hint: str | None = None):
        super().__init__(f"{message} ({hint})" if hint else message)
        self.sqlstate, self.hint = sqlstate, hint


class FieldError(Error, ValueError):
    """A message or job that no database could carry. Nothing was written, and the transaction can continue."""

    def __init__(self, name: str, problem: str, hint: str):
        super().__init__(f"{name} {problem}", hint=hint)
        self.field = name


class NotFoundError(Error):
    """No such queue, outbox or inbox."""


class LeaseLostError(Error):
    """The lease has ended, or the job was settled or cancelled: it may be running elsewhere."""


class SchemaError(Error):
    """The database is not migrated, or this client does not support its schema."""


Payload: TypeAlias = Any
"""`bytes` as they are, `str` as UTF-8, anything else as JSON."""

Encoder: TypeAlias = type[json.JSONEncoder] | None
"""The json.JSONEncoder of payloads; None is Python's own, which takes no dates, UUIDs and Decimals."""


@dataclass(frozen=True)
class Message:
    """A message to publish. Without an id, it gets one that stays the same in every delivery."""

    payload: Payload = b""
    key: str | None = None
    topic: str = ""
    headers: Mapping[str, str] | None = None
    id: str | None = None


@dataclass(frozen=True)
class NewJob:
    """A job to enqueue. docs/reference/queues.md describes the fields."""

    payload: Payload = b""
    key: str | None = None
    group_key: str = ""
    priority: int = 0
    not_before: datetime | timedelta | None = None
    dedup_key: str | None = None
    headers: Mapping[str, str] | None = None
    kind: str = ""
    unique_key: str | None = None
    on_conflict: str | None = None
    debounce_max: timedelta | None = None
    max_attempts: int | None = None
    timeout: timedelta | None = None
    deadline: datetime | timedelta | None = None
    holds: int | None = None
    waits_for: Sequence[int] | None = None
    on_dead: str | None = None


NewJob.__init__ = keywords(NewJob.__init__)  # type: ignore[method-assign]


@dataclass(frozen=True)
class Enqueued:
    """The result of enqueueing a job. `id` stays the same for the job's life. If `deduplicated`, no job was added, and `id` is that of the job that was
    there."""

    id: int
    deduplicated: bool


@dataclass(frozen=True)
class Schedule:
    """A periodic job. It runs `next`, unless it is paused. With `skip_overlap` it leaves out a time at which its last job has not ended. `last_job` is the
    id of the last one that it has made."""

    name: str
    cron: str
    next: datetime
    paused: bool
    skip_overlap: bool
    last_job: int | None
    kind: str
    key: str | None
    group_key: str
    priority: int
    dedup_key: str | None
    headers: dict[str, str]
    payload: bytes


@dataclass(frozen=True)
class DeadJob:
    """A dead letter, with the error of its last attempt and the last ten failures: each has attempt, at and error."""

    id: int
    kind: str
    key: str | None
    group_key: str
    priority: int
    attempt: int
    created_at: datetime
    died_at: datetime
    headers: dict[str, str]
    payload: bytes
    error: str
    failures: list[dict[str, Any]]


@dataclass(frozen=True)
class FoundJob:
    """Where a job is. `state` is ready, delayed, waiting (for barriers, or for a job of its key that failed), running, dead or done. `attempt` is how many
    have begun, and `claimed_at` when the last one did. `until` is when a delayed job is due, or when the lease of a running one ends. `ended_at` is when it
    was done, or died. `error` is that of the last failed attempt, and `report` the handler's last report."""

    id: int
    state: str
    kind: str
    key: str | None
    group_key: str
    priority: int
    attempt: int
    created_at: datetime
    claimed_at: datetime | None
    until: datetime | None
    ended_at: datetime | None
    worker: str | None
    error: str | None
    report: Any


@dataclass(frozen=True)
class QueueStatus:
    """How many jobs of a queue are where. `waiting` is for barriers, or for another job of their key, and `dead` are its dead letters. `oldest` is how long
    ago the oldest ready job was enqueued, zero if none is ready. `expired` is how many jobs have ended because their deadline had passed."""

    ready: int
    running: int
    delayed: int
    waiting: int
    dead: int
    oldest: timedelta
    expired: int


@dataclass(frozen=True)
class GroupPolicy:
    """The policy of a group, or of "*", and how long the group is held. What is None limits nothing. `tokens` is how many jobs may start now, if it has a
    rate."""

    group_key: str
    max_running: int | None = None
    rate: int | None = None
    per: timedelta | None = None
    burst: int | None = None
    weight: int | None = None
    tokens: int | None = None
    held_until: datetime | None = None
    reason: str = ""


@dataclass
class Job:
    """A claimed job. `aborted` is None, or says why its handler should stop: lease_lost, stopping or timeout. `report` is what the last attempt that
    reported has reported, or None; the results of its steps are in the member penstock-steps."""

    id: int
    key: str | None
    group_key: str
    priority: int
    attempt: int
    created_at: datetime
    headers: dict[str, str]
    payload: bytes
    lease: int
    lease_until: datetime
    aborted: str | None = None
    report: Any = None
    _listeners: list[Callable[[str], None]] = field(default_factory=list, repr=False, compare=False)
    _home: tuple[Any, str] | None = field(default=None, repr=False, compare=False)  # the statements, and the queue
    _call: Callable[[Any], Any] | None = field(default=None, repr=False, compare=False)  # sends a statement as the worker that has the job
    _steps: dict[str, Any] | None = field(default=None, repr=False, compare=False)  # results by name, once they were asked for
    _limit: timedelta | None = field(default=None, repr=False, compare=False)  # the time that this attempt has

    @property
    def kind(self) -> str:
        """Which handler takes the job; '' for a job without a kind."""
        return self.headers.get(HEADER_KIND, "")

    @property
    def timeout(self) -> timedelta | None:
        """How long an attempt may take; None if the job does not limit it."""
        given = self.headers.get(HEADER_TIMEOUT)
        return timedelta(seconds=float(given)) if given else None

    @property
    def text(self) -> str:
        return self.payload.decode()

    def json(self) -> Any:
        return json.loads(self.payload)

    def raise_if_aborted(self) -> None:
        """Raises `Aborted` once another worker may have the job, its time is over, or the worker stops. Call it now and then in long handlers that run in
        threads."""
        if self.aborted:
            raise Aborted(self.aborted)

    def on_abort(self, listener: Callable[[str], None]) -> None:
        """Calls listener with `lease_lost`, `stopping` or `timeout`, from another thread, or at once if the job is already aborted."""
        self._listeners.append(listener)
        if self.aborted:
            listener(self.aborted)

    def abort(self, cause: str) -> None:
        if self.aborted is None:
            self.aborted = cause
            for listener in list(self._listeners):
                try:
                    listener(cause)
                except Exception:  # it is the handler's code, and the worker continues
                    logging.getLogger("penstock").exception("what job %d gave to on_abort has failed", self.id)


class Aborted(Exception):  # noqa: N818 - it is not an error of the handler
    """Ends a handler that the worker told to stop."""


class Outcome(Exception):  # noqa: N818 - outcomes are raised, or returned, and need not be errors
    """How a handler ends a job other than by returning None. Raise one, or return it."""

    def __init__(self, after: float | timedelta | None = None, reason: str = ""):
        if isinstance(after, timedelta):
            after = after.total_seconds()
        if after is not None and not (isinstance(after, (int, float)) and math.isfinite(after) and after >= 0):
            raise FieldError("after", f"is {after!r}", "give seconds, or a timedelta, that are not negative")
        super().__init__(reason or type(self).__name__)
        self.after = after
        self.reason = reason
        self.error: BaseException | None = None  # of which a task has made this outcome


class Retry(Outcome):
    """Another attempt, after some seconds or a timedelta; with None, after the queue's own backoff."""


class Snooze(Outcome):
    """The handler is called again after some seconds or a timedelta. No attempt is spent."""

    passed = False  # on to another worker, because there is no handler here

    def __init__(self, after: float | timedelta):
        super().__init__(after)


class HoldGroup(Outcome):
    """The job is given back, and its group held: no job of the group starts for some seconds or a timedelta, by any worker. For example, a server has
    answered 429 for one customer, whose jobs are a group. No attempt is spent, and jobs that run continue."""

    def __init__(self, hold_for: float | timedelta, reason: str = ""):
        super().__init__(hold_for, reason)


class DeadLetter(Outcome):
    """The job becomes a dead letter at once."""

    def __init__(self, reason: str):
        super().__init__(None, reason)


class Cancelled(Outcome):
    """The job is no longer needed. It ends as if it were done."""

    def __init__(self, reason: str = ""):
        super().__init__(None, reason)


def encode(payload: Payload, encoder: Encoder = None) -> bytes:
    try:
        if isinstance(payload, (bytes, bytearray, memoryview)):
            made = bytes(payload)
        elif isinstance(payload, str):
            made = payload.encode()
        elif payload is None:
            raise FieldError("payload", "is None", "give bytes, a text, or what JSON can hold; b'' for an empty one")
        else:
            made = json.dumps(payload, cls=encoder, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError) as e:  # NaN is not JSON, and other parsers refuse it
        raise FieldError("payload", f"cannot be encoded: {e}", "give bytes, a text, or what JSON can hold; an encoder takes more: encoder=…") from e
    if len(made) > MAX_PAYLOAD:
        raise FieldError(
            "payload",
            f"is {len(made)} bytes, more than the limit of {MAX_PAYLOAD}",
            "store the content elsewhere and send a reference to it",
        )
    return made


def text(name: str, value: str | None, limit: int | None = None) -> str | None:
    """Returns the value if a database can hold it, or None if it is empty. Raises FieldError."""
    if value is None:
        return None
    if not isinstance(value, str):  # also 0 and b"", which are not empty texts
        raise FieldError(name, f"has the type {type(value).__name__}", "give a str")
    if not value:
        return None
    if "\0" in value:
        raise FieldError(name, "has a NUL", "put bytes into the payload or encode them")
    try:
        size = len(value.encode())
    except UnicodeEncodeError as e:
        raise FieldError(name, "is not valid Unicode", "put bytes into the payload or encode them") from e
    if size > (limit or LIMITS[name]):
        raise FieldError(name, f"is {size} bytes, more than the limit of {limit or LIMITS[name]}", "shorten it")
    return value


def headers_text(headers: Mapping[str, str] | None) -> str | None:
    if not headers:
        return None
    total = 0
    for name, value in headers.items():
        if not name or not isinstance(value, str):
            raise FieldError("headers", f"have {name!r}: {value!r}", "use names that are not empty, and values that are str")
        text("headers", name, MAX_HEADERS)
        text("headers", value, MAX_HEADERS)
        total += len(name.encode()) + len(value.encode())
    if total > MAX_HEADERS:
        raise FieldError("headers", f"are {total} bytes together, more than the limit of {MAX_HEADERS}", "move large values into the payload")
    return json.dumps(dict(headers), ensure_ascii=False)


def printable(name: str, value: str | None, why: str) -> str | None:
    made = text(name, value)
    if made and any(c < " " or c == "\x7f" for c in made):
        raise FieldError(name, "has a control character", f"use printable characters: {why}")
    return made


def kind_text(kind: str) -> str:
    return printable("kind", kind, "the kind is a label of metrics") or ""


def with_kind(kind: str, headers: Mapping[str, str] | None) -> Mapping[str, str] | None:
    """The headers of a job of a kind, which they carry. Raises FieldError."""
    given = (headers or {}).get(HEADER_KIND, "")
    if not (kind_text(kind) or kind_text(given)) or given == kind:
        return headers
    if kind and given:
        raise FieldError("kind", f"is {kind!r}, and the header {HEADER_KIND} says {given!r}", "give one of them")
    return {**(headers or {}), HEADER_KIND: kind or given}


def time_of(name: str, value: datetime | timedelta) -> datetime:
    """A time in UTC."""
    if not isinstance(value, (datetime, timedelta)):
        raise FieldError(name, f"has the type {type(value).__name__}", "give a datetime, or a timedelta from now")
    if isinstance(value, datetime) and value.tzinfo is None:
        raise FieldError(name, "has no time zone", "use datetime.now(timezone.utc), for instance")
    try:
        return datetime.now(timezone.utc) + value if isinstance(value, timedelta) else value.astimezone(timezone.utc)
    except OverflowError as e:
        raise FieldError(name, f"is {value!r}, which is not between the years 1 and 9999 in UTC", "give a time that is closer") from e


def span_of(name: str, value: timedelta | None) -> str | None:
    if value is None:
        return None
    if not isinstance(value, timedelta) or not timedelta(milliseconds=1) <= value <= timedelta(days=366):
        raise FieldError(name, f"is {value!r}", "give a timedelta of a millisecond to a year")
    return f"{value.total_seconds():.6f}".rstrip("0").rstrip(".")


def barriers_text(name: str, value: Sequence[int] | None) -> str | None:
    if not value:
        return None
    if len(value) > 100 or any(type(b) is not int or not 1 <= b < 10**18 for b in value):
        raise FieldError(name, f"is {value!r}", "give numbers that barrier has returned, up to 100")
    return ",".join(map(str, value))


def waits_text(value: Sequence[int]) -> str:
    """The barriers that a message waits for, as PostgreSQL reads an array."""
    barriers = barriers_text("waits_for", value)
    if barriers is None:
        raise FieldError("waits_for", "is empty", "give the barriers to wait for, or publish the message")
    return "{" + barriers + "}"


def on_dead_text(value: str | None) -> str | None:
    if value not in (None, "wait", "run", "cancel"):
        raise FieldError("on_dead", f"is {value!r}", "give wait, run or cancel")
    return value


def with_options(j: NewJob) -> Mapping[str, str] | None:
    """The headers of a job, some of which carry its kind and its options. Raises FieldError."""
    headers = with_kind(j.kind, j.headers)
    given: dict[str, str | None] = {
        "unique_key": text("unique_key", j.unique_key, LIMITS["key"]),
        "on_conflict": j.on_conflict,
        "debounce_max": span_of("debounce_max", j.debounce_max),
        "max_attempts": None if j.max_attempts is None else str(j.max_attempts),
        "timeout": span_of("timeout", j.timeout),
        "deadline": None if j.deadline is None else time_of("deadline", j.deadline).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z",
        "holds": barriers_text("holds", None if j.holds is None else [j.holds]),
        "waits_for": barriers_text("waits_for", j.waits_for),
        "on_dead": on_dead_text(j.on_dead),
    }
    if j.max_attempts is not None and (type(j.max_attempts) is not int or not 1 <= j.max_attempts <= 999_999_999):
        raise FieldError("max_attempts", f"is {j.max_attempts!r}", "give a number from 1 to 999999999")
    if j.on_conflict not in (None, "ignore", "replace", "debounce"):
        raise FieldError("on_conflict", f"is {j.on_conflict!r}", "give ignore, replace or debounce")
    options = {"penstock-" + name.replace("_", "-"): value for name, value in given.items() if value is not None}
    merged = {**(headers or {}), **options} if options else headers or {}
    if j.on_conflict and not merged.get(HEADER_UNIQUE_KEY):
        raise FieldError("on_conflict", "is given without a unique_key", "give both")
    if j.debounce_max is not None and merged.get("penstock-on-conflict") != "debounce":
        raise FieldError("debounce_max", "is given and on_conflict is not debounce", "set on_conflict to debounce, or leave it out")
    for name, value in options.items():
        if headers and headers.get(name, value) != value:
            option = name.removeprefix("penstock-").replace("-", "_")
            raise FieldError(option, f"is {value!r}, and the header {name} says {headers[name]!r}", "give one of them")
    if j.key and merged.get(HEADER_UNIQUE_KEY, j.key) != j.key:
        problem = f"is {merged[HEADER_UNIQUE_KEY]!r}, and the key is {j.key!r}"
        raise FieldError("unique_key", problem, "leave the key out: a unique job has its unique_key as key")
    return merged if options else headers


Row = tuple[str | None, str | None, str, str | None, bytes]


def message_row(m: Message, encoder: Encoder = None) -> Row:
    """id, key, topic, headers and payload as values for the outbox's table."""
    made = printable("id", m.id, "the id travels in protocol headers")
    return made, text("key", m.key), text("topic", m.topic) or "", headers_text(m.headers), encode(m.payload, encoder)


JobRow = tuple[bytes, str | None, str, int, str | None, str | None, str | None]


def job_row(j: NewJob, encoder: Encoder = None) -> JobRow:
    """payload, key, group_key, priority, not_before, dedup_key and headers as values for enqueue_many."""
    if not isinstance(j.priority, int) or not -16 <= j.priority <= 15:
        raise FieldError("priority", f"is {j.priority}", "use -16 (first) to 15 (last)")
    due = None
    if j.not_before is not None:
        due = time_of("not_before", j.not_before).isoformat()
    group = text("group_key", j.group_key) or ""
    return encode(j.payload, encoder), text("key", j.key), group, j.priority, due, text("dedup_key", j.dedup_key), headers_text(with_options(j))
