"""The same as in `penstock` for asyncio: psycopg's AsyncConnection, asyncpg, SQLAlchemy's AsyncSession and AsyncConnection."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, TypeAlias, TypeVar

from ._buffer import Gathered
from ._connect import Database, autocommit_async, close_async, connect_async, cut, transaction_async
from ._desk import CALL_TIMEOUT, IDLE, MAINTAIN_EVERY, REACH, SETTLED, Desk, Options, Outage, Task, growing, log, monotonic, permanent, unbegun, within
from ._kinds import by_kind
from ._model import (
    MEMBER_STEPS,
    Aborted,
    DeadJob,
    Encoder,
    Enqueued,
    Error,
    FoundJob,
    GroupPolicy,
    Job,
    Message,
    NewJob,
    Outcome,
    Payload,
    QueueStatus,
    Schedule,
    keywords,
)
from ._seam import Transaction, away, execute_async, run_async, told
from ._signals import stopped_by_signals
from ._sql import Op, Postgres
from ._steps import calling, naming, reporting, results

T = TypeVar("T")
Handler = Callable[[Job], Awaitable[object]]
TxHandler = Callable[[Any, Job], Awaitable[object]]
Handlers: TypeAlias = Handler | Mapping[str, Handler]
TxHandlers: TypeAlias = TxHandler | Mapping[str, TxHandler]


@keywords
async def publish(
    tx: Transaction, outbox: str, payload: Payload, *, key: str | None = None, topic: str = "", headers: Mapping[str, str] | None = None,
    id: str | None = None, schema: str = "penstock", encoder: Encoder = None,
) -> None:  # fmt: skip
    """Publishes a message. It is delivered if the transaction commits, and never if it rolls back. Raises FieldError and NotFoundError."""
    await publish_many(tx, outbox, [Message(payload, key, topic, headers, id)], schema=schema, encoder=encoder)


async def publish_many(tx: Transaction, outbox: str, messages: Iterable[Message], *, schema: str = "penstock", encoder: Encoder = None) -> None:
    """Publishes messages in the given order, with one statement. All are checked before the first is written."""
    await run_async(tx, Postgres(schema, encoder).publish(outbox, messages))


@keywords
async def enqueue(
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
    return (await enqueue_many(tx, queue, [job], schema=schema, encoder=encoder))[0]


async def enqueue_many(tx: Transaction, queue: str, jobs: Iterable[NewJob], *, schema: str = "penstock", encoder: Encoder = None) -> list[Enqueued]:
    """Enqueues jobs with one statement, and returns a result for each, in the given order."""
    return await run_async(tx, Postgres(schema, encoder).enqueue(queue, jobs))


async def report(job: Job, value: object, *, tx: Transaction | None = None) -> None:
    """`penstock.report` for asyncio."""
    await _call(job, reporting(job, value), tx)


async def step(job: Job, name: str, fn: Callable[[], Awaitable[T]], *, tx: Transaction | None = None) -> T:
    """`penstock.step` of a coroutine function."""
    done = results(job, name)
    if name in done:
        return done[name]  # type: ignore[no-any-return]
    result = await fn()
    with naming(name):
        await _call(job, reporting(job, {MEMBER_STEPS: {name: result}}), tx)
    if tx is None:
        done[name] = result
    return result


async def _call(job: Job, op: Op[None], tx: Transaction | None) -> None:
    if tx is not None:
        await run_async(tx, op)
        return
    made = calling(job)(op)
    if inspect.isawaitable(made):
        await made


async def barrier(tx: Transaction, queue: str, *, schema: str = "penstock") -> int:
    """`penstock.barrier` for asyncio."""
    return await run_async(tx, Postgres(schema).barrier(queue))


async def seal(tx: Transaction, queue: str, barrier: int, *, schema: str = "penstock") -> None:
    """`penstock.seal` for asyncio."""
    await run_async(tx, Postgres(schema).seal(queue, barrier))


async def publish_after(
    tx: Transaction, queue: str, waits_for: Sequence[int], outbox: str, payload: Payload, *, key: str | None = None, topic: str = "",
    headers: Mapping[str, str] | None = None, id: str | None = None, on_dead: str | None = None, schema: str = "penstock", encoder: Encoder = None,
) -> int:  # fmt: skip
    """`penstock.publish_after` for asyncio."""
    return await run_async(tx, Postgres(schema, encoder).publish_after(queue, waits_for, outbox, Message(payload, key, topic, headers, id), on_dead))


async def check(tx: Transaction, *, schema: str = "penstock") -> int:
    """Returns the version of the database's schema. Raises SchemaError if this client does not support it."""
    return await run_async(tx, Postgres(schema).check())


