"""Puts schema.sql into the wheel and the sdist: what `penstock migrate --sql` of the same sources prints."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class SchemaHook(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        schema, repository = Path(self.root) / "src/penstock/django/schema.sql", Path(self.root).parent.parent
        if (repository / "cmd/penstock").is_dir():
            program = [os.environ["PENSTOCK_BIN"]] if os.environ.get("PENSTOCK_BIN") else ["go", "run", "-trimpath", "./cmd/penstock"]
            try:
                printed = subprocess.run(
                    [*program, "migrate", "--sql"], cwd=repository, env=os.environ | {"CGO_ENABLED": "0"}, stdout=subprocess.PIPE, check=True
                )
            except (OSError, subprocess.CalledProcessError) as e:
                sys.exit(f"penstock: schema.sql cannot be made: {e}: install Go, or set PENSTOCK_BIN to a penstock that was built from these sources")
            schema.write_bytes(printed.stdout)
        elif not schema.is_file():  # in the sdist it is there
            sys.exit("penstock: schema.sql is missing: build in clients/python of the repository, or from its sdist")
