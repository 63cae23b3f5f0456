"""Tasks: functions whose calls are jobs."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import functools
import inspect
import json
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime, timedelta
from difflib import get_close_matches
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from ._api import enqueue_many
from ._connect import Database
from ._desk import Options, in_thread, in_time, reason_of, within
from ._model import Aborted, DeadLetter, Encoder, Enqueued, FieldError, Job, NewJob, Outcome, Retry, keywords, kind_text, nearest, span_of
from ._seam import Transaction
from ._signals import stopped_by_signals
from ._worker import Handler, Worker, in_transaction, run_together

if TYPE_CHECKING:
    from . import aio

P = ParamSpec("P")
R = TypeVar("R")
Self = TypeVar("Self", bound="AnyTask[Any]")
Backoff = float | timedelta | Callable[[int], float | timedelta]
Limits = tuple[int | None, Backoff | None, timedelta | None]
NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)

# What Celery calls it, and what to write here.
METHODS = {"delay": "enqueue(tx, …)", "apply_async": "enqueue(tx, …), or enqueue_in(tx, seconds, …)", "s": "job(…)", "signature": "job(…)"}
ARGUMENTS = {"countdown": "use enqueue_in(tx, seconds, …)", "eta": "use using(not_before=…).enqueue(tx, …)"}
OPTIONS = {
    "bind": "call penstock.current_job() in the task",
    "max_retries": "use max_attempts, which counts the first attempt too",
    "retries": "use max_attempts, which counts the first attempt too",
    **dict.fromkeys(("default_retry_delay", "retry_backoff"), "use backoff"),
    **dict.fromkeys(("soft_time_limit", "time_limit"), "use timeout"),
}

running: ContextVar[Job] = ContextVar("penstock_job")


def current_job() -> Job:
    """The job whose task runs here."""
    try:
        return running.get()
    except LookupError:
        raise RuntimeError("no job runs here: call penstock.current_job() in a task that a worker runs") from None


class AnyTask(Generic[P]):
    """A task of an `App`. Its kind is its name, and its payload the arguments by name, as an object in JSON."""

    def __init__(self, app: App, fn: Callable[..., Any], name: str, queue: str, limits: Limits, tx: bool):
        self.app, self.fn, self.name, self.queue, self.tx = app, fn, name, queue, tx
        self.max_attempts, self.backoff, self.timeout = limits
        self.is_async = inspect.iscoroutinefunction(fn)
        self.options: dict[str, Any] = {}
        functools.update_wrapper(self, fn)  # type: ignore[arg-type]
        parameters = list(inspect.signature(fn).parameters.values())[tx:]
        if unnamed := [str(p) for p in parameters if p.kind not in NAMED]:
            raise TypeError(f"the task {name} has the parameter {unnamed[0]}, which has no name in a payload: give it one")
        self.signature = inspect.Signature(parameters)

    if not TYPE_CHECKING:  # a type checker names what is missing by itself

        def __getattr__(self, name):
            step = f": use {METHODS[name]}" if name in METHODS else ""
            raise AttributeError(f"a task has no attribute {name!r}{step}", name=name, obj=self)

    @keywords
    def using(
        self: Self, *, queue: str | None = None, key: str | None = None, group_key: str | None = None, priority: int | None = None,
        not_before: datetime | timedelta | None = None, dedup_key: str | None = None, headers: Mapping[str, str] | None = None,
        unique_key: str | None = None, on_conflict: str | None = None, debounce_max: timedelta | None = None, max_attempts: int | None = None,
        timeout: timedelta | None = None, deadline: datetime | timedelta | None = None, holds: int | None = None, waits_for: Sequence[int] | None = None,
        on_dead: str | None = None,
    ) -> Self:  # fmt: skip
        """The same task whose jobs have other fields: `welcome.using(key="ann").enqueue(tx, …)`."""
        made = copy.copy(self)
        made.queue = queue or self.queue
        fields: dict[str, Any] = {"key": key, "group_key": group_key, "priority": priority, "not_before": not_before, "dedup_key": dedup_key}
        fields |= {"headers": headers, "unique_key": unique_key, "on_conflict": on_conflict, "debounce_max": debounce_max}
        fields |= {"max_attempts": max_attempts, "timeout": timeout, "deadline": deadline, "holds": holds, "waits_for": waits_for, "on_dead": on_dead}
        made.options = self.options | {name: value for name, value in fields.items() if value is not None}
        return made

    def job(self, *args: P.args, **kwargs: P.kwargs) -> NewJob:
        """The job that enqueue writes, for `enqueue_many`. Raises TypeError for arguments that do not fit, and FieldError for one that is not JSON."""
        bound = fitting(self.name, self.signature, args, kwargs, ARGUMENTS)
        return NewJob(self._encode(named(bound)), kind=self.name, **self.options)

    def enqueue(self, tx: Transaction, /, *args: P.args, **kwargs: P.kwargs) -> Enqueued:
        """Enqueues a call of the task in the caller's transaction."""
        return enqueue_many(tx, self.queue, [self.job(*args, **kwargs)], schema=self.app.schema)[0]

    def enqueue_in(self, tx: Transaction, delay: float | timedelta, /, *args: P.args, **kwargs: P.kwargs) -> Enqueued:
        """Enqueues a call that runs after some seconds, or a timedelta."""
        return self.using(not_before=time_of(delay)).enqueue(tx, *args, **kwargs)

    async def aenqueue(self, tx: Transaction, /, *args: P.args, **kwargs: P.kwargs) -> Enqueued:
        """`enqueue` in an asynchronous transaction."""
        from . import aio

        return (await aio.enqueue_many(tx, self.queue, [self.job(*args, **kwargs)], schema=self.app.schema))[0]

    async def aenqueue_in(self, tx: Transaction, delay: float | timedelta, /, *args: P.args, **kwargs: P.kwargs) -> Enqueued:
        return await self.using(not_before=time_of(delay)).aenqueue(tx, *args, **kwargs)

    def __repr__(self) -> str:
        return f"<task {self.name} of queue {self.queue}>"

    def _encode(self, arguments: dict[str, Any]) -> bytes:
        def text(value: Any) -> bytes:
            return json.dumps(value, cls=self.app.encoder, ensure_ascii=False, allow_nan=False).encode()

        try:
            return text(arguments)
        except (TypeError, ValueError) as e:
            for name, value in arguments.items():
                try:
                    text(value)
                except (TypeError, ValueError):
                    raise FieldError(f"the argument {name}", f"of the task {self.name} is not JSON: {e}", "convert it, or give the App an encoder") from e
            raise

    # In a worker

    def _arguments(self, job: Job) -> dict[str, Any]:
        try:
            arguments = job.json()
            if not isinstance(arguments, dict):
                raise ValueError(f"it is a {type(arguments).__name__}, no object with the arguments of {self.name}{self.signature}")
        except ValueError as e:  # another attempt would read the same
            raise DeadLetter(f"reading the payload: {e}") from e
        try:
            self.signature.bind(**arguments)
        except TypeError as e:  # perhaps a newer version has enqueued it, and will run it
            raise TypeError(f"the payload does not fit {self.name}{self.signature}: {e}") from None
        return arguments

    @contextlib.contextmanager
    def _attempt(self, job: Job, later: Any) -> Iterator[dict[str, Any]]:
        """Makes an outcome of an error, as the task's options say."""
        token = running.set(job)
        stop = within(job, None if job.timeout else self.timeout, later)
        try:
            yield self._arguments(job)
        except BaseException as e:
            how = failed(e, job, self.max_attempts, self.backoff)
            if how is None:
                raise
            raise how from e
        finally:
            stop()
            running.reset(token)

    def _run(self, *args: Any) -> Outcome | None:
        """The handler of its jobs, in a thread."""
        job: Job = args[-1]
        with self._attempt(job, in_thread) as arguments:
            made = self.fn(*args[:-1], **arguments)
            return outcome(in_loop(made, job) if self.is_async else made)

    async def _arun(self, *args: Any) -> Outcome | None:
        from .aio import later

        job: Job = args[-1]
        with self._attempt(job, later) as arguments:
            return outcome(await self.fn(*args[:-1], **arguments))


