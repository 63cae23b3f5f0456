from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import close_old_connections, connections, reset_queries
from django.utils.module_loading import import_string

import penstock
from penstock._desk import threads_take
from penstock._kinds import by_kind
from penstock._worker import in_transaction
from penstock.django import setting, task_queues
from penstock.django.commands import told


class Command(BaseCommand):
    help = "Runs the jobs of a queue, by the handler of settings.PENSTOCK['QUEUES'] and the tasks of settings.TASKS, until SIGTERM"

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("queue")
        parser.add_argument(
            "--handler",
            help="the dotted name of a function that takes the job, of a dict with one for each kind, or of an App; the default is in settings.PENSTOCK",
        )
        parser.add_argument("--concurrency", type=int, default=10)
        parser.add_argument("--lease", type=float, default=30.0, help="seconds that a job stays with a worker that has died")
        parser.add_argument("--drain-timeout", type=float, default=10.0, help="seconds that handlers may go on at SIGTERM")
        parser.add_argument("--group", default="", help="the group to claim from")
        parser.add_argument("--atomic", action="store_true", help="an atomic() around each handler that also ends the job: what it writes is there once")

    def handle(self, *_args: Any, **options: Any) -> None:
        queue, alias = options["queue"], setting("DATABASE")
        name = options["handler"] or setting("QUEUES").get(queue, {}).get("handler")
        tasks = queue in task_queues()
        if not name and not tasks:
            raise CommandError(
                f"there is no handler for the queue {queue}: give --handler or settings.PENSTOCK['QUEUES'][{queue!r}]['handler'], or name it in settings.TASKS"
            )
        chosen = {name: options[name] for name in ("concurrency", "lease", "drain_timeout")}
        chosen.update(group_key=options["group"], schema=setting("SCHEMA"))
        with told():
            given: Any = import_string(name) if isinstance(name, str) else name
            if isinstance(given, penstock.App):
                given = given.handlers(queue)
            threads_take(given)
            own_options = penstock.Options(**chosen)
            if tasks:
                from penstock.django.tasks import Handlers

                given = Handlers(queue, own_options.worker, given)
            handler = by_kind(given, queue, own_options)

        def own() -> Any:
            """A connection for the worker itself, separate from the thread's own."""
            connection = connections[alias].copy()
            connection.inc_thread_sharing()
            return connection

        def in_thread(job: penstock.Job) -> object:
            reset_queries()
            close_old_connections()
            try:
                return handler(job)
            finally:
                close_old_connections()

        run: penstock.Handler = in_thread
        with told():
            if options["atomic"]:
                run, _ = in_transaction(lambda: connections[alias], queue, lambda _tx, job: handler(job), own_options)
            penstock.work(own, queue, run, **chosen)
