"""Inboxes remember which messages were received, in the transaction that processes them (docs/guides/inbox.md)."""

from __future__ import annotations

from collections.abc import Sequence

from ._seam import Transaction, run, sql_for


def first(tx: Transaction, consumer: str, message_id: str, *, schema: str = "penstock") -> bool:
    """Returns whether the message is new to the consumer, and notes its id. If the transaction rolls back, it is new again."""
    return first_of(tx, consumer, [message_id], schema=schema) == [message_id]


def first_of(tx: Transaction, consumer: str, message_ids: Sequence[str], *, schema: str = "penstock") -> list[str]:
    """Returns the ids that are new to the consumer, each once and in the given order, and notes them."""
    return run(tx, sql_for(tx, schema).first(consumer, message_ids))
