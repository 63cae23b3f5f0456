"""Opens messages whose payload is stored outside of them (docs/guides/relaying.md#large-payloads)."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from os import PathLike
from pathlib import Path

from ._model import Error

HEADER = "penstock-claim-check"


class AlteredError(Error):
    """The stored payload is not the one that was published."""


def open(reference: str | bytes | None, payload: bytes, fetch: Callable[[str], bytes]) -> bytes:
    """Returns the payload as it was published. The reference is the message's header HEADER; without one that is the payload itself.

    Otherwise fetch reads the object of a name, 64 hexadecimal digits, from the bucket or directory that the consumer trusts. Size and SHA-256 are verified.
    """
    if not reference:
        return payload
    try:
        parsed = json.loads(reference)
        url, size, sha256 = str(parsed["url"]), int(parsed["bytes"]), str(parsed["sha256"])
    except (ValueError, TypeError, KeyError) as e:
        raise Error(f"the header {HEADER} cannot be read") from e
    name = url.rpartition("/")[2]
    if not re.fullmatch("[0-9a-f]{64}", name):
        raise Error(f"the URL {url!r} does not end in a name that Penstock gives")
    stored = fetch(name)
    if len(stored) != size or hashlib.sha256(stored).hexdigest() != sha256:
        raise AlteredError(f"{url}: the stored payload is not the one that was published: it has {len(stored)} bytes, of {size}")
    return stored


def directory(path: str | PathLike[str]) -> Callable[[str], bytes]:
    """A fetch that reads from the relay's directory, which may have another path here."""
    return lambda name: (Path(path) / name).read_bytes()
