"""A queue's schedules and dead letters, for those who look after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from ._model import DeadJob, Encoder, Enqueued, Error, NewJob, Payload, Schedule
from ._seam import Transaction, dialect, run
from ._sql import Postgres


class Queue:
    """A queue's schedules and dead letters, in the caller's transaction on PostgreSQL. Calls about schedules need the role that owns the schema,
    those about dead letters `grant_operator`."""

    def __init__(self, tx: Transaction, name: str, *, schema: str = "penstock", encoder: Encoder = None):
        if dialect(tx) == "sqlite":
            raise Error("the schedules and dead letters of SQLite are not for this client", hint="run: penstock schedule list QUEUE --database-url sqlite:FILE")
        self.tx, self.name, self._sql = tx, name, Postgres(schema, encoder)

    def schedule(
        self, name: str, cron: str, payload: Payload, *, key: str | None = None, group_key: str = "", priority: int = 0, dedup_key: str | None = None,
        headers: Mapping[str, str] | None = None, kind: str = "", skip_overlap: bool = False,
    ) -> datetime:  # fmt: skip
        """Makes or changes a periodic job, and returns when it runs next. `cron` has five fields, as in "30 4 * * 1-5", in UTC or in a zone that comes
        first: "TZ=Europe/Berlin 30 4 * * *". With `skip_overlap` it enqueues no job while its last one has not ended. A paused schedule stays paused."""
        return run(self.tx, self._sql.schedule(self.name, name, cron, NewJob(payload, key, group_key, priority, None, dedup_key, headers, kind), skip_overlap))

    def unschedule(self, name: str) -> None:
        """Ends a periodic job. Jobs that it has enqueued stay. Raises NotFoundError if there is none of the name, as the next three do."""
        run(self.tx, self._sql.on_schedule("unschedule", self.name, name))

    def pause_schedule(self, name: str) -> None:
        """Pauses a periodic job: none is enqueued until `resume_schedule`."""
        run(self.tx, self._sql.on_schedule("pause_schedule", self.name, name))

    def resume_schedule(self, name: str) -> None:
        """Ends the pause. No job makes up for times that have passed."""
        run(self.tx, self._sql.on_schedule("resume_schedule", self.name, name))

    def run_schedule(self, name: str) -> Enqueued:
        """Enqueues the job of a schedule now, also while that is paused or its last job has not ended."""
        return run(self.tx, self._sql.run_schedule(self.name, name))

    def schedules(self) -> list[Schedule]:
        """The periodic jobs, by name."""
        return run(self.tx, self._sql.schedules(self.name))

    def dead_jobs(self, most: int = 100, after: int = 0) -> list[DeadJob]:
        """Dead letters by id: up to `most`, behind the id of one."""
        return run(self.tx, self._sql.dead_jobs(self.name, most, after))

    def retry_dead_jobs(self, ids: Sequence[int]) -> int:
        """Puts dead letters back at the end of the queue, with one more attempt at least. Returns how many there were."""
        return run(self.tx, self._sql.on_dead_jobs("retry_dead_jobs", self.name, ids))

    def discard_dead_jobs(self, ids: Sequence[int]) -> int:
        """Removes dead letters permanently. Returns how many there were."""
        return run(self.tx, self._sql.on_dead_jobs("discard_dead_jobs", self.name, ids))
