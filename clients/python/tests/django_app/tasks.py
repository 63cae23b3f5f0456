from __future__ import annotations

import django
from asgiref.sync import sync_to_async

import penstock
from penstock.django import publish

if django.VERSION >= (6, 0):
    from django.tasks import task
else:
    from django_tasks import task


@task(queue_name="kept")
def add(a: int, *, b: int = 0) -> int:
    return a + b


@task(queue_name="kept", takes_context=True, backoff=0)
def context(context, *, fails: int = 0) -> list:  # type: ignore[no-untyped-def, type-arg]
    if context.attempt <= fails:
        raise ValueError(f"no {context.attempt}")
    return [context.task_result.id, context.attempt]


@task
async def coroutine(text: str) -> None:
    await sync_to_async(publish)("orders", text, require_atomic=False)


@task(max_attempts=1)
def once() -> None:
    raise ValueError("once")


@task(queue_name="kept")
def snooze() -> penstock.Snooze:
    return penstock.Snooze(3600)


@task(queue_name="kept")
def retries() -> None:
    raise penstock.Retry(0)


@task(queue_name="kept")
def odd() -> object:
    return object()


@task(queue_name="kept", backoff=0)
def stepped() -> int:
    job = penstock.current_job()
    made = penstock.step(job, "charge", lambda: job.attempt)
    if job.attempt == 1:
        raise ValueError("after the step")
    return made


@task(queue_name="kept")
def counted(result: str) -> str:
    publish("orders", f"ran {len(result)}", require_atomic=False)
    return result


@task
async def which() -> None:
    await sync_to_async(publish)("orders", penstock.current_job().kind, require_atomic=False)


def plain() -> None: ...