class inbox:  # noqa: N801 - it stands for the module penstock.inbox
    @staticmethod
    async def first(tx: Transaction, consumer: str, message_id: str, *, schema: str = "penstock") -> bool:
        """Returns whether the message is new to the consumer, and notes its id. If the transaction rolls back, it is new again."""
        return await inbox.first_of(tx, consumer, [message_id], schema=schema) == [message_id]

    @staticmethod
    async def first_of(tx: Transaction, consumer: str, message_ids: Sequence[str], *, schema: str = "penstock") -> list[str]:
        """Returns the ids that are new to the consumer, each once and in the given order, and notes them."""
        return await run_async(tx, Postgres(schema).first(consumer, message_ids))


class Buffer:
    """`penstock.Buffer` for asyncio: `async with`, inside the transaction."""

    def __init__(self, tx: Transaction, *, at: int = 1000, schema: str = "penstock", encoder: Encoder = None):
        self.tx, self.schema, self.encoder, self._gathered = tx, schema, encoder, Gathered(at, encoder)

    async def publish(self, outbox: str, payload: object, **fields: Any) -> None:
        if self._gathered.message(outbox, Message(payload, **fields)):
            await self.flush()

    async def enqueue(self, queue: str, payload: object, **fields: Any) -> None:
        if self._gathered.job(queue, NewJob(payload, **fields)):
            await self.flush()

    async def flush(self) -> None:
        messages, jobs = self._gathered.take()
        for outbox, some in messages.items():
            await publish_many(self.tx, outbox, some, schema=self.schema, encoder=self.encoder)
        for queue, more in jobs.items():
            await enqueue_many(self.tx, queue, more, schema=self.schema, encoder=self.encoder)

    def forget(self) -> None:
        """Discards messages and jobs that have not been written. Call it when their transaction is rolled back."""
        self._gathered.take()

    async def __aenter__(self) -> Buffer:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, _e: BaseException | None, _tb: TracebackType | None) -> None:
        if kind is None:
            await self.flush()


class Queue:
    """`penstock.Queue` for asyncio."""

    def __init__(self, tx: Transaction, name: str, *, schema: str = "penstock", encoder: Encoder = None):
        self.tx, self.name, self._sql = tx, name, Postgres(schema, encoder)

    async def create(self, ordering: str = "fifo") -> None:
        await run_async(self.tx, self._sql.create_queue(self.name, ordering))

    async def status(self) -> QueueStatus:
        return await run_async(self.tx, self._sql.status(self.name))

    async def schedule(
        self, name: str, cron: str, payload: Payload, *, key: str | None = None, group_key: str = "", priority: int = 0, dedup_key: str | None = None,
        headers: Mapping[str, str] | None = None, kind: str = "", skip_overlap: bool = False,
    ) -> datetime:  # fmt: skip
        return await run_async(
            self.tx, self._sql.schedule(self.name, name, cron, NewJob(payload, key, group_key, priority, None, dedup_key, headers, kind), skip_overlap)
        )

    async def unschedule(self, name: str) -> None:
        await run_async(self.tx, self._sql.on_schedule("unschedule", self.name, name))

    async def pause_schedule(self, name: str) -> None:
        await run_async(self.tx, self._sql.on_schedule("pause_schedule", self.name, name))

    async def resume_schedule(self, name: str) -> None:
        await run_async(self.tx, self._sql.on_schedule("resume_schedule", self.name, name))

    async def run_schedule(self, name: str) -> Enqueued:
        return await run_async(self.tx, self._sql.run_schedule(self.name, name))

    async def schedules(self) -> list[Schedule]:
        return await run_async(self.tx, self._sql.schedules(self.name))

    async def cancel(self, ids: Sequence[int]) -> int:
        return await run_async(self.tx, self._sql.on_jobs("cancel", self.name, ids))

    async def pause(self) -> None:
        await run_async(self.tx, self._sql.on_queue("pause_queue", self.name))

    async def resume(self) -> None:
        await run_async(self.tx, self._sql.on_queue("resume_queue", self.name))

    async def dead_jobs(self, most: int = 100, after: int = 0) -> list[DeadJob]:
        return await run_async(self.tx, self._sql.dead_jobs(self.name, most, after))

    async def find_job(self, id: int) -> FoundJob | None:
        return await run_async(self.tx, self._sql.find_job(self.name, id))

    async def retry_dead_jobs(self, ids: Sequence[int]) -> int:
        return await run_async(self.tx, self._sql.on_jobs("retry_dead_jobs", self.name, ids))

    async def discard_dead_jobs(self, ids: Sequence[int]) -> int:
        return await run_async(self.tx, self._sql.on_jobs("discard_dead_jobs", self.name, ids))

    async def set_group(
        self, group_key: str, *, max_running: int | None = None, rate: int | None = None, per: float | timedelta | None = None, burst: int | None = None,
        weight: int | None = None,
    ) -> None:  # fmt: skip
        await run_async(self.tx, self._sql.set_group(self.name, group_key, max_running, rate, per, burst, weight))

    async def hold_group(self, group_key: str, hold_for: float | timedelta, reason: str = "") -> None:
        await run_async(self.tx, self._sql.hold_group(self.name, group_key, hold_for, reason))

    async def group_policies(self, most: int = 1000, after: str = "") -> list[GroupPolicy]:
        return await run_async(self.tx, self._sql.group_policies(self.name, most, after))


