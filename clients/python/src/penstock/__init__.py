"""Penstock's outbox, job queue and inbox, in your own transaction. `penstock.aio` has the same for asyncio."""

from . import claim_check, inbox
from ._api import barrier, check, enqueue, enqueue_many, publish, publish_after, publish_many, seal
from ._app import App, Task, TxTask, current_job
from ._buffer import Buffer
from ._desk import Options
from ._model import (
    SCHEMA_VERSION,
    Aborted,
    Cancelled,
    DeadJob,
    DeadLetter,
    Enqueued,
    Error,
    FieldError,
    FoundJob,
    GroupPolicy,
    HoldGroup,
    Job,
    LeaseLostError,
    Message,
    NewJob,
    NotFoundError,
    Outcome,
    Payload,
    QueueStatus,
    Retry,
    Schedule,
    SchemaError,
    Snooze,
)
from ._queue import Queue
from ._steps import report, step
from ._worker import Handler, TxHandler, Worker, work, work_tx

__version__ = "0.1.0"

__all__ = [
    "SCHEMA_VERSION",
    "Aborted",
    "App",
    "Buffer",
    "Cancelled",
    "DeadJob",
    "DeadLetter",
    "Enqueued",
    "Error",
    "FieldError",
    "FoundJob",
    "GroupPolicy",
    "Handler",
    "HoldGroup",
    "Job",
    "LeaseLostError",
    "Message",
    "NewJob",
    "NotFoundError",
    "Options",
    "Outcome",
    "Payload",
    "Queue",
    "QueueStatus",
    "Retry",
    "Schedule",
    "SchemaError",
    "Snooze",
    "Task",
    "TxHandler",
    "TxTask",
    "Worker",
    "barrier",
    "check",
    "claim_check",
    "current_job",
    "enqueue",
    "enqueue_many",
    "inbox",
    "publish",
    "publish_after",
    "publish_many",
    "report",
    "seal",
    "step",
    "work",
    "work_tx",
]