class Task(AnyTask[P], Generic[P, R]):
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.fn(*args, **kwargs)  # type: ignore[no-any-return]


class TxTask(AnyTask[P], Generic[P, R]):
    def __call__(self, tx: Transaction, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.fn(tx, *args, **kwargs)  # type: ignore[no-any-return]


def failed(e: BaseException, job: Job, max_attempts: int | None, backoff: Backoff | None) -> Outcome | None:
    """What a task's options make of an error; None leaves it as it is."""
    how: Outcome | None = None
    error = in_time(job, e)
    stops = job.aborted not in (None, "timeout") or not isinstance(error, Exception) or isinstance(error, Aborted)
    if stops or (isinstance(e, Outcome) and not isinstance(e, Retry)):
        return None
    if max_attempts is not None and job.attempt >= max_attempts and "penstock-max-attempts" not in job.headers:
        how = DeadLetter(reason_of(error))
    elif backoff is not None and not isinstance(e, Retry):
        how = Retry(backoff(job.attempt) if callable(backoff) else backoff, reason_of(error))
    if how is not None and not isinstance(e, Retry):
        how.error = error
    return how


def fitting(
    name: str, signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any], elsewhere: Mapping[str, str] = MappingProxyType({})
) -> inspect.BoundArguments:
    """The arguments of a call of a task. Raises TypeError, before anything is written."""
    try:
        return signature.bind(*args, **kwargs)
    except TypeError as e:
        steps = "".join(f"; {step}" for word, step in elsewhere.items() if word in kwargs)
        raise TypeError(f"the arguments do not fit the task {name}{signature}: {e}{steps}") from None


