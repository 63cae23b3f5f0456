"""A web service with an outbox and a worker: POST /orders writes the order, the message about it and the job to mail the customer in one transaction.

    pip install fastapi uvicorn psycopg-pool './penstock_client-0.1.0-py3-none-any.whl[psycopg]'
    penstock migrate && penstock outbox create orders && penstock queue create emails
    psql -c 'create table shop_order (id bigint generated always as identity primary key, customer text not null, total numeric not null)'
    uvicorn main:api

The worker runs in the server, as long as it does. With SEPARATE_WORKER=1 the server has none, and `python main.py` is one by itself."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from decimal import Decimal

import psycopg
from fastapi import FastAPI
from fastapi.encoders import jsonable_encoder
from psycopg_pool import AsyncConnectionPool
from pydantic import BaseModel

import penstock
from penstock import aio

URL = os.environ["PENSTOCK_DATABASE_URL"]
pool = AsyncConnectionPool(URL, open=False)
jobs = penstock.App("emails")


class Order(BaseModel):
    customer: str
    total: Decimal


@jobs.task(max_attempts=5)
async def mail(order: int, customer: str) -> None:
    print("mail to", customer, "about order", order, flush=True)


@contextlib.asynccontextmanager
async def lifespan(_api: FastAPI) -> AsyncIterator[None]:
    async with pool:
        if os.environ.get("SEPARATE_WORKER"):
            yield
            return
        worker = asyncio.create_task(jobs.awork(URL, signals=False))
        worker.add_done_callback(ended)
        try:
            yield
        finally:
            worker.cancel()  # it drains: running jobs have 10 s to end
            await asyncio.gather(worker, return_exceptions=True)


def ended(worker: asyncio.Task[None]) -> None:
    """A worker that failed, because its queue is missing for example, takes the server along: who runs the server starts it again."""
    if not worker.cancelled() and worker.exception() is not None:
        print("the worker has failed:", worker.exception(), flush=True)
        os.kill(os.getpid(), signal.SIGTERM)


api = FastAPI(lifespan=lifespan)


@api.post("/orders", status_code=201)
async def place(order: Order) -> dict[str, int]:
    # The block commits before the answer is sent. A dependency with yield would commit after it: the client would be told of an order that may not be there.
    async with pool.connection() as tx:
        id_ = await write(tx, order)
    return {"id": id_}


async def write(tx: psycopg.AsyncConnection, order: Order) -> int:
    rows = await tx.execute("insert into shop_order (customer, total) values (%s, %s) returning id", [order.customer, order.total])
    [id_] = await rows.fetchone() or [0]
    await aio.publish(tx, "orders", {"order": id_, **jsonable_encoder(order)}, key=order.customer, topic="order.placed")
    await mail.aenqueue(tx, id_, order.customer)
    return int(id_)


if __name__ == "__main__":
    jobs.work(URL)
