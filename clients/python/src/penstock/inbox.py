"""Inboxes: what was received already, remembered in the transaction that does the work (docs/guides/inbox.md)."""

from __future__ import annotations

from collections.abc import Sequence

from ._seam import Transaction, run, sql_for


def first(tx: Transaction, consumer: str, message_id: str, *, schema: str = "penstock") -> bool:
    """Whether the message is new. If the transaction rolls back, it is new again."""
    return first_of(tx, consumer, [message_id], schema=schema) == [message_id]


def first_of(tx: Transaction, consumer: str, message_ids: Sequence[str], *, schema: str = "penstock") -> list[str]:
    """Those that are new, in the order given, each once."""
    return run(tx, sql_for(tx, schema).first(consumer, message_ids))
