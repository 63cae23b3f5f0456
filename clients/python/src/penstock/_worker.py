"""The worker with threads."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from queue import Empty, SimpleQueue
from typing import Any, TypeAlias, TypeVar

from ._connect import Database, autocommit, close, connect, cut, transaction
from ._desk import (
    CALL_TIMEOUT,
    IDLE,
    MAINTAIN_EVERY,
    REACH,
    SETTLED,
    Desk,
    Done,
    Options,
    Outage,
    Task,
    growing,
    in_thread,
    log,
    monotonic,
    permanent,
    threads_take,
    unbegun,
    within,
)
from ._kinds import by_kind
from ._model import Error, Job, Outcome
from ._seam import NOTHING, away, execute, run, told
from ._signals import stopped_by_signals
from ._sql import Op, Postgres

T = TypeVar("T")
Handler = Callable[[Job], object]
TxHandler = Callable[[Any, Job], object]
Handlers: TypeAlias = Handler | Mapping[str, Handler]
TxHandlers: TypeAlias = TxHandler | Mapping[str, TxHandler]


class Line:
    """A connection that is opened when it is first needed, and again after an error. `watch` ends calls that hang."""

    def __init__(self, db: Database, lock: AbstractContextManager[Any] = NOTHING):
        self.db, self.lock, self.made, self.conn = db, lock, None, None
        self.since: float | None = None  # when the running call began

    def call(self, op: Op[T]) -> T:
        try:
            if self.conn is None:
                self.made = connect(self.db)
                self.conn = autocommit(self.made)
            self.since = monotonic()
            return run(self.conn, op, self.lock)
        except BaseException:
            self.close()
            raise
        finally:
            self.since = None

    def watch(self) -> None:
        if self.since is not None and monotonic() - self.since > CALL_TIMEOUT:
            cut(self.made)

    def close(self) -> None:
        if self.made is not None:
            close(self.made)
        self.made = self.conn = None


class Worker:
    """Runs a handler, or one for each kind, on the jobs of a queue: `run()` until `stop()`, which any thread and any signal handler may call."""

    def __init__(self, db: Database, queue: str, handler: Handlers, options: Options):
        threads_take(handler)
        self.db, self.handler, self.o = db, by_kind(handler, queue, options), options
        self.desk = Desk(queue, options)
        lock = threading.Lock()
        self.jobs, self.changes = threading.Condition(lock), threading.Condition(lock)  # handlers wait for it, and so does the thread that writes
        self.stops: SimpleQueue[None] = SimpleQueue()  # unlike an Event, a signal handler may use it
        self.halt = threading.Event()
        self.over = threading.Event()  # everything is written, or given up
        self.failed: BaseException | None = None
        self.lines: list[Line] = []
        self.reports, self.reporting = Line(db), threading.Lock()  # of all handlers, opened by the first that reports

    def stop(self) -> None:
        self.stops.put(None)

    def run(self) -> None:
        """Returns once everything is drained. Raises an error if another attempt would not help, if handlers exceed the drain time, or if the ends of some
        jobs could not be written."""
        writer_line, *others = self.lines = [Line(self.db, self.changes) for _ in range(3)]
        self.lines.append(self.reports)
        if not self._reach(writer_line):
            return
        self.desk.starts()
        writer = threading.Thread(target=self._write, args=(writer_line,), daemon=True, name="penstock claim")
        loops = [
            threading.Thread(target=target, args=(line,), daemon=True, name=f"penstock{target.__name__}")
            for target, line in zip((self._extend, self._maintain), others, strict=True)
        ]
        handlers = [threading.Thread(target=self._handle, daemon=True, name=f"penstock handler {n}") for n in range(self.o.concurrency)]
        for thread in (writer, *loops, *handlers):
            thread.start()
        while not self._stopped(min(self.o.lease / 10, 1)):
            self._expire()
        self.halt.set()
        self.desk.stops()
        with self.jobs:
            unbegun = self.desk.stop()
            self.jobs.notify_all()
            self.changes.notify_all()
        self._give_back(unbegun)
        self._wait(self.o.drain_timeout if self.failed is None else 0)
        with self.jobs:
            interrupted = self.desk.interrupt()
        for t in interrupted:
            t.job.abort("stopping")
        self._wait(max(self.o.drain_timeout, 1))  # nothing can stop a thread from outside
        with self.jobs:
            busy = self.desk.leave()
            self.changes.notify_all()
        writer.join(self.o.drain_timeout + 1)
        self.over.set()
        if self.reporting.acquire(timeout=1):
            self.reports.close()
        with self.jobs:
            left = len(self.desk.held)
        if self.failed is not None:
            raise self.failed
        if busy:
            raise Error(f"handlers that were left, because they went on after the drain time: {busy}", hint="their jobs run again when their leases end")
        if left:
            raise Error(f"how {left} jobs ended could not be written within {self.o.drain_timeout:g} s", hint="they run again when their leases end")

    def _reach(self, line: Line) -> bool:
        """Tries until the database answers. False: it is stopped before."""
        failures = 0
        while True:
            try:
                line.call(self.desk.reach())
                self.desk.outage.works(REACH)
                return True
            except Exception as e:
                if not away(e):
                    raise
                self.desk.outage.fails(REACH, e)
            if self._stopped(growing(failures)):
                return False
            failures += 1

    def _stopped(self, seconds: float) -> bool:
        try:
            self.stops.get(timeout=seconds)
        except Empty:
            return False
        return True

    def _wait(self, seconds: float) -> None:
        """Waits until no handler runs, or for that long."""
        end = monotonic() + seconds
        while True:
            with self.changes:
                left = min(end - monotonic(), 0.1)
                if not self.desk.busy or left <= 0:
                    return
                self.changes.wait(left)
            self._expire()

    def _expire(self) -> None:
        with self.jobs:
            tasks = self.desk.expired(monotonic())
        for t in tasks:
            t.job.abort("lease_lost")
        for line in self.lines:
            line.watch()

    def _give_back(self, tasks: list[Task]) -> None:
        if not tasks:
            return
        line = Line(self.db)
        try:
            line.call(self.desk.sql.release(self.desk.queue, [t.job.lease for t in tasks]))
        except Exception as e:
            log.warning("cannot give back %d jobs that have not begun; they come back when their leases end: %s", len(tasks), told(e))
        finally:
            line.close()
        with self.changes:
            for t in tasks:
                self.desk.finish(t, "released")
            self.changes.notify_all()

    # The threads' loops

    def _write(self, line: Line) -> None:
        failures, end = 0, 0.0
        while not self.over.is_set():
            with self.changes:
                what, n = self.desk.due(monotonic())
                if what == "wait":
                    self.changes.wait(n)
                    continue
                if self.desk.stopping and not self.desk.busy:
                    end = end or monotonic() + self.o.drain_timeout
            if what == "end" or (failures and end and monotonic() > end):
                break
            try:
                line.call(self.desk.step(what, n))
                self.desk.outage.works("claim or end jobs")
                failures = 0
                with self.changes:
                    late = self.desk.stop() if self.desk.stopping else []
                    self.jobs.notify(len(self.desk.queued))
                self._give_back(late)
            except Exception as e:
                if permanent(e):
                    self.failed = e
                    self.stop()
                    break
                pause = growing(failures)
                failures += 1
                self.desk.outage.fails("claim or end jobs", e)
                (self.over if self.halt.is_set() else self.halt).wait(pause)
        if not failures and self.failed is None:
            self._beat(line, stopped=True)
        line.close()

    def _extend(self, line: Line) -> None:
        wait, failures = self.desk.extend_every, 0
        while not self.over.wait(wait):
            if not self.desk.held:
                self.desk.outage.works("extend leases")
                continue
            try:
                tasks = line.call(self.desk.extend())
            except Exception as e:
                wait = min(growing(failures), self.o.lease / 10)
                failures += 1
                self.desk.outage.fails("extend leases", e)
                continue
            self.desk.outage.works("extend leases")
            wait, failures = self.desk.extend_every, 0
            with self.changes:
                stuck = self.desk.stuck()
                self.changes.notify_all()
            self._give_back(stuck)
            for t in tasks:
                t.job.abort("lease_lost")
        line.close()

    def _maintain(self, line: Line) -> None:
        wait, failures = 0.0, 0
        while not self.halt.wait(wait):
            try:
                line.call(self.desk.sql.maintain(self.desk.queue))
                self.desk.outage.works("do the maintenance")
                wait, failures = MAINTAIN_EVERY, 0
            except Exception as e:
                wait = max(growing(failures), MAINTAIN_EVERY)
                failures += 1
                self.desk.outage.fails("do the maintenance", e)
            else:
                self._beat(line)
        line.close()

    def _beat(self, line: Line, stopped: bool = False) -> None:
        with self.jobs:
            beat = self.desk.heartbeat(monotonic(), stopped)
        if beat is not None:
            try:
                line.call(beat)
            except Exception as e:
                log.debug("cannot send a heartbeat: %s", e)

    def _report(self, op: Op[None]) -> None:
        with self.reporting:
            self.reports.call(op)

    def _handle(self) -> None:
        while True:
            with self.jobs:
                while (task := self.desk.begin()) is None:
                    if self.desk.stopping:
                        return
                    self.jobs.wait()
            task.job._call = self._report
            start = monotonic()
            how: object
            try:
                stop = within(task.job, task.job.timeout, in_thread)  # a new thread, which the system may refuse
                try:
                    how = self.handler(task.job)
                finally:
                    stop()
            except BaseException as e:
                how = e
            now = monotonic()
            with self.changes:
                self.desk.ended(task, how, now - start, now)
                if self.desk.stopping or len(self.desk.acks) == 1 or self.desk.due(now)[0] != "wait":
                    self.changes.notify_all()


def in_transaction(db: Database, queue: str, handlers: TxHandlers, options: Options) -> tuple[Handler, Callable[[], None]]:
    """Returns a handler that ends its job itself, and a function that closes its connections."""
    threads_take(handlers)
    handler = by_kind(handlers, queue, options)
    own, sql, outage = threading.local(), Postgres(options.schema), Outage(queue)
    made: dict[int, Any] = {}  # connections that are open

    def drop(conn: Any) -> None:
        own.conn = None
        made.pop(id(conn), None)
        close(conn)

    def begin(conn: Any, idle: bool) -> contextlib.ExitStack:
        with contextlib.ExitStack() as stack:
            stack.enter_context(transaction(conn))
            if idle:
                execute(conn, "select 1", [])
            return stack.pop_all()

    def begun() -> tuple[Any, contextlib.ExitStack]:
        """A connection and its transaction. Those of this thread may be gone since the last job, and another attempt of that job would not be its fault."""
        conn = getattr(own, "conn", None)
        if conn is not None:
            try:
                return conn, begin(conn, monotonic() - own.used > IDLE)
            except Exception:
                drop(conn)
        try:
            conn = own.conn = connect(db)
            made[id(conn)] = conn
            stack = begin(conn, False)
        except Exception as e:
            if conn is not None:
                drop(conn)
            raise unbegun(outage, e) from e
        outage.works("begin the transactions of jobs")
        return conn, stack

    def handle(job: Job) -> object:
        conn, stack = begun()
        try:
            with stack:
                how = handler(conn, job)
                if isinstance(how, Done):
                    run(conn, sql.report(queue, job.lease, how.result))
                elif how is not None:
                    raise how if isinstance(how, Outcome) else TypeError(f"the handler returned {how!r}, which is not an outcome")
                run(conn, sql.ack_one(queue, job.lease))
            return SETTLED
        except BaseException as e:
            if not isinstance(e, Outcome):  # the connection may be what has failed
                drop(conn)
            raise
        finally:
            own.used = monotonic()

    def close_all() -> None:
        for conn in list(made.values()):
            close(conn)

    return handle, close_all


def run_together(workers: Sequence[Worker], signals: bool = True) -> None:
    """Runs workers until a signal stops all of them, or one fails."""
    failed: list[BaseException] = []

    def stop() -> None:
        for worker in workers:
            worker.stop()

    def run(worker: Worker) -> None:
        try:
            worker.run()
        except BaseException as e:
            failed.append(e)
        stop()

    threads = [threading.Thread(target=run, args=(worker,), daemon=True, name=f"penstock {worker.desk.queue}") for worker in workers[1:]]
    with stopped_by_signals(stop) if signals else contextlib.nullcontext():
        for thread in threads:
            thread.start()
        run(workers[0])
        for thread in threads:
            thread.join()
    if failed:
        raise failed[0]


def work(db: Database, queue: str, handler: Handlers, *, signals: bool = True, **options: Any) -> None:
    """Runs `handler(job)` on the jobs of a queue, in threads, until SIGTERM or SIGINT. Handlers by kind are a dict, as {"welcome": send_welcome}; that of
    the kind "" takes jobs without one. The options are those of `Options`."""
    run_together([Worker(db, queue, handler, Options(**options))], signals)


def work_tx(db: Database, queue: str, handler: TxHandlers, *, signals: bool = True, **options: Any) -> None:
    """Like `work`, with a transaction around each `handler(tx, job)` that also ends the job: the handler's writes take effect exactly once."""
    handle, close_all = in_transaction(db, queue, handler, Options(**options))
    try:
        work(db, queue, handle, signals=signals, **options)
    finally:
        close_all()
