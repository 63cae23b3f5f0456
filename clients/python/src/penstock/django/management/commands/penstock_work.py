from __future__ import annotations

import logging
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import close_old_connections, connections, reset_queries
from django.utils.connection import ConnectionProxy

import penstock
from penstock._desk import log
from penstock._kinds import by_kind
from penstock._model import nearest
from penstock._worker import in_transaction, run_together
from penstock.django import handlers_of, setting, task_queues
from penstock.django.commands import told


class Command(BaseCommand):
    help = "Runs the jobs of queues, by the handler of settings.PENSTOCK['QUEUES'] and the tasks of settings.TASKS, until SIGTERM"

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("queue", nargs="+", help="one queue, or several: each has the given concurrency")
        parser.add_argument(
            "--handler",
            help="the dotted name of a function that takes the job, of a dict with one for each kind, or of an App; the default is in settings.PENSTOCK",
        )
        parser.add_argument("--concurrency", type=int, default=10, help="how many jobs of each queue run at a time; default %(default)s")
        parser.add_argument("--lease", type=float, default=30.0, help="seconds that a job stays with a worker that has died; default %(default)g")
        parser.add_argument("--drain-timeout", type=float, default=10.0, help="seconds that handlers may go on at SIGTERM; default %(default)g")
        parser.add_argument("--group", action="append", default=[], help="the group to claim from; may be repeated: then they take turns")
        parser.add_argument("--all-groups", action="store_true", help="claim from every group in turn")
        parser.add_argument("--atomic", action="store_true", help="an atomic() around each handler that also ends the job: what it writes is there once")

    def handle(self, *_args: Any, **options: Any) -> None:
        log_to_stderr()
        chosen = {name: options[name] for name in ("concurrency", "lease", "drain_timeout")}
        chosen.update(groups=options["group"], all_groups=options["all_groups"], schema=setting("SCHEMA"))
        try:
            with told():
                run_together([worker_of(queue, options["handler"], options["atomic"], penstock.Options(**chosen)) for queue in dict.fromkeys(options["queue"])])
        except KeyboardInterrupt:  # the second one, or one before the worker has started
            raise CommandError("interrupted: jobs that were running run again when their leases end", returncode=130) from None


def worker_of(queue: str, given: str | None, atomic: bool, options: penstock.Options) -> penstock.Worker:
    alias = setting("DATABASE")
    found = handlers_of(queue, options.worker, given, ConnectionProxy(connections, alias) if atomic else None)  # it is the connection of each thread
    if found is None:
        step = f"give --handler or settings.PENSTOCK['QUEUES'][{queue!r}]['handler'], or name it in settings.TASKS"
        its = sorted({*task_queues(), *(name for name, options in setting("QUEUES").items() if "handler" in options)})
        raise CommandError(f"there is no handler for the queue {queue}: " + (f"{nearest(queue, its)}; or " if its else "") + step)
    handler = by_kind(found, queue, options)

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
    if atomic:
        run, _ = in_transaction(lambda: connections[alias], queue, lambda _tx, job: handler(job), options)
    return penstock.Worker(own, queue, run, options)


def log_to_stderr() -> None:
    """Lets the logger penstock say on stderr that a worker starts and stops, unless settings.LOGGING says where its lines go."""
    if not log.hasHandlers():
        log.addHandler(logging.StreamHandler())
        log.setLevel(logging.INFO)
