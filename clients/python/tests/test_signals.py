"""A worker in a process that has its own ways at SIGTERM: both stop."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import psycopg
import pytest

import penstock

from .conftest import status

PROGRAM = """
import asyncio, signal, sys, threading
import penstock
from penstock import aio
url, queue, kind = sys.argv[1:]
asked = threading.Event()

def server_stops(*_):
    print("server", flush=True)
    asked.set()

def handler(job):
    print("begun", flush=True)
    asked.wait()

async def coroutine(job):
    print("begun", flush=True)
    while not asked.is_set():
        await asyncio.sleep(0.01)

async def serve():  # as an ASGI lifespan does
    loop = asyncio.get_running_loop()
    if kind == "loop":
        loop.add_signal_handler(signal.SIGTERM, server_stops)
    else:
        signal.signal(signal.SIGTERM, server_stops)
    workers = [asyncio.ensure_future(aio.work(url, queue, coroutine)) for _ in range(2)]
    await asyncio.gather(*workers)

if kind == "threads":
    signal.signal(signal.SIGTERM, server_stops)
    penstock.work(url, queue, handler)
else:
    asyncio.run(serve())
assert kind == "loop" or signal.getsignal(signal.SIGTERM) is server_stops
print("drained", flush=True)
signal.signal(signal.SIGTERM, signal.SIG_DFL)
"""


@pytest.mark.parametrize("kind", ["threads", "signal", "loop"])
def test_who_had_the_signal_before_stops_too(url: str, db: psycopg.Connection, queue: str, kind: str) -> None:
    penstock.enqueue(db, queue, "x")
    with subprocess.Popen([sys.executable, "-c", PROGRAM, url, queue, kind], stdout=subprocess.PIPE, text=True, env=dict(os.environ)) as worker:
        assert worker.stdout and worker.stdout.readline() == "begun\n"
        worker.send_signal(signal.SIGTERM)
        assert worker.stdout.readline() == "server\n"
        assert worker.stdout.readline() == "drained\n"
        assert worker.wait(60) == 0
    assert status(db, queue) == (0, 0, 0, 0, 0)


CTRL_C = """
import asyncio, os, signal, sys
import penstock
from penstock import aio
url, queue, kind = sys.argv[1:]

def handler(job):
    os.kill(os.getpid(), signal.SIGINT)

async def coroutine(job):
    handler(job)

if kind == "threads":
    penstock.work(url, queue, handler)
else:
    asyncio.run(aio.work(url, queue, coroutine))
print("returned")
"""


@pytest.mark.parametrize("kind", ["threads", "asyncio"])
def test_ctrl_c_returns(url: str, db: psycopg.Connection, queue: str, kind: str) -> None:
    penstock.enqueue(db, queue, "x")
    ran = subprocess.run([sys.executable, "-c", CTRL_C, url, queue, kind], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "returned\n", "")
