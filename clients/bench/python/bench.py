"""Penstock beside procrastinate: the same jobs on the same PostgreSQL, drained by four processes of each. Prints one JSON line per figure.

    pip install '../../python/dist/penstock-0.1.0-py3-none-any.whl[psycopg]' procrastinate
    bin/withservers -only postgres python clients/bench/python/bench.py --jobs 100000 --seconds 60 --pin 300

It wants PENSTOCK_TEST_POSTGRES, and penstock on the PATH (or PENSTOCK_BIN). Each database is dropped afterwards.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import procrastinate
import psycopg

import penstock

BATCH, CONCURRENCY = 1000, 10


def say(**figures: object) -> None:
    print(json.dumps(figures), flush=True)


# The two, alike


class Penstock:
    name = "penstock"
    left = "select ready + running + delayed + waiting from penstock.queue_status('bench')"

    def make(self, url: str) -> None:
        subprocess.run([os.environ.get("PENSTOCK_BIN", "penstock"), "migrate", "--database-url", url], check=True, stdout=subprocess.DEVNULL)
        with psycopg.connect(url) as tx:
            tx.execute("select penstock.create_queue('bench')")

    @contextmanager
    def enqueuer(self, url: str) -> Iterator[Callable[[list[str]], None]]:
        with psycopg.connect(url) as tx:

            def enqueue(payloads: list[str]) -> None:
                penstock.enqueue_many(tx, "bench", [penstock.NewJob(p) for p in payloads])
                tx.commit()

            yield enqueue

    def work(self, url: str, seen: list[float]) -> None:
        penstock.work(url, "bench", lambda job: seen.append(time.time() - float(job.payload)), concurrency=CONCURRENCY)


class Procrastinate:
    name = "procrastinate"
    left = "select count(*) from procrastinate_jobs where status in ('todo', 'doing')"

    def app(self, url: str, connector: Any, seen: list[float]) -> tuple[procrastinate.App, Any]:
        app = procrastinate.App(connector=connector(conninfo=url))

        @app.task(name="bench", queue="bench")
        async def bench(at: str) -> None:
            seen.append(time.time() - float(at))

        return app, bench

    def make(self, url: str) -> None:
        app, _ = self.app(url, procrastinate.SyncPsycopgConnector, [])
        with app.open():
            app.schema_manager.apply_schema()

    @contextmanager
    def enqueuer(self, url: str) -> Iterator[Callable[[list[str]], None]]:
        app, task = self.app(url, procrastinate.SyncPsycopgConnector, [])
        with app.open():
            yield lambda payloads: task.batch_defer(*({"at": p} for p in payloads)) and None

    def work(self, url: str, seen: list[float]) -> None:
        app, _ = self.app(url, procrastinate.PsycopgConnector, seen)

        async def main() -> None:
            async with app.open_async():
                await app.run_worker_async(queues=["bench"], concurrency=CONCURRENCY, install_signal_handlers=True)

        asyncio.run(main())


BOTH: dict[str, Any] = {"penstock": Penstock, "procrastinate": Procrastinate}


# What is measured


@contextmanager
def database(of: Any) -> Iterator[str]:
    server = os.environ["PENSTOCK_TEST_POSTGRES"]
    name = f"bench_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(server, autocommit=True) as conn:
        conn.execute(f'create database "{name}"')
        url = urlunsplit(urlsplit(server)._replace(path="/" + name))
        try:
            of.make(url)
            yield url
        finally:
            conn.execute(f'drop database "{name}" with (force)')


@contextmanager
def workers(of: Any, url: str, n: int, seen: list[float]) -> Iterator[None]:
    args = [sys.executable, __file__, "--work", of.name, url]
    processes = [subprocess.Popen(args, stdout=subprocess.PIPE, text=True) for _ in range(n)]
    try:
        yield
    finally:
        for p in processes:
            p.terminate()
        for p in processes:
            lines = p.communicate(timeout=60)[0].split()  # none of one that was still starting
            seen.extend(json.loads("".join(lines) or "[]"))


def left(conn: psycopg.Connection, of: Any) -> int:
    return int(conn.execute(of.left).fetchone()[0])  # type: ignore[index]


def until_drained(conn: psycopg.Connection, of: Any, n: int) -> float:
    """Seconds from the first job that is done to the last."""
    while left(conn, of) >= n:
        time.sleep(0.005)
    start = time.monotonic()
    while left(conn, of):
        time.sleep(0.02)
    return time.monotonic() - start


def put(enqueue: Callable[[list[str]], None], n: int) -> None:
    for at in range(0, n, BATCH):
        enqueue([str(time.time())] * min(BATCH, n - at))


def bulk(of: Any, jobs: int, n_workers: int) -> None:
    with database(of) as url, psycopg.connect(url, autocommit=True) as conn:
        with of.enqueuer(url) as enqueue:
            start = time.monotonic()
            put(enqueue, jobs)
            took = time.monotonic() - start
        conn.execute("analyze")
        say(of=of.name, figure="enqueue", jobs=jobs, per_second=round(jobs / took))
        with workers(of, url, n_workers, []):
            took = until_drained(conn, of, jobs)
        say(of=of.name, figure="drain", jobs=jobs, workers=n_workers, per_second=round(jobs / took))


def steady(of: Any, rate: int, seconds: int, n_workers: int) -> None:
    seen: list[float] = []
    with database(of) as url, psycopg.connect(url, autocommit=True) as conn:
        with of.enqueuer(url) as enqueue:
            with workers(of, url, n_workers, warm := []):  # Python has started, statements are prepared
                put(enqueue, 200)
                while left(conn, of):
                    time.sleep(0.02)
            del warm
            with workers(of, url, n_workers, seen):
                put(enqueue, 1)
                while left(conn, of):
                    time.sleep(0.02)
                start = time.monotonic()
                for n in range(rate * seconds):
                    if (wait := start + n / rate - time.monotonic()) > 0:
                        time.sleep(wait)
                    enqueue([str(time.time())])
                while left(conn, of):
                    time.sleep(0.02)
        seen.sort()
        mid, most = seen[len(seen) // 2], seen[len(seen) * 99 // 100]
        say(of=of.name, figure="steady", rate=rate, jobs=len(seen), p50_ms=round(1000 * mid, 2), p99_ms=round(1000 * most, 2))


def pinned(of: Any, seconds: int, n_workers: int, per_round: int = 5000) -> None:
    """Rounds of enqueueing and draining beside a snapshot that stays open: the last fifth of them by the first."""
    took: list[float] = []
    with database(of) as url, psycopg.connect(url, autocommit=True) as conn, psycopg.connect(url) as pin:
        pin.execute("set transaction isolation level repeatable read")
        pin.execute("select 1")
        with of.enqueuer(url) as enqueue, workers(of, url, n_workers, []):
            put(enqueue, per_round)
            while left(conn, of):
                time.sleep(0.02)
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                start = time.monotonic()
                put(enqueue, per_round)
                while left(conn, of):
                    time.sleep(0.005)
                took.append(time.monotonic() - start)
        fifth = max(1, len(took) // 5)
        first, last = statistics.median(took[:fifth]), statistics.median(took[-fifth:])
        say(of=of.name, figure="pinned", seconds=seconds, rounds=len(took), jobs=per_round * len(took), first_s=round(first, 3), ratio=round(last / first, 2))


def main() -> None:
    if sys.argv[1:2] == ["--work"]:
        seen: list[float] = []
        BOTH[sys.argv[2]]().work(sys.argv[3], seen)
        print(json.dumps(seen[:200_000]))
        return
    p = argparse.ArgumentParser()
    p.add_argument("--jobs", type=int, default=100_000)
    p.add_argument("--workers", type=int, default=4)
    p.add_argument("--rate", type=int, default=500)
    p.add_argument("--seconds", type=int, default=60, help="of the steady load; 0 leaves it out")
    p.add_argument("--pin", type=int, default=300, help="seconds beside a pinned snapshot; 0 leaves it out")
    p.add_argument("--of", choices=BOTH, action="append")
    a = p.parse_args()
    for of in [BOTH[name]() for name in a.of or BOTH]:
        if a.jobs:
            bulk(of, a.jobs, a.workers)
        if a.seconds:
            steady(of, a.rate, a.seconds, a.workers)
        if a.pin:
            pinned(of, a.pin, a.workers)


if __name__ == "__main__":
    main()
