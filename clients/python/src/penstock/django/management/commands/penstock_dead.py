from __future__ import annotations

import json
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.core.serializers.json import DjangoJSONEncoder

from penstock.django.commands import clock, duration, plural, since, table, told, visible
from penstock.django.operate import Choice, Dead

SHOWN = 2048
PAST = {"retry": "retried", "discard": "discarded"}


class Command(BaseCommand):
    help = "Lists, shows, retries and discards dead letters of a queue or an outbox, as the program penstock does"

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="list|show|retry|discard")
        for verb, says in (
            ("list", "dead letters with their last errors"),
            ("show", "one dead letter with its payload and all errors"),
            ("retry", "send dead letters again, or run them again"),
            ("discard", "delete dead letters permanently"),
        ):
            p = verbs.add_parser(verb, help=says, description=says)
            p.add_argument("name", metavar="OUTBOX|QUEUE")
            p.add_argument("--subscription", default="", help="of an outbox; the default is its only one")
            p.add_argument(
                "--json", action="store_true", help="one JSON line for each dead letter" if verb in ("list", "show") else "how many, as one JSON line"
            )
            if verb == "show":
                p.add_argument("id", metavar="ID", nargs="?")
                p.add_argument("--seq", type=int, action="append", default=[], help="of an outbox: the one with this seq, instead of ID")
                p.add_argument("--full", action="store_true", help="the whole payload, however long")
                continue
            p.add_argument("ids", metavar="ID", nargs="*", help="those with these ids")
            p.add_argument("--id", action="append", default=[], help="the same; may be repeated")
            p.add_argument("--seq", type=int, action="append", default=[], help="those with this seq, of an outbox; may be repeated")
            for name, of in (("key", ""), ("kind", ", of a queue"), ("group", ", of a queue"), ("topic", ", of an outbox")):
                p.add_argument(f"--{name}", default="", help=f"those of this {name}{of}")
            p.add_argument("--error", default="", help="those whose last error contains this text")
            p.add_argument("--older-than", type=duration, help="those that died longer ago than this duration, such as 90s, 24h or 7d")
            p.add_argument("--newer-than", type=duration, help="those that died within this last duration")
            p.add_argument("--limit", type=int, help="at most this number")
            p.add_argument("--all", action="store_true", help="all of them" + ("; asks first" if verb != "list" else ", which is the default"))
            if verb != "list":
                p.add_argument("--yes", action="store_true", help="do not ask")

    def handle(self, *_args: Any, **o: Any) -> None:
        verb = o["verb"]
        with told():
            if verb == "show":
                return self.show(o)
            chosen = Choice(
                ids=[*o["ids"], *o["id"]], seqs=o["seq"], **{n: o[n] for n in ("key", "kind", "topic", "group", "error", "older_than", "newer_than", "limit")}
            )
            if o["limit"] is not None and o["limit"] < 1:
                raise CommandError(f"--limit is {o['limit']}: use 1 or more, or leave it out")
            if o["all"] and chosen.narrows():
                raise CommandError("--all is given with flags that narrow the choice: use one of them")
            if verb != "list" and not (o["all"] or chosen.narrows()):
                raise CommandError(f"nothing was {PAST[verb]}: say which dead letters with ID, --key, --error and so on, or --all")
            box = Dead(o["name"], o["subscription"])
            for name in ("seq", "topic") if box.is_queue else ("kind", "group"):
                if o[name]:
                    raise CommandError(
                        f"--{name} chooses among {'messages' if box.is_queue else 'jobs'}: leave it out, or name {'an outbox' if box.is_queue else 'a queue'}"
                    )
            if verb == "list":
                return self.list(box, chosen, o)
            return self.decide(box, chosen, verb, o)

    def list(self, box: Dead, chosen: Choice, o: dict[str, Any]) -> None:
        letters = box.letters(box.numbers(chosen))
        if o["json"]:
            for one in letters:
                self.print({name: value for name, value in one.items() if not name.startswith("payload") or name == "payload_bytes"})
            return
        own = ("kind", "key", "group") if box.is_queue else ("key", "topic")
        first = ("id",) if box.is_queue else ("seq", "id")
        cells = [
            [
                *(visible(one[n]) for n in first),
                *(visible(one[n], 24) for n in own),
                str(one["attempts"]),
                since(one["died_at"]),
                visible(one["error"].partition("\n")[0], 64),
            ]
            for one in letters
        ]
        if not cells:
            self.stdout.write(f"0 dead letters of {box.name}{' match' if chosen.narrows() else ''}.")
            return
        self.stdout.write(table(f">{'  '.join((*first, *own)).upper()}  >ATTEMPTS  AGE  ERROR", cells))

    def show(self, o: dict[str, Any]) -> None:
        box = Dead(o["name"], o["subscription"])
        if bool(o["id"]) == bool(o["seq"]):
            raise CommandError("give the ID of the dead letter, or of an outbox its --seq")
        numbers = box.numbers(Choice([o["id"]] if o["id"] else [], o["seq"]))
        if not numbers:
            raise missing(box, [o["id"], *o["seq"]])
        for one in box.letters(numbers):
            if o["json"]:
                self.print(one)
                continue
            lines = [("id" if box.is_queue else "seq", f"{one.get('seq', one['id'])} of {box.name}")]
            lines += [(n, str(one[n])) for n in (("kind", "key", "group", "priority") if box.is_queue else ("id", "key", "topic"))]
            lines += [
                ("created", clock(one["created_at"])),
                ("died", f"{clock(one['died_at'])}, {since(one['died_at'])} ago, after {plural(one['attempts'], 'attempt')}"),
            ]
            lines += [("headers" if not n else "", f"{name}: {value}") for n, (name, value) in enumerate(sorted(one.get("headers", {}).items()))]
            for n, f in enumerate(one["failures"]):
                error, *more = f["error"].split("\n")
                lines.append(("errors" if not n else "", f"{f['attempt']}  {f['at'][:19].replace('T', ' ')}  {error}"))
                lines += [("", f"     {line}") for line in more]  # from where it was called, and the causes
            for name, value in lines:
                self.stdout.write(f"{name:<9} {visible(value) or '-'}")
            text = one.get("payload", one.get("payload_base64", ""))
            kind = ("text" if "payload" in one else "base64 of bytes that are not text") + (
                f"; the first {SHOWN}, --full shows the rest" if len(text) > SHOWN and not o["full"] else ""
            )
            self.stdout.write(f"payload   {one['payload_bytes']:,} B ({kind})\n\n")
            for line in (text if o["full"] else text[:SHOWN]).splitlines():
                self.stdout.write(visible(line))
            which = f"{box.name} --id {one['id']}" if box.is_queue else f"{box.name} --seq {one['seq']} --subscription {box.subscription}"
            self.stdout.write(f"\nNext: manage.py penstock_dead retry {which}\n  or: manage.py penstock_dead discard {which}")

    def decide(self, box: Dead, chosen: Choice, verb: str, o: dict[str, Any]) -> None:
        numbers = box.numbers(chosen)
        named = [*chosen.ids, *chosen.seqs]
        if named and not o["limit"] and len(numbers) < len(set(named)):
            there = [x for one in box.letters(numbers) for x in (str(one["id"]), one.get("seq"))]
            raise missing(box, [x for x in named if x not in there])
        if not o["yes"] and not named and (verb == "discard" or o["all"]) and numbers:
            question = f"{verb} {plural(len(numbers), 'dead letter')} of {box.name}?"
            if not sys.stdin.isatty():
                raise CommandError(f"nothing was {PAST[verb]}: there is no terminal to ask on, pass --yes if you mean it")
            if input(f"{question} [y/N] ").strip().lower() not in ("y", "yes"):
                raise CommandError(f"nothing was {PAST[verb]}")
        n = box.retry(numbers) if verb == "retry" else box.discard(numbers)
        if o["json"]:
            self.print(({"queue": box.name} if box.is_queue else {"outbox": box.name, "subscription": box.subscription}) | {PAST[verb]: n})
            return
        self.stdout.write(f"{plural(n, 'dead letter')} of {box.name} {PAST[verb]}.")

    def print(self, one: dict[str, Any]) -> None:
        self.stdout.write(json.dumps(one, cls=DjangoJSONEncoder, ensure_ascii=False))


def missing(box: Dead, ids: list[Any]) -> CommandError:
    return CommandError(
        f"{box.name} has no such dead letter: {', '.join(str(id_) for id_ in ids if id_)} (manage.py penstock_dead list {box.name} shows those there are)"
    )
