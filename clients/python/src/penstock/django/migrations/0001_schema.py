from __future__ import annotations

from typing import Any, ClassVar

from django.db import migrations


def forwards(_apps: Any, editor: Any) -> None:
    from penstock.django import setting
    from penstock.django.schema import migrate

    if editor.connection.alias == setting("DATABASE") and editor.connection.vendor == "postgresql":  # a file of SQLite is penstock migrate's
        migrate()


class Migration(migrations.Migration):
    """Makes the schema. What later versions of this package change in it, `manage.py penstock_migrate` does, or a migration of yours that calls
    penstock.django.schema.migrate. To undo it keeps everything: `drop schema penstock` is a decision of yours."""

    dependencies: ClassVar[list[tuple[str, str]]] = []
    operations: ClassVar[list[Any]] = [migrations.RunPython(forwards, migrations.RunPython.noop)]
