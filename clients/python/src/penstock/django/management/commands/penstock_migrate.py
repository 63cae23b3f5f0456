from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from penstock.django.commands import told
from penstock.django.schema import create_missing, migrate


class Command(BaseCommand):
    help = "Brings Penstock's schema up to date, and makes the outboxes, queues and inboxes of settings.PENSTOCK that are missing"

    def handle(self, *_args: Any, **_options: Any) -> None:
        with told():
            before, after = migrate()
            self.stdout.write(f"Penstock's schema: version {before} → {after}" if before != after else f"Penstock's schema is up to date: version {after}")
            for what in create_missing():
                self.stdout.write(f"made {what}")
