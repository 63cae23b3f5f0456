"""Puts the binary into the wheel: PENSTOCK_BIN is its path, PENSTOCK_WHEEL_TAG the platform in the words of wheels."""

from __future__ import annotations

import os
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class BinaryHook(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        binary = os.environ["PENSTOCK_BIN"]
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{os.environ['PENSTOCK_WHEEL_TAG']}"
        build_data["shared_scripts"] = {binary: os.path.basename(binary)}
