"""Penstock in a Django project: add "penstock.django" to INSTALLED_APPS and run `manage.py migrate`.

    PENSTOCK = {
        "DATABASE": "default",                       # the alias of a PostgreSQL database
        "SCHEMA": "penstock",
        "OUTBOXES": ["orders"],                      # created by `manage.py migrate` if they are missing
        "QUEUES": {"emails": {"max_attempts": 5, "handler": "shop.jobs.send_mail"}},
        "INBOXES": {"billing": {"keep": "30 days"}},
        "SCHEDULES": {"nightly": {"queue": "emails", "cron": "0 4 * * *", "kind": "digest"}},
        "ENCODER": "django.core.serializers.json.DjangoJSONEncoder",
    }

`publish` and the others write in the transaction of `atomic()`. Outside of one they raise TransactionManagementError. With `require_atomic=False`, each
call may be a separate transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, cast

from django.conf import settings
from django.db import connections, transaction
from django.utils.module_loading import import_string

from .. import _api
from .. import inbox as _inbox
from .._app import App
from .._desk import threads_take
from .._model import Encoder, Enqueued, Error, Message, NewJob, Payload, keywords

TASK_BACKEND = "penstock.django.tasks.PenstockBackend"


DEFAULTS: dict[str, Any] = {
    "DATABASE": "default",
    "SCHEMA": "penstock",
    "OUTBOXES": [],
    "QUEUES": {},
    "INBOXES": {},
    "SCHEDULES": {},
    "ENCODER": "django.core.serializers.json.DjangoJSONEncoder",
}


def setting(name: str) -> Any:
    given = getattr(settings, "PENSTOCK", {}).get(name, DEFAULTS[name])
    return {**{queue: {} for queue in task_queues()}, **given} if name == "QUEUES" else given


def task_queues() -> list[str]:
    """The queues of settings.TASKS that are Penstock's."""
    return [queue for names in _queues_of_backends() for queue in names]


def _queues_of_backends() -> list[list[str]]:
    return [params.get("QUEUES", ["default"]) for params in getattr(settings, "TASKS", {}).values() if params.get("BACKEND") == TASK_BACKEND]


def handlers_of(queue: str, worker: str, given: Any = None, tx: Any = None) -> Any:
    """What handles the jobs of a queue: `given`, or else the handler of the settings, and the tasks of settings.TASKS. None if there is nothing.

    `tx`: the connection whose transaction ends each job, for an App's tasks that take it."""
    chosen = given or setting("QUEUES").get(queue, {}).get("handler")
    chosen = import_string(chosen) if isinstance(chosen, str) else chosen
    if isinstance(chosen, App):
        try:
            chosen = chosen.handlers(queue, tx)
        except (TypeError, ValueError) as e:  # a task that needs a transaction, or an app without a task of the queue
            raise Error(str(e)) from None
    threads_take(chosen)
    if any(not names or queue in names for names in _queues_of_backends()):  # an empty list stands for every queue
        from .tasks import Handlers

        chosen = Handlers(queue, worker, chosen)
    return chosen


def _encoder() -> Encoder:
    given = setting("ENCODER")
    return cast(Encoder, import_string(given) if isinstance(given, str) else given)


def _tx(using: str | None, require_atomic: bool) -> Any:
    connection = connections[using or setting("DATABASE")]
    if require_atomic and not connection.in_atomic_block:
        raise transaction.TransactionManagementError(
            "penstock writes in the transaction that makes it necessary: call it within atomic(), or with require_atomic=False for one of its own"
        )
    return connection


@keywords
def publish(
    outbox: str, payload: Payload, *, key: str | None = None, topic: str = "", headers: Mapping[str, str] | None = None, id: str | None = None,
    using: str | None = None, require_atomic: bool = True,
) -> None:  # fmt: skip
    """Publishes a message. It is delivered if the transaction commits, and never if it rolls back. Raises FieldError and NotFoundError."""
    publish_many(outbox, [Message(payload, key, topic, headers, id)], using=using, require_atomic=require_atomic)


def publish_many(outbox: str, messages: Iterable[Message], *, using: str | None = None, require_atomic: bool = True) -> None:
    _api.publish_many(_tx(using, require_atomic), outbox, messages, schema=setting("SCHEMA"), encoder=_encoder())


@keywords
def enqueue(
    queue: str, payload: Payload, *, key: str | None = None, group_key: str = "", priority: int = 0, not_before: datetime | timedelta | None = None,
    dedup_key: str | None = None, headers: Mapping[str, str] | None = None, kind: str = "", unique_key: str | None = None,
    on_conflict: str | None = None, debounce_max: timedelta | None = None, max_attempts: int | None = None, timeout: timedelta | None = None,
    deadline: datetime | timedelta | None = None, holds: int | None = None, waits_for: Sequence[int] | None = None, on_dead: str | None = None,
    using: str | None = None, require_atomic: bool = True,
) -> Enqueued:  # fmt: skip
    """Enqueues a job. It can run if the transaction commits, and never if it rolls back. Raises FieldError and NotFoundError."""
    job = NewJob(
        payload, key, group_key, priority, not_before, dedup_key, headers, kind, unique_key, on_conflict, debounce_max, max_attempts, timeout, deadline,
        holds, waits_for, on_dead,
    )  # fmt: skip
    return enqueue_many(queue, [job], using=using, require_atomic=require_atomic)[0]


def enqueue_many(queue: str, jobs: Iterable[NewJob], *, using: str | None = None, require_atomic: bool = True) -> list[Enqueued]:
    return _api.enqueue_many(_tx(using, require_atomic), queue, jobs, schema=setting("SCHEMA"), encoder=_encoder())


def barrier(queue: str, *, using: str | None = None, require_atomic: bool = True) -> int:
    """Makes a barrier for jobs of a queue, and returns its number: see `penstock.barrier`."""
    return _api.barrier(_tx(using, require_atomic), queue, schema=setting("SCHEMA"))


def seal(queue: str, barrier: int, *, using: str | None = None, require_atomic: bool = True) -> None:
    """Seals a barrier: it opens when each job that holds it has ended."""
    _api.seal(_tx(using, require_atomic), queue, barrier, schema=setting("SCHEMA"))


def publish_after(
    queue: str, waits_for: Sequence[int], outbox: str, payload: Payload, *, key: str | None = None, topic: str = "", headers: Mapping[str, str] | None = None,
    id: str | None = None, on_dead: str | None = None, using: str | None = None, require_atomic: bool = True,
) -> int:  # fmt: skip
    """Publishes a message once these barriers of the queue are open: see `penstock.publish_after`."""
    return _api.publish_after(
        _tx(using, require_atomic), queue, waits_for, outbox, payload, key=key, topic=topic, headers=headers, id=id, on_dead=on_dead,
        schema=setting("SCHEMA"), encoder=_encoder(),
    )  # fmt: skip


def first(consumer: str, message_id: str, *, using: str | None = None, require_atomic: bool = True) -> bool:
    """Returns whether the message is new to the consumer, and notes its id."""
    return _inbox.first(_tx(using, require_atomic), consumer, message_id, schema=setting("SCHEMA"))
