from __future__ import annotations

import sys
import threading
from typing import Any

import penstock
from penstock.django import publish


def line(text: str) -> None:
    """Handlers run side by side: print would write the text and its end one by one."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def send(job: penstock.Job) -> None:
    publish("orders", f"sent {job.text}", require_atomic=False)
    line(job.text)
    if job.text == "dead":
        raise penstock.DeadLetter("no such user")


def book(job: penstock.Job) -> None:
    publish("orders", f"booked {job.text} {job.attempt}")
    if job.attempt == 1:
        raise penstock.Retry(0)
    line(job.text)


def hang(job: penstock.Job) -> None:
    line("begun")
    threading.Event().wait()


kinds = {"welcome": send, "bill": book}
wrong = {"welcome": send, "bill": 7}
app = penstock.App("emails")


@app.task
def greet(to: str) -> None:
    publish("orders", f"greeted {to}", require_atomic=False)


with_tx = penstock.App("emails")


@with_tx.task_tx(backoff=0)
def grant(tx: Any, to: str) -> None:
    job = penstock.current_job()
    penstock.publish(tx, "orders", f"granted {to} {job.attempt}")
    if job.attempt == 1:
        raise OSError("no route")
