from __future__ import annotations

import sys
from typing import Any

from django.apps import AppConfig
from django.core import checks, mail
from django.db import connections
from django.db.models.signals import post_migrate


class PenstockConfig(AppConfig):
    name = "penstock.django"
    label = "penstock"
    verbose_name = "Penstock"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from .checks import check_settings

        checks.register(check_settings)
        post_migrate.connect(_after_migrate, sender=self)


def _after_migrate(using: str, plan: object = None, verbosity: int = 0, stdout: Any = None, **_: Any) -> None:
    from . import setting
    from .schema import create_missing, drop, version

    if using == setting("DATABASE") and connections[using].vendor == "postgresql" and version():
        if plan is None and hasattr(mail, "outbox"):  # flush, which ends each TransactionTestCase: Django empties its own tables
            drop()
        for what in create_missing():
            if verbosity:
                (stdout or sys.stdout).write(f"Penstock: made {what}\n")
