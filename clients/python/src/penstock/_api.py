"""Functions that write in the caller's transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from ._model import Encoder, Enqueued, Message, NewJob, Payload, keywords
from ._seam import Transaction, postgres, run, sql_for


@keywords
def publish(
    tx: Transaction, outbox: str, payload: Payload, *, key: str | None = None, topic: str = "", headers: Mapping[str, str] | None = None,
    id: str | None = None, schema: str = "penstock", encoder: Encoder = None,
) -> None:  # fmt: skip
    """Publishes a message. It is delivered if the transaction commits, and never if it rolls back. Raises FieldError and NotFoundError."""
    publish_many(tx, outbox, [Message(payload, key, topic, headers, id)], schema=schema, encoder=encoder)


def publish_many(tx: Transaction, outbox: str, messages: Iterable[Message], *, schema: str = "penstock", encoder: Encoder = None) -> None:
    """Publishes messages in the given order, with one statement. All are checked before the first is written."""
    run(tx, sql_for(tx, schema, encoder).publish(outbox, messages))


@keywords
def enqueue(
    tx: Transaction, queue: str, payload: Payload, *, key: str | None = None, group_key: str = "", priority: int = 0,
    not_before: datetime | timedelta | None = None, dedup_key: str | None = None, headers: Mapping[str, str] | None = None, kind: str = "",
    unique_key: str | None = None, on_conflict: str | None = None, debounce_max: timedelta | None = None, max_attempts: int | None = None,
    timeout: timedelta | None = None, deadline: datetime | timedelta | None = None, holds: int | None = None, waits_for: Sequence[int] | None = None,
    on_dead: str | None = None, schema: str = "penstock", encoder: Encoder = None,
) -> Enqueued:  # fmt: skip
    """Enqueues a job. It can run if the transaction commits, and never if it rolls back. Raises FieldError and NotFoundError."""
    job = NewJob(
        payload, key, group_key, priority, not_before, dedup_key, headers, kind, unique_key, on_conflict, debounce_max, max_attempts, timeout, deadline,
        holds, waits_for, on_dead,
    )  # fmt: skip
    return enqueue_many(tx, queue, [job], schema=schema, encoder=encoder)[0]


def enqueue_many(tx: Transaction, queue: str, jobs: Iterable[NewJob], *, schema: str = "penstock", encoder: Encoder = None) -> list[Enqueued]:
    """Enqueues jobs with one statement, and returns a result for each, in the given order."""
    return run(tx, sql_for(tx, schema, encoder).enqueue(queue, jobs))


def barrier(tx: Transaction, queue: str, *, schema: str = "penstock") -> int:
    """Makes a barrier for jobs of a queue on PostgreSQL, and returns its number, for `holds` and `waits_for`. It opens, once, when it is sealed and each job
    that holds it has ended."""
    return run(tx, postgres(tx, schema).barrier(queue))


def seal(tx: Transaction, queue: str, barrier: int, *, schema: str = "penstock") -> None:
    """Seals a barrier: it opens when each job that holds it has ended, at once if none does. A job that holds it may still add others."""
    run(tx, postgres(tx, schema).seal(queue, barrier))


def publish_after(
    tx: Transaction, queue: str, waits_for: Sequence[int], outbox: str, payload: Payload, *, key: str | None = None, topic: str = "",
    headers: Mapping[str, str] | None = None, id: str | None = None, on_dead: str | None = None, schema: str = "penstock", encoder: Encoder = None,
) -> int:  # fmt: skip
    """Publishes a message on PostgreSQL once these barriers of the queue are open: in the transaction that opens the last one. Until then the queue shows it
    as a job that waits, by the id that is returned. `on_dead` is as of a job."""
    return run(tx, postgres(tx, schema, encoder).publish_after(queue, waits_for, outbox, Message(payload, key, topic, headers, id), on_dead))


def check(tx: Transaction, *, schema: str = "penstock") -> int:
    """Returns the version of the database's schema. Raises SchemaError if this client does not support it."""
    return run(tx, sql_for(tx, schema).check())  # type: ignore[no-any-return]
