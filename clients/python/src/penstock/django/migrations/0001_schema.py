from __future__ import annotations

from typing import Any, ClassVar

from django.db import migrations, models


def forwards(_apps: Any, editor: Any) -> None:
    from penstock.django import setting
    from penstock.django.schema import migrate

    if editor.connection.alias == setting("DATABASE") and editor.connection.vendor == "postgresql":  # a file of SQLite is penstock migrate's
        migrate()


class Migration(migrations.Migration):
    """Creates the schema. `manage.py penstock_migrate` applies the changes of later versions of this package, or a migration of yours that calls
    penstock.django.schema.migrate. Undoing this migration keeps everything: `drop schema penstock` is up to you."""

    dependencies: ClassVar[list[tuple[str, str]]] = []
    operations: ClassVar[list[Any]] = [
        migrations.RunPython(forwards, migrations.RunPython.noop),
        *(  # they make no table: the admin's permissions belong to them
            migrations.CreateModel(
                name,
                [("name", models.CharField(max_length=length, primary_key=True, serialize=False))],
                {"managed": False, "default_permissions": permissions, **options},
            )
            for name, length, permissions, options in (
                ("Queue", 48, ("view", "change"), {"verbose_name_plural": "queues and outboxes"}),
                ("DeadLetter", 200, ("view", "change", "delete"), {}),
                ("Schedule", 200, ("view", "change", "delete"), {}),
            )
        ),
    ]
