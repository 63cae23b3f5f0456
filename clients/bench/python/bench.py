"""Penstock's client: jobs on PostgreSQL, drained by four processes; see bench.sh. Prints one JSON line."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg

import penstock

BATCH, CONCURRENCY, WORKERS, RATE, ROUND = 1000, 10, 4, 500, 2000


def since(at: str | bytes) -> int:
    """Microseconds, by the clock that all processes share."""
    return time.time_ns() // 1000 - int(at)


# The queue


def make(url: str) -> None:
    subprocess.run([os.environ.get("PENSTOCK_BIN", "penstock"), "migrate", "--database-url", url], check=True, stdout=subprocess.DEVNULL)
    with psycopg.connect(url) as tx:
        tx.execute("select penstock.create_queue('bench')")


@contextmanager
def enqueuer(url: str) -> Iterator[Callable[[list[str]], None]]:
    with psycopg.connect(url) as tx:

        def enqueue(payloads: list[str]) -> None:
            penstock.enqueue_many(tx, "bench", [penstock.NewJob(p) for p in payloads])
            tx.commit()

        yield enqueue


# A worker's process prints how long jobs waited, in one line for many jobs every 20 ms


def worker(url: str) -> None:
    seen: list[int] = []

    def tell() -> None:
        while True:
            time.sleep(0.02)
            if n := len(seen):
                print(*seen[:n], flush=True)
                del seen[:n]

    threading.Thread(target=tell, daemon=True).start()
    print("ready", flush=True)
    sys.stdin.readline()
    penstock.work(url, "bench", lambda job: seen.append(since(job.payload)), concurrency=CONCURRENCY)


class Workers:
    def __init__(self, url: str):
        args = [sys.executable, __file__, "--work", url]
        self.processes = [subprocess.Popen(args, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(WORKERS)]
        self.waits: list[int] = []
        self.more = threading.Condition()
        for p in self.processes:
            assert p.stdout is not None and p.stdout.readline() == "ready\n"
            threading.Thread(target=self._listen, args=(p.stdout,), daemon=True).start()

    def begin(self) -> None:
        for p in self.processes:
            print(file=p.stdin, flush=True)

    def _listen(self, said: Any) -> None:
        for line in said:
            with self.more:
                self.waits.extend(map(int, line.split()))
                self.more.notify_all()

    def come(self, n: int, most: float | None = None) -> list[int]:
        with self.more:
            self.more.wait_for(lambda: len(self.waits) >= n, most)
            waits, self.waits = self.waits, []
            return waits

    def end(self) -> None:
        for p in self.processes:
            p.terminate()
        for p in self.processes:
            p.wait(60)


# Measurements


@contextmanager
def database() -> Iterator[str]:
    server = os.environ["PENSTOCK_TEST_POSTGRES"]
    name = f"bench_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(server, autocommit=True) as conn:
        conn.execute(f'create database "{name}"')
        url = urlunsplit(urlsplit(server)._replace(path="/" + name))
        try:
            make(url)
            yield url
        finally:
            conn.execute(f'drop database "{name}" with (force)')


def put(enqueue: Callable[[list[str]], None], n: int) -> None:
    for at in range(0, n, BATCH):
        enqueue([str(time.time_ns() // 1000)] * min(BATCH, n - at))


def steady(enqueue: Callable[[list[str]], None], workers: Workers, seconds: int) -> list[int]:
    start = time.monotonic()
    for n in range(RATE * seconds):
        if (wait := start + n / RATE - time.monotonic()) > 0:
            time.sleep(wait)
        put(enqueue, 1)
    return sorted(workers.come(RATE * seconds))


def flat(enqueue: Callable[[list[str]], None], workers: Workers, url: str, seconds: int) -> float:
    """Rounds of enqueueing and draining with a snapshot that stays open: the median of the last fifth of them by the first's."""
    took: list[float] = []
    with psycopg.connect(url) as pin:
        pin.execute("set transaction isolation level repeatable read")
        pin.execute("select count(*) from pg_class")
        end = time.monotonic() + seconds
        while (start := time.monotonic()) < end:
            put(enqueue, ROUND)
            workers.come(ROUND)
            took.append(time.monotonic() - start)
    fifth = max(1, len(took) // 5)
    return statistics.median(took[-fifth:]) / statistics.median(took[:fifth])


def measure(part: str, jobs: int, seconds: int, pinned: int, most: float | None) -> dict[str, float]:
    told: dict[str, float] = {}
    with database() as url, enqueuer(url) as enqueue:
        if part != "all" and part != "drain":
            jobs = ROUND  # to begin with
        start = time.monotonic()
        put(enqueue, jobs)
        enqueueing = time.monotonic() - start
        workers = Workers(url)
        try:
            start = time.monotonic()
            workers.begin()
            came = len(workers.come(jobs, most))
            draining = (time.monotonic() - start) * jobs / came  # of all jobs, if it takes longer than most
            if part in ("all", "drain"):
                told.update(enqueue_per_second=round(jobs / enqueueing), drain_per_second=round(jobs / draining), both_per_second=round(jobs / (enqueueing + draining)))
            if part in ("all", "steady"):
                waits = steady(enqueue, workers, seconds)
                told.update(p50_ms=round(waits[len(waits) // 2] / 1000, 1), p99_ms=round(waits[len(waits) * 99 // 100] / 1000, 1))
            if part in ("all", "pinned"):
                told.update(flat=round(flat(enqueue, workers, url, pinned), 2))
        finally:
            workers.end()
    return told


def main() -> None:
    if sys.argv[1:2] == ["--work"]:
        worker(sys.argv[2])
        return
    options = argparse.ArgumentParser(prog="bench.sh", description="Measures Penstock's client; prints one JSON line.")
    options.add_argument("--quick", action="store_true", help="5,000 jobs and 5 seconds in the place of 100,000, 30 seconds, and 5 minutes with a pinned snapshot")
    options.add_argument("--part", choices=("all", "drain", "steady", "pinned"), default="all")
    options.add_argument("--most", type=float, help="seconds after which draining has been seen enough of; for --part drain")
    given = options.parse_args()
    jobs, seconds, pinned = (5_000, 5, 5) if given.quick else (100_000, 30, 300)
    of = measure(given.part, jobs, seconds, pinned, given.most)
    print(json.dumps({"language": "python", "part": given.part, "jobs": jobs, "workers": WORKERS, "rate": RATE, "pinned_seconds": pinned, "penstock": of}))


if __name__ == "__main__":
    main()