class Line:
    """A connection that is opened when it is first needed, and again after an error."""

    def __init__(self, db: Database):
        self.db, self.made, self.conn = db, None, None

    async def call(self, op: Op[T]) -> T:
        try:
            if self.conn is None:
                self.made = await connect_async(self.db)
                self.conn = await autocommit_async(self.made)
            hangs = asyncio.get_running_loop().call_later(CALL_TIMEOUT, cut, self.made)
            try:
                return await run_async(self.conn, op)
            finally:
                hangs.cancel()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        made, self.made, self.conn = self.made, None, None
        if made is not None:
            await close_async(made)


class NotAsyncError(TypeError):
    """The handler is not async, so it would block the event loop and the extension of all leases."""


def awaitable(made: Any) -> Awaitable[object]:
    if inspect.isawaitable(made):
        return made
    raise NotAsyncError("the handler is not an async function, which a worker with asyncio needs: use penstock.work, or work_tx of penstock")


class Worker:
    """Runs a coroutine, or one for each kind, on the jobs of a queue: `run()` until `stop()`. Aborted handlers are cancelled."""

    def __init__(self, db: Database, queue: str, handler: Handlers, options: Options):
        self.db, self.handler, self.o = db, by_kind(handler, queue, options), options
        self.desk = Desk(queue, options)
        self.halt, self.over, self.change = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.running: dict[int, asyncio.Task[object]] = {}
        self.loops: set[asyncio.Task[None]] = set()
        self.failed: BaseException | None = None
        self.reports, self.reporting = Line(db), asyncio.Lock()  # of all handlers, opened by the first that reports

    def stop(self) -> None:
        self.halt.set()

    async def run(self) -> None:
        """Returns once everything is drained, also when it is cancelled. Raises an error if another attempt would not help, or if the ends of some jobs
        could not be written."""
        running = asyncio.ensure_future(self._run())
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:
            self.stop()
            await running
            raise

    async def _run(self) -> None:
        line = Line(self.db)
        if not await self._reach(line):
            return
        self.desk.starts()
        writer = asyncio.ensure_future(self._write(line))
        others = [self._start(loop()) for loop in (self._extend, self._maintain, self._expire)]
        await self.halt.wait()
        self.desk.stops()
        await self._give_back(self.desk.stop())
        self.change.set()
        await self._drained(self.o.drain_timeout if self.failed is None else 0)
        self._abort(self.desk.interrupt(), "stopping")
        await self._drained(max(self.o.drain_timeout, 1))
        busy = self.desk.leave()
        self.change.set()
        await asyncio.wait([writer], timeout=self.o.drain_timeout + 1)
        self.over.set()
        for task in (writer, *others):
            task.cancel()
        await asyncio.gather(writer, *others, return_exceptions=True)
        await line.close()
        await self.reports.close()
        if self.failed is not None:
            raise self.failed
        if busy:
            raise Error(f"handlers that were left, because they went on after the drain time: {busy}", hint="their jobs run again when their leases end")
        if left := len(self.desk.held):
            raise Error(f"how {left} jobs ended could not be written within {self.o.drain_timeout:g} s", hint="they run again when their leases end")

    async def _reach(self, line: Line) -> bool:
        """Tries until the database answers. False: it is stopped before."""
        failures = 0
        while not self.halt.is_set():
            try:
                await line.call(self.desk.reach())
                self.desk.outage.works(REACH)
                return True
            except Exception as e:
                if not away(e):
                    raise
                self.desk.outage.fails(REACH, e)
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self.halt.wait(), growing(failures))
            failures += 1
        return False

    def _start(self, what: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(what)
        self.loops.add(task)
        task.add_done_callback(self.loops.discard)
        return task

    async def _drained(self, seconds: float) -> None:
        end = monotonic() + seconds
        while self.running and monotonic() < end:
            await asyncio.wait(list(self.running.values()), timeout=end - monotonic())
            await asyncio.sleep(0)

    def _abort(self, tasks: list[Task], cause: str) -> None:
        for t in tasks:
            t.job.abort(cause)

    async def _give_back(self, tasks: list[Task]) -> None:
        if not tasks:
            return
        line = Line(self.db)
        try:
            await line.call(self.desk.sql.release(self.desk.queue, [t.job.lease for t in tasks]))
        except Exception as e:
            log.warning("cannot give back %d jobs that have not begun; they come back when their leases end: %s", len(tasks), told(e))
        finally:
            await line.close()
        for t in tasks:
            self.desk.finish(t, "released")
        self.change.set()

    async def _until(self, event: asyncio.Event, seconds: float) -> bool:
        """Returns whether the event came within that time."""
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(event.wait(), seconds)
        return event.is_set()

    async def _write(self, line: Line) -> None:
        failures, end = 0, 0.0
        while True:
            self.change.clear()
            what, n = self.desk.due(monotonic())
            if what == "wait":
                await self._until(self.change, n)
                continue
            if self.desk.stopping and not self.desk.busy:
                end = end or monotonic() + self.o.drain_timeout
            if what == "end" or (failures and end and monotonic() > end):
                if not failures and self.failed is None:
                    await self._beat(line, stopped=True)
                return
            try:
                await line.call(self.desk.step(what, n))
                self.desk.outage.works("claim or end jobs")
                failures = 0
                if self.desk.stopping:
                    await self._give_back(self.desk.stop())
                self._begin()
            except Exception as e:
                if permanent(e):
                    self.failed = e
                    self.stop()
                    return
                pause = growing(failures)
                failures += 1
                self.desk.outage.fails("claim or end jobs", e)
                await self._until(self.over if self.halt.is_set() else self.halt, pause)

    async def _extend(self) -> None:
        line, wait, failures = Line(self.db), self.desk.extend_every, 0
        try:
            while not await self._until(self.over, wait):
                if not self.desk.held:
                    self.desk.outage.works("extend leases")
                    continue
                try:
                    tasks = await line.call(self.desk.extend())
                except Exception as e:
                    wait = min(growing(failures), self.o.lease / 10)
                    failures += 1
                    self.desk.outage.fails("extend leases", e)
                    continue
                self.desk.outage.works("extend leases")
                wait, failures = self.desk.extend_every, 0
                self._abort(tasks, "lease_lost")
                await self._give_back(self.desk.stuck())
        finally:
            await line.close()

    async def _maintain(self) -> None:
        line, wait, failures = Line(self.db), 0.0, 0
        try:
            while not await self._until(self.halt, wait):
                try:
                    await line.call(self.desk.sql.maintain(self.desk.queue))
                    self.desk.outage.works("do the maintenance")
                    wait, failures = MAINTAIN_EVERY, 0
                except Exception as e:
                    wait = max(growing(failures), MAINTAIN_EVERY)
                    failures += 1
                    self.desk.outage.fails("do the maintenance", e)
                else:
                    await self._beat(line)
        finally:
            await line.close()

    async def _beat(self, line: Line, stopped: bool = False) -> None:
        if (beat := self.desk.heartbeat(monotonic(), stopped)) is not None:
            try:
                await line.call(beat)
            except Exception as e:
                log.debug("cannot send a heartbeat: %s", e)

    async def _expire(self) -> None:
        while not await self._until(self.over, min(self.o.lease / 10, 1)):
            self._abort(self.desk.expired(monotonic()), "lease_lost")

    def _begin(self) -> None:
        while task := self.desk.begin():
            self.running[task.job.lease] = asyncio.ensure_future(self._handle(task))

    async def _report(self, op: Op[None]) -> None:
        async with self.reporting:
            await self.reports.call(op)

    async def _handle(self, task: Task) -> None:
        task.job._call = self._report
        start = monotonic()
        how: object
        handling = self.running[task.job.lease]

        def cancel(_cause: str) -> None:
            handling.cancel()

        task.job.on_abort(cancel)
        stop = within(task.job, task.job.timeout, later)
        try:
            how = await awaitable(self.handler(task.job))
        except NotAsyncError as e:
            self.failed = e
            self.stop()
            task.job.abort("stopping")
            how = Aborted("stopping")
        except BaseException as e:
            how = e
        stop()
        now = monotonic()
        self.running.pop(task.job.lease, None)
        self.desk.ended(task, how, now - start, now)
        self._begin()
        self.change.set()


def later(seconds: float, fn: Callable[[str], None], why: str) -> Callable[[], None]:
    return asyncio.get_running_loop().call_later(seconds, fn, why).cancel


def in_transaction(db: Database, queue: str, handlers: TxHandlers, options: Options) -> tuple[Handler, Callable[[], Awaitable[None]]]:
    """Returns a handler that ends its job itself, and a function that closes its connections."""
    handler = by_kind(handlers, queue, options)
    idle: list[tuple[Any, float]] = []  # with the time since when
    sql, outage = Postgres(options.schema), Outage(queue)

    async def begin(conn: Any, tried: bool) -> contextlib.AsyncExitStack:
        try:
            async with contextlib.AsyncExitStack() as stack:
                await stack.enter_async_context(transaction_async(conn))
                if not tried:
                    await execute_async(conn, "select 1", [])
                return stack.pop_all()
        except BaseException:
            await close_async(conn)
            raise

    async def begun() -> tuple[Any, contextlib.AsyncExitStack]:
        """A connection and its transaction. Those that are idle may be gone since the last job, and another attempt of that job would not be its fault."""
        while idle:
            conn, since = idle.pop()
            with contextlib.suppress(Exception):
                return conn, await begin(conn, monotonic() - since <= IDLE)
        try:
            conn = await connect_async(db)
            stack = await begin(conn, True)
        except Exception as e:
            raise unbegun(outage, e) from e
        outage.works("begin the transactions of jobs")
        return conn, stack

    async def handle(job: Job) -> object:
        conn, stack = await begun()
        try:
            async with stack:
                how = await awaitable(handler(conn, job))
                if how is not None:
                    raise how if isinstance(how, Outcome) else TypeError(f"the handler returned {how!r}, which is not an outcome")
                await run_async(conn, sql.ack_one(queue, job.lease))
        except BaseException as e:
            if isinstance(e, Outcome):
                idle.append((conn, monotonic()))
            else:  # the connection may be what has failed
                await close_async(conn)
            raise
        idle.append((conn, monotonic()))
        return SETTLED

    async def close_all() -> None:
        for conn, _ in idle:
            await close_async(conn)

    return handle, close_all


async def work(db: Database, queue: str, handler: Handlers, *, signals: bool = True, **options: Any) -> None:
    """Runs the coroutine `handler(job)` on the jobs of a queue until SIGTERM, SIGINT or its own cancellation. Handlers by kind are a dict. The options are
    those of `penstock.Options`."""
    worker = Worker(db, queue, handler, Options(**options))
    loop = asyncio.get_running_loop()
    with stopped_by_signals(lambda: loop.call_soon_threadsafe(worker.stop)) if signals else contextlib.nullcontext():
        await worker.run()


async def work_tx(db: Database, queue: str, handler: TxHandlers, *, signals: bool = True, **options: Any) -> None:
    """Like `work`, with a transaction around each `handler(tx, job)` that also ends the job: the handler's writes take effect exactly once."""
    handle, close_all = in_transaction(db, queue, handler, Options(**options))
    try:
        await work(db, queue, handle, signals=signals, **options)
    finally:
        await close_all()


__all__ = [
    "Buffer",
    "Queue",
    "Worker",
    "barrier",
    "check",
    "enqueue",
    "enqueue_many",
    "inbox",
    "publish",
    "publish_after",
    "publish_many",
    "report",
    "seal",
    "step",
    "work",
    "work_tx",
]
