"""A queue's state, schedules, dead letters and groups, for those who look after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from ._model import DeadJob, Encoder, Enqueued, Error, FoundJob, GroupPolicy, NewJob, Payload, QueueStatus, Schedule
from ._seam import Transaction, dialect, run
from ._sql import Postgres


class Queue:
    """A queue's state, schedules, dead letters and groups, in the caller's transaction on PostgreSQL. `create` and calls about schedules need the role that
    owns the schema, the others `grant_operator`."""

    def __init__(self, tx: Transaction, name: str, *, schema: str = "penstock", encoder: Encoder = None):
        if dialect(tx) == "sqlite":
            raise Error(
                "the schedules, dead letters and groups of SQLite are not for this client", hint="run: penstock schedule list QUEUE --database-url sqlite:FILE"
            )
        self.tx, self.name, self._sql = tx, name, Postgres(schema, encoder)

    def create(self, ordering: str = "fifo") -> None:
        """Makes the queue. "lifo" begins with the last job. Raises the driver's error, with the code 42P07, if it exists already."""
        run(self.tx, self._sql.create_queue(self.name, ordering))

    def status(self) -> QueueStatus:
        """How many of the queue's jobs are ready, running, delayed, waiting and dead. It reads the queue."""
        return run(self.tx, self._sql.status(self.name))

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

    def cancel(self, ids: Sequence[int]) -> int:
        """Cancels jobs, in any state, and returns how many there were. A running one loses its lease. It needs `grant_operator`, as the next two do."""
        return run(self.tx, self._sql.on_jobs("cancel", self.name, ids))

    def pause(self) -> None:
        """Pauses the queue: no job starts until `resume`, and those that run continue."""
        run(self.tx, self._sql.on_queue("pause_queue", self.name))

    def resume(self) -> None:
        """Ends the pause."""
        run(self.tx, self._sql.on_queue("resume_queue", self.name))

    def dead_jobs(self, most: int = 100, after: int = 0) -> list[DeadJob]:
        """Dead letters by id: up to `most`, behind the id of one."""
        return run(self.tx, self._sql.dead_jobs(self.name, most, after))

    def find_job(self, id: int) -> FoundJob | None:
        """Where a job is, and its report. None: it has ended and is not kept, or there was none. It is for one job that a person looks at: it reads all
        leases of the queue. `grant_enqueuer`, `grant_worker` and `grant_operator` allow it."""
        return run(self.tx, self._sql.find_job(self.name, id))

    def retry_dead_jobs(self, ids: Sequence[int]) -> int:
        """Puts dead letters back at the end of the queue, with one more attempt at least. Returns how many there were."""
        return run(self.tx, self._sql.on_jobs("retry_dead_jobs", self.name, ids))

    def discard_dead_jobs(self, ids: Sequence[int]) -> int:
        """Removes dead letters permanently. Returns how many there were."""
        return run(self.tx, self._sql.on_jobs("discard_dead_jobs", self.name, ids))

    def set_group(
        self, group_key: str, *, max_running: int | None = None, rate: int | None = None, per: float | timedelta | None = None, burst: int | None = None,
        weight: int | None = None,
    ) -> None:  # fmt: skip
        """Replaces the policy of a group, or with "*" that of each group without one: `max_running` jobs at a time, `rate` starts in `per` (seconds, or a
        timedelta), `burst` of them at once, and the group's share of a worker for several groups, `weight`. Without any the policy is deleted."""
        run(self.tx, self._sql.set_group(self.name, group_key, max_running, rate, per, burst, weight))

    def hold_group(self, group_key: str, hold_for: float | timedelta, reason: str = "") -> None:
        """Lets no job of a group start for some seconds or a timedelta from now; jobs that run continue. It does not shorten an earlier hold; 0 ends it.
        `grant_worker` is enough."""
        run(self.tx, self._sql.hold_group(self.name, group_key, hold_for, reason))

    def group_policies(self, most: int = 1000, after: str = "") -> list[GroupPolicy]:
        """The groups that have a policy or are held, by name: up to `most`, behind the name of one."""
        return run(self.tx, self._sql.group_policies(self.name, most, after))