def refuse(others: Mapping[str, object]) -> None:
    """Raises TypeError for an option of a task that it does not have."""
    for option in others:
        own = ("name", "queue", "max_attempts", "backoff", "timeout")
        near = next(iter(get_close_matches(option, [*own, *OPTIONS], 1)), "")
        raise TypeError(f"a task has no option {option!r}: " + (f"{OPTIONS[near]}; " if near in OPTIONS else "") + nearest(option, own))


def named(bound: inspect.BoundArguments) -> dict[str, Any]:
    """The arguments by name, those of **kwargs among them."""
    arguments = dict(bound.arguments)
    for p in bound.signature.parameters.values():
        if p.kind is p.VAR_KEYWORD:
            arguments |= arguments.pop(p.name, {})
    return arguments


def time_of(delay: float | timedelta) -> timedelta:
    return delay if isinstance(delay, timedelta) else timedelta(seconds=delay)


def outcome(returned: object) -> Outcome | None:
    """What a task returns is for its callers, unless it is an outcome."""
    return returned if isinstance(returned, Outcome) else None


def in_loop(made: Coroutine[Any, Any, object], job: Job) -> object:
    """Runs a coroutine in a thread. The end of its time cancels it."""

    async def main() -> object:
        loop, task = asyncio.get_running_loop(), asyncio.ensure_future(made)

        def cancel(_cause: str) -> None:
            with contextlib.suppress(RuntimeError):  # it has ended
                loop.call_soon_threadsafe(task.cancel)

        job.on_abort(cancel)
        return await task

    return asyncio.run(main())


