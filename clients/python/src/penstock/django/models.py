"""What the admin has permissions for. The tables are Penstock's own: no model reads or makes one."""

from __future__ import annotations

from django.db import models


class Queue(models.Model):
    name = models.CharField(primary_key=True, max_length=48)

    class Meta:
        managed = False
        default_permissions = ("view", "change")
        verbose_name_plural = "queues and outboxes"

    def __str__(self) -> str:
        return str(self.name)


class DeadLetter(models.Model):
    """Named by its queue or outbox, subscription, and id or seq."""

    name = models.CharField(primary_key=True, max_length=200)

    class Meta:
        managed = False
        default_permissions = ("view", "change", "delete")

    def __str__(self) -> str:
        return str(self.name)


class Schedule(models.Model):
    name = models.CharField(primary_key=True, max_length=200)

    class Meta:
        managed = False
        default_permissions = ("view", "change", "delete")

    def __str__(self) -> str:
        return str(self.name)
