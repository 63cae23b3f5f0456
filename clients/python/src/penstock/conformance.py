"""The program that the suites in Go drive over standard input and output. clients/conformance/README.md describes the protocol."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import os
import queue
import signal
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from typing import Any

import penstock
from penstock import aio
from penstock._desk import Options
from penstock._seam import sqlstate
from penstock._sql import Postgres
from penstock._worker import Line, in_transaction

Request = dict[str, Any]
SYNC = ["psycopg", "session", "connection"]
ASYNC = ["asyncpg", "psycopg async", "async session"]

out = threading.Lock()
numbers = itertools.count(1)


def write(line: Request) -> None:
    with out:
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()


def text(row: Any) -> list[str | None]:
    return [None if v is None else "\\x" + v.hex() if isinstance(v, bytes) else str(v).lower() if isinstance(v, bool) else str(v) for v in row]


def when(at: datetime) -> str:
    return at.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def message(m: Request) -> penstock.Message:
    return penstock.Message(base64.b64decode(m.get("payload") or ""), m.get("key"), m.get("topic") or "", m.get("headers"), m.get("id"))


def new_job(j: Request) -> penstock.NewJob:

    def at(name: str) -> datetime | None:
        return datetime.fromisoformat(j[name].replace("Z", "+00:00")) if j.get(name) else None

    def span(name: str) -> timedelta | None:
        return timedelta(milliseconds=j[name]) if j.get(name) else None

    return penstock.NewJob(
        base64.b64decode(j.get("payload") or ""),
        j.get("key"),
        j.get("group_key") or "",
        j.get("priority") or 0,
        at("not_before"),
        j.get("dedup_key"),
        j.get("headers"),
        j.get("kind") or "",
        j.get("unique_key"),
        j.get("on_conflict"),
        span("debounce_max_ms"),
        j.get("max_attempts"),
        span("timeout_ms"),
        at("deadline"),
        holds=int(j["holds"]) if j.get("holds") else None,
        waits_for=[int(b) for b in j.get("waits_for") or []],
        on_dead=j.get("on_dead"),
    )


def job_line(j: penstock.Job) -> Request:
    return {
        "id": str(j.id),
        "kind": j.kind,
        "key": j.key,
        "group_key": j.group_key,
        "priority": j.priority,
        "attempt": j.attempt,
        "created_at": when(j.created_at),
        "headers": j.headers,
        "payload": base64.b64encode(j.payload).decode(),
        "report": "" if j.report is None else json.dumps(j.report),
        "lease": str(j.lease),
        "lease_until": when(j.lease_until),
    }


def given(r: Request, name: str, default: int) -> Any:
    return default if r.get(name) is None else r[name]


def enqueued(e: penstock.Enqueued) -> Request:
    return {"id": str(e.id), "deduplicated": e.deduplicated}


class Loop:
    """The event loop of all asynchronous code, in a separate thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.loop.set_default_executor(ThreadPoolExecutor(256))  # each handler waits in one
        threading.Thread(target=self.loop.run_forever, daemon=True).start()

    def do(self, what: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(what, self.loop).result()


class Tx:
    """A transaction, and the thread that runs its requests one after another."""

    schema = "penstock"

    def __init__(self) -> None:
        self.requests: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while (request := self.requests.get()) is not None:
            request()

    def end(self, how: str) -> None:
        raise NotImplementedError


class SyncTx(Tx):
    def __init__(self, tx: Any, schema: str, end: Callable[[str], None] | None = None):
        super().__init__()
        self.tx, self.schema, self._end = tx, schema, end

    def end(self, how: str) -> None:
        assert self._end
        self._end(how)

    def execute(self, sql: str) -> Any:
        if hasattr(self.tx, "cursor"):  # psycopg
            cursor = self.tx.execute(sql)
            return cursor.fetchall() if cursor.description else []
        result = (self.tx.connection() if hasattr(self.tx, "get_bind") else self.tx).exec_driver_sql(sql.replace("%", "%%"))
        return result.fetchall() if result.returns_rows else []

    def call(self, name: str, *args: Any, **fields: Any) -> Any:
        module = penstock.inbox if name == "first" else penstock
        return getattr(module, name)(self.tx, *args, schema=self.schema, **fields)

    def step(self, job: penstock.Job, name: str, fn: Any, _: Any) -> Any:
        return penstock.step(job, name, fn, tx=self.tx)


class AsyncTx(Tx):
    def __init__(self, loop: Loop, tx: Any, schema: str, end: Callable[[str], Any] | None = None):
        super().__init__()
        self.loop, self.tx, self.schema, self._end = loop, tx, schema, end

    def end(self, how: str) -> None:
        assert self._end
        self.loop.do(self._end(how))

    def execute(self, sql: str) -> Any:
        return self.loop.do(self._execute(sql))

    async def _execute(self, sql: str) -> Any:
        if hasattr(self.tx, "fetch"):  # asyncpg
            return await self.tx.fetch(sql)
        if hasattr(self.tx, "cursor"):  # psycopg
            cursor = await self.tx.execute(sql)
            return await cursor.fetchall() if cursor.description else []
        result = await (await self.tx.connection()).exec_driver_sql(sql.replace("%", "%%"))
        return result.fetchall() if result.returns_rows else []

    def call(self, name: str, *args: Any, **fields: Any) -> Any:
        module: Any = aio.inbox if name == "first" else aio
        return self.loop.do(getattr(module, name)(self.tx, *args, schema=self.schema, **fields))

    def step(self, job: penstock.Job, name: str, _: Any, fn: Any) -> Any:
        return self.loop.do(aio.step(job, name, fn, tx=self.tx))


def sqlalchemy_url(url: str) -> str:
    return "postgresql+psycopg://" + url.partition("://")[2]


class Database:
    """A client on one database."""

    def __init__(self, url: str, schema: str, loop: Loop):
        self.url, self.schema, self.loop, self.sql = url, schema, loop, Postgres(schema)
        self.lines: queue.SimpleQueue[Line] = queue.SimpleQueue()
        self.call(self.sql.check())

    def call(self, op: Any) -> Any:
        try:
            line = self.lines.get_nowait()
        except queue.Empty:
            line = Line(self.url)
        answer = line.call(op)
        self.lines.put(line)
        return answer

    def close(self) -> None:
        while True:
            try:
                self.lines.get_nowait().close()
            except queue.Empty:
                return

    def begin(self, kind: str) -> SyncTx | AsyncTx:
        if kind in ASYNC:
            return self.loop.do(self.begin_async(kind))  # type: ignore[no-any-return]
        if kind == "psycopg":
            import psycopg

            conn = psycopg.connect(self.url)

            def end(how: str) -> None:
                try:
                    getattr(conn, how)()
                finally:
                    conn.close()

            return SyncTx(conn, self.schema, end)
        import sqlalchemy.orm

        engine = sqlalchemy.create_engine(sqlalchemy_url(self.url), poolclass=sqlalchemy.NullPool)
        tx: Any = sqlalchemy.orm.Session(engine) if kind == "session" else engine.connect()

        def finish(how: str) -> None:
            try:
                getattr(tx, how)()
            finally:
                tx.close()

        return SyncTx(tx, self.schema, finish)

    async def begin_async(self, kind: str) -> AsyncTx:
        if kind == "asyncpg":
            import asyncpg

            conn = await asyncpg.connect("postgresql://" + self.url.partition("://")[2])
            transaction = conn.transaction()
            await transaction.start()

            async def end(how: str) -> None:
                try:
                    await getattr(transaction, how)()
                finally:
                    await conn.close()

            return AsyncTx(self.loop, conn, self.schema, end)
        if kind == "psycopg async":
            import psycopg

            tx: Any = await psycopg.AsyncConnection.connect(self.url)
        else:
            from sqlalchemy import NullPool
            from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

            tx = AsyncSession(create_async_engine(sqlalchemy_url(self.url), poolclass=NullPool))

        async def finish(how: str) -> None:
            try:
                await getattr(tx, how)()
            finally:
                await tx.close()

        return AsyncTx(self.loop, tx, self.schema, finish)

    def source(self, kind: str) -> Any:
        """The source of connections for a worker of that kind."""
        if kind == "asyncpg":
            import asyncpg

            return lambda: asyncpg.connect("postgresql://" + self.url.partition("://")[2])
        if kind == "async session":
            from sqlalchemy import NullPool
            from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

            return lambda: AsyncSession(create_async_engine(sqlalchemy_url(self.url), poolclass=NullPool))
        if kind in ("session", "connection"):
            import sqlalchemy.orm

            engine = sqlalchemy.create_engine(sqlalchemy_url(self.url), poolclass=sqlalchemy.NullPool)
            return engine if kind == "connection" else lambda: sqlalchemy.orm.Session(engine)
        return self.url


class Call:
    """A handler that waits for instructions of the harness."""

    def __init__(self, job: penstock.Job) -> None:
        self.job, self.said = job, queue.SimpleQueue[object]()


class Unreadable(Exception):  # noqa: N818
    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__


def of_kinds(kinds: list[str] | None, handler: Any) -> Any:
    return dict.fromkeys(kinds, handler) if kinds else handler


def ends(o: Any) -> None:
    """Ends a handler as the harness asks."""
    if isinstance(o, BaseException):
        raise o
    after = o.get("after_ms")
    seconds = None if after is None else after / 1000
    reason = o.get("reason") or ""
    how = o["outcome"]
    if how == "retry":
        raise penstock.Retry(seconds, reason)
    if how == "snooze":
        raise penstock.Snooze(seconds or 0)
    if how == "dead_letter":
        raise penstock.DeadLetter(reason)
    if how == "cancelled":
        raise penstock.Cancelled(reason)
    if how == "error":
        raise RuntimeError(reason)
    if how == "unreadable":
        raise Unreadable


class Program:
    def __init__(self) -> None:
        self.loop = Loop()
        self.dbs: dict[str, Database] = {}
        self.txs: dict[str, Any] = {}
        self.calls: dict[str, Call] = {}
        self.workers: dict[str, tuple[Callable[[], Any], threading.Thread]] = {}

    # Requests

    def hello(self, _: Request) -> object:
        return {"language": "python", "version": penstock.__version__, "kinds": SYNC + ASYNC}

    def open(self, r: Request) -> object:
        db, name = Database(r["url"], r.get("schema") or "penstock", self.loop), str(next(numbers))
        self.dbs[name] = db
        return {"db": name}

    def close(self, r: Request) -> object:
        self.dbs.pop(r["db"]).close()
        return None

    def begin(self, r: Request) -> object:
        tx, name = self.dbs[r["db"]].begin(r.get("kind") or SYNC[0]), str(next(numbers))
        self.txs[name] = tx
        return {"tx": name}

    def commit(self, r: Request) -> object:
        tx = self.txs.pop(r["tx"])
        tx.end(r["op"])
        tx.requests.put(None)
        return None

    rollback = commit

    def execute(self, r: Request) -> object:
        return [text(row) for row in self.txs[r["tx"]].execute(r["sql"])]

    def publish(self, r: Request) -> object:
        return self.txs[r["tx"]].call("publish_many", r["outbox"], [message(r["message"])])

    def publish_many(self, r: Request) -> object:
        return self.txs[r["tx"]].call("publish_many", r["outbox"], [message(m) for m in r["messages"]])

    def enqueue(self, r: Request) -> object:
        return enqueued(self.txs[r["tx"]].call("enqueue_many", r["queue"], [new_job(r["job"])])[0])

    def enqueue_many(self, r: Request) -> object:
        return [enqueued(e) for e in self.txs[r["tx"]].call("enqueue_many", r["queue"], [new_job(j) for j in r["jobs"]])]

    def barrier(self, r: Request) -> object:
        return str(self.txs[r["tx"]].call("barrier", r["queue"]))

    def seal(self, r: Request) -> object:
        return self.txs[r["tx"]].call("seal", r["queue"], int(r["barrier"]))

    def publish_after(self, r: Request) -> object:
        m, waits_for = message(r["message"]), [int(b) for b in r.get("waits_for") or []]
        return str(
            self.txs[r["tx"]].call(
                "publish_after", r["queue"], waits_for, r["outbox"], m.payload, key=m.key, topic=m.topic, headers=m.headers, id=m.id, on_dead=r.get("on_dead")
            )
        )

    def inbox_first(self, r: Request) -> object:
        return self.txs[r["tx"]].call("first", r["consumer"], r["message_id"])

    def claim(self, r: Request) -> object:
        acks = None if r.get("acks") is None else [int(n) for n in r["acks"]]
        db, worker, lease = self.dbs[r["db"]], r.get("worker") or "", given(r, "lease_ms", 30000) / 1000
        shares = Counter(r.get("groups") or []) or {r.get("group_key") or "": given(r, "n", 1)}
        acked, jobs, full = db.call(db.sql.claim(r["queue"], shares, lease, worker, acks))
        return {"jobs": [job_line(j) for j in jobs], "acked": [str(n) for n in acked], "full": full}

    def leases(self, r: Request) -> object:
        db, leases = self.dbs[r["db"]], [int(n) for n in r["leases"]]
        if r["op"] == "extend":
            held = db.call(db.sql.extend(r["queue"], leases, r["by_ms"] / 1000))
        elif r["op"] == "release":
            held = db.call(db.sql.release(r["queue"], leases, (r.get("after_ms") or 0) / 1000))
        else:
            held = db.call(db.sql.ack(r["queue"], leases))
        return [str(n) for n in held]

    ack = extend = release = leases

    def retry(self, r: Request) -> object:
        db, after = self.dbs[r["db"]], r.get("after_ms")
        return {"dead": db.call(db.sql.retry(r["queue"], int(r["lease"]), None if after is None else after / 1000, r.get("error") or ""))}

    def dead_letter(self, r: Request) -> object:
        db = self.dbs[r["db"]]
        return db.call(db.sql.dead_letter(r["queue"], int(r["lease"]), r.get("error") or ""))

    def report(self, r: Request) -> object:
        db = self.dbs[r["db"]]
        return db.call(db.sql.report(r["queue"], int(r["lease"]), r["report"]))

    def step(self, r: Request) -> object:
        job, ran = self.calls[r["call"]].job, []

        def fn() -> str:
            ran.append(True)
            return str(r["result"])

        async def afn() -> str:
            return fn()

        if r.get("tx"):
            result = self.txs[r["tx"]].step(job, r["name"], fn, afn)
        elif job._call and asyncio.iscoroutinefunction(job._call):
            result = self.loop.do(aio.step(job, r["name"], afn))
        else:
            result = penstock.step(job, r["name"], fn)
        return {"ran": bool(ran), "result": result}

    def maintain(self, r: Request) -> object:
        db = self.dbs[r["db"]]
        return db.call(db.sql.maintain(r["queue"]))

    def outcome(self, r: Request) -> object:
        if call := self.calls.pop(r["call"], None):
            call.said.put(r)
        return None

    def work(self, r: Request) -> object:
        db, name, kind = self.dbs[r["db"]], str(next(numbers)), r.get("kind") or SYNC[0]
        given = {
            "concurrency": r.get("concurrency"),
            "batch": r.get("batch"),
            "lease": r["lease_ms"] / 1000 if r.get("lease_ms") else None,
            "group_key": r.get("group_key"),
            "groups": r.get("groups"),
            "all_groups": r.get("all_groups"),
            "drain_timeout": r["drain_ms"] / 1000 if r.get("drain_ms") is not None else None,
            "worker": r.get("worker_name"),
        }
        options = Options(schema=db.schema, **{k: v for k, v in given.items() if v is not None})
        start = self._work_async if kind in ASYNC else self._work_threads
        stop, thread = start(db, name, kind, r["queue"], bool(r.get("work_tx")), r.get("kinds"), options)
        self.workers[name] = stop, thread
        return {"worker": name}

    def stop(self, r: Request) -> object:
        stop, thread = self.workers.pop(r["worker"])
        stop()
        thread.join()
        return None

    # Workers

    def _event(self, worker: str, job: penstock.Job, tx: Any) -> tuple[str, Call, str | None]:
        name, call, held = str(next(numbers)), Call(job), None
        self.calls[name] = call
        if tx is not None:
            held = str(next(numbers))
            self.txs[held] = tx
        job.on_abort(lambda cause: self._abort(worker, name, cause))
        write({"event": "job", "worker": worker, "call": name, "job": job_line(job), **({"tx": held} if held else {})})
        return name, call, held

    def _abort(self, worker: str, name: str, cause: str) -> None:
        if call := self.calls.pop(name, None):  # otherwise it has ended already
            write({"event": "aborted", "worker": worker, "call": name, "cause": cause})
            call.said.put(penstock.Aborted(cause))

    def _done(self, name: str, held: str | None) -> None:
        self.calls.pop(name, None)
        if held:
            self.txs.pop(held).requests.put(None)

    def _work_threads(self, db: Database, worker: str, kind: str, queue_name: str, tx: bool, kinds: list[str] | None, options: Options) -> Any:
        def handler(job: penstock.Job, conn: Any = None) -> None:
            name, call, held = self._event(worker, job, SyncTx(conn, db.schema) if tx else None)
            said = call.said.get()
            self._done(name, held)
            ends(said)

        chosen: Any = of_kinds(kinds, handler)
        closing = None
        if tx:
            chosen, closing = in_transaction(db.source(kind), queue_name, of_kinds(kinds, lambda conn, job: handler(job, conn)), options)
        w = penstock.Worker(db.url if tx else db.source(kind), queue_name, chosen, options)

        def serve() -> None:
            try:
                w.run()
            except Exception:
                traceback.print_exc()
            if closing:
                closing()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        return w.stop, thread

    def _work_async(self, db: Database, worker: str, kind: str, queue_name: str, tx: bool, kinds: list[str] | None, options: Options) -> Any:
        async def handler(job: penstock.Job, conn: Any = None) -> None:
            name, call, held = self._event(worker, job, AsyncTx(self.loop, conn, db.schema) if tx else None)
            try:
                said = await asyncio.get_running_loop().run_in_executor(None, call.said.get)
            finally:
                self._done(name, held)
            ends(said)

        async def serve() -> None:
            closing = None
            chosen: Any = of_kinds(kinds, handler)
            if tx:
                chosen, closing = aio.in_transaction(db.source(kind), queue_name, of_kinds(kinds, lambda conn, job: handler(job, conn)), options)
            w = aio.Worker(db.source(kind) if not tx else db.url, queue_name, chosen, options)
            stops.append(lambda: self.loop.loop.call_soon_threadsafe(w.stop))
            made.set()
            try:
                await w.run()
            except Exception:
                traceback.print_exc()
            if closing:
                await closing()

        stops: list[Callable[[], Any]] = []
        made = threading.Event()
        thread = threading.Thread(target=lambda: self.loop.do(serve()), daemon=True)
        thread.start()
        made.wait()
        return stops[0], thread

    # Serving

    def answer(self, r: Request) -> None:
        try:
            line: Request = {"id": r["id"], "result": getattr(self, r["op"])(r)}
        except penstock.FieldError as e:
            line = {"id": r["id"], "error": {"field": e.field, "message": str(e)}}
        except Exception as e:
            line = {"id": r["id"], "error": {"sqlstate": sqlstate(e), "message": str(e)}}
            if not line["error"]["sqlstate"]:
                del line["error"]["sqlstate"]
                traceback.print_exc()
        write(line)

    def take(self, r: Request) -> None:
        tx = self.txs.get(r.get("tx") or "")
        if tx is not None:
            tx.requests.put(lambda: self.answer(r))
        elif r["op"] == "outcome":  # in order, and at once
            self.answer(r)
        else:
            threading.Thread(target=self.answer, args=(r,), daemon=True).start()

    def terminate(self, *_: object) -> None:
        def end() -> None:
            threads = [threading.Thread(target=self.stop, args=({"worker": w},), daemon=True) for w in list(self.workers)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            os._exit(0)

        threading.Thread(target=end, daemon=True).start()


def main() -> None:
    program = Program()
    signal.signal(signal.SIGTERM, program.terminate)
    for line in sys.stdin:
        program.take(json.loads(line))
    os._exit(0)


if __name__ == "__main__":
    main()