class App:
    """The tasks of a program, which its producers enqueue and its workers run.

    `queue`: that of tasks that name none. `encoder`: a json.JSONEncoder for arguments that JSON does not have."""

    def __init__(self, queue: str = "", *, schema: str = "penstock", encoder: Encoder = None):
        self.queue, self.schema, self.encoder = queue, schema, encoder
        self.tasks: dict[tuple[str, str], AnyTask[Any]] = {}

    @overload
    def task(self, fn: Callable[P, R], /) -> Task[P, R]: ...

    @overload
    def task(
        self, *, name: str = "", queue: str = "", max_attempts: int | None = None, backoff: Backoff | None = None,
        timeout: timedelta | None = None,
    ) -> Callable[[Callable[P, R]], Task[P, R]]: ...  # fmt: skip

    def task(
        self, fn: Callable[..., Any] | None = None, *, name: str = "", queue: str = "", max_attempts: int | None = None, backoff: Backoff | None = None,
        timeout: timedelta | None = None, **others: object,
    ) -> Any:  # fmt: skip
        """Makes a task of a function, or of a coroutine function.

        `name`: its kind, by default the function's name. `max_attempts`: after as many it is a dead letter, unless the queue's limit comes first.
        `backoff`: seconds, a timedelta or a function of the attempt, in place of the queue's backoff. `timeout`: how long an attempt may take, unless its
        job says so."""
        refuse(others)
        add = functools.partial(self._add, Task, name, queue, (max_attempts, backoff, timeout))
        return add(fn) if fn else add

    @overload
    def task_tx(self, fn: Callable[Concatenate[Any, P], R], /) -> TxTask[P, R]: ...

    @overload
    def task_tx(
        self, *, name: str = "", queue: str = "", max_attempts: int | None = None, backoff: Backoff | None = None,
        timeout: timedelta | None = None,
    ) -> Callable[[Callable[Concatenate[Any, P], R]], TxTask[P, R]]: ...  # fmt: skip

    def task_tx(
        self, fn: Callable[..., Any] | None = None, *, name: str = "", queue: str = "", max_attempts: int | None = None, backoff: Backoff | None = None,
        timeout: timedelta | None = None, **others: object,
    ) -> Any:  # fmt: skip
        """A task whose first parameter is the transaction that also ends its job: what it writes takes effect exactly once."""
        refuse(others)
        add = functools.partial(self._add, TxTask, name, queue, (max_attempts, backoff, timeout))
        return add(fn) if fn else add

    def _add(self, made: type[AnyTask[Any]], name: str, queue: str, limits: Limits, fn: Callable[..., Any]) -> AnyTask[Any]:
        name, queue = kind_text(name or fn.__name__), queue or self.queue
        if not queue:
            raise TypeError(f"the task {name} has no queue: give one to the task or to the App")
        if limits[0] is not None and limits[0] < 1:
            raise FieldError("max_attempts", f"is {limits[0]}", "give 1 or more")
        span_of("timeout", limits[2])
        if (there := self.tasks.get((queue, name))) is not None:
            raise ValueError(f"the queue {queue} has a task {name} already, {there.fn.__module__}.{there.fn.__qualname__}: give one another name")
        self.tasks[queue, name] = task = made(self, fn, name, queue, limits, made is TxTask)
        return task

    def handlers(self, queue: str, tx: Transaction | None = None) -> dict[str, Handler]:
        """The handlers of a queue's tasks by kind, for `penstock.work`. Tasks with a transaction need one here: only `work` begins it for each."""
        if tx is None and (needy := [task.name for task in self._of(queue) if task.tx]):
            raise TypeError(f"the task {needy[0]} needs a transaction: run it with work or awork of the App, in Django with penstock_work --atomic")
        return {task.name: functools.partial(task._run, tx) if task.tx else task._run for task in self._of(queue)}

    def _of(self, queue: str) -> list[AnyTask[Any]]:
        tasks = [task for task in self.tasks.values() if task.queue == queue]
        if not tasks:
            queues = ", ".join(sorted({task.queue for task in self.tasks.values()})) or "none"
            raise ValueError(f"the app has no task of the queue {queue}: import the modules with its tasks first; its queues are: {queues}")
        return tasks

    def _queues(self, given: Sequence[str]) -> list[str]:
        queues = list(given) or sorted({task.queue for task in self.tasks.values()})
        if not queues:
            raise ValueError("the app has no task: import the modules with its tasks first")
        return queues

    def _workers(self, made: Any, db: Database, queues: Sequence[str], tx: Any, options: dict[str, Any]) -> tuple[list[Any], list[Any]]:
        workers, closings = [], []
        for queue in self._queues(queues):
            chosen = Options(**{"schema": self.schema, **options})
            tasks = self._of(queue)
            handlers: dict[str, Any] = {task.name: handler_of(task, made is Worker) for task in tasks if not task.tx}
            if with_tx := {task.name: handler_of(task, made is Worker) for task in tasks if task.tx}:
                handler, close = tx(db, queue, with_tx, chosen)
                handlers |= dict.fromkeys(with_tx, handler)
                closings.append(close)
            workers.append(made(db, queue, handlers, chosen))
        return workers, closings

    def work(self, db: Database, *queues: str, signals: bool = True, **options: Any) -> None:
        """Runs the app's tasks, of all its queues or some, in threads until SIGTERM or SIGINT. The options are those of `Options`, for each queue."""
        workers, closings = self._workers(Worker, db, queues, in_transaction, options)
        try:
            run_together(workers, signals)
        finally:
            for close in closings:
                close()

    async def awork(self, db: Database, *queues: str, signals: bool = True, **options: Any) -> None:
        """The same with asyncio, for an app all of whose tasks are coroutines. Its cancellation also ends it."""
        from . import aio

        workers, closings = self._workers(aio.Worker, db, queues, aio.in_transaction, options)

        def stop() -> None:
            for worker in workers:
                worker.stop()

        async def run(worker: aio.Worker) -> None:
            try:
                await worker.run()
            finally:
                stop()

        loop = asyncio.get_running_loop()
        try:
            with stopped_by_signals(lambda: loop.call_soon_threadsafe(stop)) if signals else contextlib.nullcontext():
                for e in await asyncio.gather(*map(run, workers), return_exceptions=True):
                    if e is not None:
                        raise e
        finally:
            for close in closings:
                await close()


def handler_of(task: AnyTask[Any], threads: bool) -> Callable[..., Any]:
    if threads:
        if task.tx and task.is_async:
            raise TypeError(f"the task {task.name} is a coroutine with a transaction, which a worker with threads cannot run: use awork")
        return task._run
    if not task.is_async:
        raise TypeError(f"the task {task.name} is not a coroutine, and would block the event loop: use work, which runs both")
    return task._arun
