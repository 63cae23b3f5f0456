from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from functools import partial
from typing import Any
from urllib.parse import quote

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.core.serializers.json import DjangoJSONEncoder
from django.db import connections

from penstock.django import setting
from penstock.django.commands import age, clock, figure, plural, table, told, visible
from penstock.django.operate import MOST, status, waiting_groups, works

UNATTENDED = 10e9
"""The age in nanoseconds of a ready job from which it seems that no worker runs."""


class Command(BaseCommand):
    help = "Shows backlogs, who relays and who works, dead letters and schedules, as the program penstock does"

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", nargs="?", metavar="OUTBOX|QUEUE")
        parser.add_argument("--json", action="store_true", help="one JSON line, ages in nanoseconds")
        parser.add_argument("--exact", action="store_true", help=f"count everything, also beyond {MOST:,}: about a second for some millions")

    def handle(self, *_args: Any, **options: Any) -> None:
        only, most = options["name"], None if options["exact"] else MOST
        with told():
            found, unseen = status(most)
        if only:
            found["inboxes"] = []
            found = {kind: [one for one in all_ if only in (one.get("outbox"), one.get("queue"))] for kind, all_ in found.items()}
            if not any(found.values()):
                left = "".join(f"\n{line}" for line in unseen)
                raise CommandError(f"there is no outbox and no queue {only!r}: manage.py penstock_status shows those there are{left}")
        if options["json"]:
            self.stdout.write(json.dumps(found, cls=DjangoJSONEncoder, ensure_ascii=False))
        elif not any(found.values()) and not unseen:
            self.stdout.write("There is nothing yet: name outboxes and queues in settings.PENSTOCK, and run manage.py penstock_migrate.")
        else:
            self.stdout.write("\n\n".join(parts_of(found, unseen)))


def parts_of(found: dict[str, list[dict[str, Any]]], unseen: Sequence[str] = ()) -> list[str]:
    parts: list[str] = []

    def add(head: str, cells: list[list[str]]) -> None:
        if cells:
            parts.append(table(head, cells))

    subscriptions = [(o["outbox"], s) for o in found["outboxes"] for s in o["subscriptions"] or [{}]]
    add(
        "OUTBOX  SUBSCRIPTION  >BACKLOG  >OLDEST  >PARKED  >DEAD  HOLDER",
        [
            [
                visible(outbox, 32),
                visible(s["subscription"], 32),
                figure(s, "backlog"),
                oldest(s),
                *map(partial(figure, s), ("parked", "dead_letters")),
                holder(s),
            ]
            if s
            else [visible(outbox, 32), "(none)", *[""] * 5]
            for outbox, s in subscriptions
        ],
    )
    add(
        "QUEUE  >READY  >OLDEST  >RUNNING  >DELAYED  >WAITING  >DEAD",
        [
            [visible(q["queue"], 32), figure(q, "ready"), oldest(q), running(q), *(figure(q, n) for n in ("delayed", "waiting", "dead_letters"))]
            for q in found["queues"]
        ],
    )
    add(
        "QUEUE  WORKER  >RUNNING  LEASE UNTIL (UTC)",
        [[visible(q["queue"], 32), visible(w["worker"]), f"{w['running']:,}", clock(w["lease_until"])] for q in found["queues"] for w in q.get("workers", ())],
    )
    add(
        "QUEUE  SCHEDULE  CRON  NEXT (UTC)  KIND",
        [
            [visible(x) for x in (q["queue"], s["name"], s["cron"], "paused" if s["paused"] else clock(s["next"]), s["kind"])]
            for q in found["queues"]
            for s in q.get("schedules", ())
        ],
    )
    add("INBOX OF  KEEPS", [[visible(i["consumer"]), i["keep"]] for i in found["inboxes"]])
    if told := "\n".join([*notes(found), *unseen]):
        parts.append(told)
    return parts


def holder(subscription: dict[str, Any]) -> str:
    return visible(subscription.get("holder", ""))


def oldest(one: dict[str, Any]) -> str:
    return age(one["oldest_age_ns"] / 1e9)


def running(queue: dict[str, Any]) -> str:
    return figure(queue, "running") + (f" of {queue['max_running']:,}" if queue["max_running"] else "")


def notes(found: dict[str, list[dict[str, Any]]]) -> list[str]:
    """What a person has to decide."""
    told = []
    for outbox in found["outboxes"]:
        if not outbox["subscriptions"]:
            o = outbox["outbox"]
            told.append(f"{o}: no relay has ever run for it, and its messages wait: penstock relay --database-url {url()} --outbox {o} --sink URL")
        for s in outbox["subscriptions"]:
            o, name = outbox["outbox"], s["subscription"]
            if s["dead_letters"]:
                told.append(f"{o}, {name}: {dead(s)}: manage.py penstock_dead list {o} --subscription {name}")
            if s["backlog"] and "holder" not in s:
                waits = plural(s["backlog"], "message") + (" waits" if s["backlog"] == 1 else " wait")
                relay = f"penstock relay --database-url {url()} --outbox {o} --subscription {name} --sink URL"
                told.append(f"{o}, {name}: no relay runs, and {waits}: {relay}")
    for q in found["queues"]:
        if q["dead_letters"]:
            told.append(f"{q['queue']}: {dead(q)}: manage.py penstock_dead list {q['queue']}")
        if q["paused"]:
            told.append(f"{q['queue']}: it is paused, no job begins: penstock queue resume --database-url {url()} {q['queue']}")
        elif q["ready"] and q.get("workers") == [] and q["oldest_age_ns"] > UNATTENDED:
            jobs = plural(q["ready"], "job") + (" is" if q["ready"] == 1 else " are")
            left, kept = waiting_groups(q["queue"], UNATTENDED / 1e9)
            if kept and not left:
                of = f"of group {kept[0]}" if kept[0] else "without a group"
                told.append(f"{q['queue']}: a hold or a limit keeps jobs {of}: penstock queue group list --database-url {url()} {q['queue']}")
            else:
                who, flag = untaken(left, works(q["queue"]))
                told.append(f"{q['queue']}: no worker seems to {who}, and {jobs} ready: manage.py penstock_work {q['queue']}{flag}")
    return [visible(line) for line in told]


def untaken(groups: list[str], other: bool) -> tuple[str, str]:
    """What no worker seems to do, and the flag of one that does it. `other` says that a worker takes other jobs of the queue."""
    if not other or not any(groups):
        return "run", " --all-groups" if any(groups) else ""
    if len(groups) == 1:
        return f"take jobs of group {groups[0]}", f" --group {shlex.quote(groups[0])}"
    return f"take jobs of {len(groups)} groups, such as {groups[-1]}", " --all-groups"


def dead(one: dict[str, Any]) -> str:
    return f"{figure(one, 'dead_letters')} dead letter{'' if one['dead_letters'] == 1 else 's'} to retry or to discard"


def url() -> str:
    """Of the database, for the program, without its password: PGPASSWORD or a password file has it."""
    of = {name: quote(str(value or ""), safe="/") for name, value in connections[setting("DATABASE")].settings_dict.items() if name != "OPTIONS"}
    user, port = of["USER"] and f"{quote(of['USER'], safe='%')}@", of["PORT"] and f":{of['PORT']}"
    if of["HOST"].startswith("/"):  # a socket
        return shlex.quote(f"postgres://{user}/{of['NAME']}?host={of['HOST']}" + (port and f"&port={of['PORT']}"))
    return shlex.quote(f"postgres://{user}{of['HOST']}{port}/{of['NAME']}")
