"""Publishing messages one by one that are written in bulk."""

from __future__ import annotations

from dataclasses import replace
from types import TracebackType
from typing import Any

from ._api import enqueue_many, publish_many
from ._model import Encoder, Message, NewJob, job_row, message_row, time_of
from ._seam import Transaction


class Gathered:
    """Messages and jobs that wait to be written, in the given order for each outbox and queue. They are copies: the caller may change what it gave."""

    def __init__(self, at: int, encoder: Encoder = None):
        self.at, self.n, self.encoder = at, 0, encoder
        self.messages: dict[str, list[Message]] = {}
        self.jobs: dict[str, list[NewJob]] = {}

    def message(self, outbox: str, m: Message) -> bool:
        """Returns whether it is time to flush. Raises FieldError for a message that no database could carry."""
        payload = message_row(m, self.encoder)[-1]
        self.messages.setdefault(outbox, []).append(replace(m, payload=payload, headers=m.headers and dict(m.headers)))
        return self._full()

    def job(self, queue: str, j: NewJob) -> bool:
        payload = job_row(j, self.encoder)[0]
        times: dict[str, Any] = {name: time_of(name, at) for name, at in (("not_before", j.not_before), ("deadline", j.deadline)) if at is not None}
        kept = replace(j, payload=payload, headers=j.headers and dict(j.headers), waits_for=j.waits_for and tuple(j.waits_for), **times)
        self.jobs.setdefault(queue, []).append(kept)
        return self._full()

    def _full(self) -> bool:
        self.n += 1
        return self.n >= self.at

    def take(self) -> tuple[dict[str, list[Message]], dict[str, list[NewJob]]]:
        taken = self.messages, self.jobs
        self.messages, self.jobs, self.n = {}, {}, 0
        return taken


class Buffer:
    """Takes messages and jobs one at a time, and writes them with one statement per outbox and queue. It writes when it has `at` of them, at `flush()`,
    and when the with block ends without an exception. Put the block inside the transaction.

    The commit of an SQLAlchemy Session also flushes, and its rollback discards. The buffer does not notice savepoints: call flush() before one, and use a
    separate Buffer within it."""

    def __init__(self, tx: Transaction, *, at: int = 1000, schema: str = "penstock", encoder: Encoder = None):
        self.tx, self.schema, self.encoder, self._gathered = tx, schema, encoder, Gathered(at, encoder)
        self._event: tuple[Any, ...] | None = None

    def publish(self, outbox: str, payload: object, **fields: Any) -> None:
        self._begun()
        if self._gathered.message(outbox, Message(payload, **fields)):
            self.flush()

    def enqueue(self, queue: str, payload: object, **fields: Any) -> None:
        self._begun()
        if self._gathered.job(queue, NewJob(payload, **fields)):
            self.flush()

    def flush(self, *_: object) -> None:
        messages, jobs = self._gathered.take()
        for outbox, some in messages.items():
            publish_many(self.tx, outbox, some, schema=self.schema, encoder=self.encoder)
        for queue, more in jobs.items():
            enqueue_many(self.tx, queue, more, schema=self.schema, encoder=self.encoder)

    def _rolled_back(self, _session: object, ended: Any) -> None:
        if not ended.nested:
            self.forget()

    def _begun(self) -> None:
        """Begins the Session's transaction. Without one, its rollback would not discard what is buffered."""
        if hasattr(self.tx, "get_bind") and not self.tx.in_transaction():
            self.tx.begin()

    def forget(self) -> None:
        """Discards messages and jobs that have not been written. Call it when their transaction is rolled back. A Session's rollback calls it."""
        self._gathered.take()

    def __enter__(self) -> Buffer:
        if hasattr(self.tx, "get_bind"):
            from sqlalchemy import event

            event.listen(self.tx, "before_commit", self.flush)
            event.listen(self.tx, "after_soft_rollback", self._rolled_back)
        return self

    def __exit__(self, kind: type[BaseException] | None, _e: BaseException | None, _tb: TracebackType | None) -> None:
        if hasattr(self.tx, "get_bind"):
            from sqlalchemy import event

            event.remove(self.tx, "before_commit", self.flush)
            event.remove(self.tx, "after_soft_rollback", self._rolled_back)
        if kind is None:
            self.flush()
