"""Claim checks: the reference that the relay makes, and what the program itself sends."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import psycopg
import pytest

import penstock
from penstock import claim_check

from .conftest import PENSTOCK, ROOT

VECTOR = json.loads((ROOT / "clients/conformance/claim_check.json").read_text())
PAYLOAD: bytes = VECTOR["payload"].encode()
REFERENCE: str = VECTOR["reference"]
NAME = json.loads(REFERENCE)["url"].rpartition("/")[2]


def never(name: str) -> bytes:
    raise AssertionError(name)


def test_open() -> None:
    fetched: list[str] = []

    def fetch(name: str) -> bytes:
        fetched.append(name)
        return PAYLOAD

    for reference in (REFERENCE, REFERENCE.encode()):
        assert claim_check.open(reference, b"[]", fetch) == PAYLOAD
    assert fetched == [NAME, NAME]
    for none in (None, "", b""):
        assert claim_check.open(none, b"inline", never) == b"inline"


@pytest.mark.parametrize("altered", [b"", PAYLOAD[:-1], PAYLOAD + b"x", PAYLOAD[:-1] + b"x"])
def test_another_payload_is_an_error(altered: bytes) -> None:
    with pytest.raises(claim_check.AlteredError, match="not the one that was published"):
        claim_check.open(REFERENCE, b"[]", lambda name: altered)


@pytest.mark.parametrize(
    "reference", ["{", "[]", "1", "{}", REFERENCE.replace(NAME, "../../etc/passwd"), REFERENCE.replace(NAME, NAME.upper()), REFERENCE.replace(NAME, NAME + "/")]
)
def test_a_reference_that_is_not_the_relays(reference: str) -> None:
    with pytest.raises(penstock.Error):
        claim_check.open(reference, b"[]", never)


def test_what_a_relay_stores(url: str, db: psycopg.Connection, tmp_path: Path) -> None:
    """The program's own files and references."""
    db.execute("select penstock.create_outbox('claims')")
    payloads = [b"small", b"x" * 200_000, "ä".encode() * 100_000]
    penstock.publish_many(db, "claims", [penstock.Message(payload, key="k") for payload in payloads])
    command = [PENSTOCK, "relay", "--outbox", "claims", "--sink", "stdout", "--claim-check", f"file://{tmp_path}", "--database-url", url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as relay:
        assert relay.stdout
        lines = [json.loads(relay.stdout.readline()) for _ in payloads]
        relay.terminate()
    opened = [claim_check.open(line.get("headers", {}).get(claim_check.HEADER), line["payload"].encode(), claim_check.directory(tmp_path)) for line in lines]
    assert opened == payloads
    with pytest.raises(FileNotFoundError):
        claim_check.open(REFERENCE, b"[]", claim_check.directory(tmp_path))
