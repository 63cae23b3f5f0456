"""Pages of Django's admin: queues and outboxes, dead letters, schedules. They read and decide by the functions of `operate`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote, unquote, urlencode

from django.contrib import admin, messages
from django.contrib.admin.utils import quote as admin_quote
from django.contrib.admin.utils import unquote as admin_unquote
from django.core.exceptions import PermissionDenied
from django.db import Error as DatabaseError
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path, reverse

from .._model import Error, NotFoundError
from . import operate
from .commands import age, figure, plural, said, since
from .management.commands.penstock_status import notes
from .models import DeadLetter, Queue, Schedule
from .operate import Choice, Dead

PAGE = 100
Cell = tuple[object, str]
"""A text, and where it leads."""


class Page(admin.ModelAdmin):
    """A list without a model's table: `parts` has its tables, `actions_of` what can be done with chosen rows."""

    def get_urls(self) -> list[Any]:
        return [path("", self.admin_site.admin_view(self.listed), name=f"{self.opts.app_label}_{self.opts.model_name}_changelist")]

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def parts(self, request: HttpRequest) -> dict[str, Any]:
        raise NotImplementedError

    def actions_of(self, request: HttpRequest) -> dict[str, tuple[str, Callable[[HttpRequest, Sequence[str]], HttpResponse | None]]]:
        """The label and the function of each, those that the user may do."""
        raise NotImplementedError

    def listed(self, request: HttpRequest) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        try:
            if request.method == "POST":
                return self.done(request) or HttpResponseRedirect(request.get_full_path())
            return self.page(request, "list", self.parts(request))
        except NotFoundError as e:
            raise Http404(str(e)) from e
        except (Error, DatabaseError) as e:
            return self.page(request, "list", {"problem": said(e)})

    def done(self, request: HttpRequest) -> HttpResponse | None:
        actions, rows = self.actions_of(request), request.POST.getlist("row")
        if request.POST.get("action") not in actions:
            raise PermissionDenied
        if not rows and not request.POST.get("all"):
            messages.warning(request, "Choose rows first: nothing was changed.")
            return None
        return actions[request.POST["action"]][1](request, rows)

    def page(self, request: HttpRequest, template: str, context: dict[str, Any]) -> HttpResponse:
        given = {**self.admin_site.each_context(request), "opts": self.opts, "title": str(self.opts.verbose_name_plural).capitalize(), **context}
        given["actions"] = [(name, label) for name, (label, _) in self.actions_of(request).items()]
        return TemplateResponse(request, f"penstock/admin/{template}.html", given)

    def noted(self, request: HttpRequest, names: Sequence[str], what: str) -> None:
        """In the admin's history."""
        for name in names:
            self.log_change(request, self.model(name=name), what)


def table(caption: str, head: str, rows: Sequence[tuple[str, Sequence[Cell | object]]]) -> dict[str, Any]:
    """Of rows with a value, by which actions know them, and cells."""
    cells = [(value, [cell if isinstance(cell, tuple) else (cell, "") for cell in row]) for value, row in rows]
    return {"caption": caption, "head": head.split("  "), "rows": cells}


def dead_of(of: str, subscription: str = "", **more: str) -> str:
    given = {"of": of, "subscription": subscription, **more}
    return str(reverse("admin:penstock_deadletter_changelist")) + "?" + urlencode({key: value for key, value in given.items() if value})


@admin.register(Queue)
class QueueAdmin(Page):
    def parts(self, request: HttpRequest) -> dict[str, Any]:
        found, unseen = operate.status()

        def dead(one: dict[str, Any], *of: str) -> Cell:
            return figure(one, "dead_letters"), dead_of(*of) if one["dead_letters"] else ""

        def oldest(one: dict[str, Any]) -> str:
            return age(one["oldest_age_ns"] / 1e9)

        queues = [
            (q["queue"], [name, figure(q, "ready"), oldest(q), *(figure(q, n) for n in ("running", "delayed", "waiting")), dead(q, q["queue"])])
            for q in found["queues"]
            for name in [q["queue"] + (" (paused)" if q["paused"] else "")]
        ]
        subscriptions = [
            ("", [o, s["subscription"], figure(s, "backlog"), oldest(s), figure(s, "parked"), dead(s, o, s["subscription"]), s.get("holder", "-")])
            for outbox in found["outboxes"]
            for o in [outbox["outbox"]]
            for s in outbox["subscriptions"]
        ]
        subscriptions += [("", [outbox["outbox"], "(none)", *("-" * 5)]) for outbox in found["outboxes"] if not outbox["subscriptions"]]
        workers = [("", [q["queue"], w["worker"], w["running"], w["lease_until"]]) for q in found["queues"] for w in q.get("workers", ())]
        return {
            "notes": [*(line.partition(": manage.py penstock_dead")[0] for line in notes(found)), *unseen],
            "choosing": table("Queues", "Queue  Ready  Oldest  Running  Delayed  Waiting  Dead letters", queues),
            "tables": [
                table("Outboxes", "Outbox  Subscription  Backlog  Oldest  Parked  Dead letters  Relay", subscriptions),
                table("Workers with running jobs", "Queue  Worker  Running  Lease until", workers),
            ],
        }

    def actions_of(self, request: HttpRequest) -> Any:
        def pause(paused: bool) -> Any:
            def do(request: HttpRequest, rows: Sequence[str]) -> None:
                for queue in rows:
                    operate.pause(queue, paused)
                self.noted(request, rows, "Paused." if paused else "Resumed.")
                messages.success(request, f"{plural(len(rows), 'queue')} {'paused: no job begins' if paused else 'resumed'}.")

            return do

        may = self.has_change_permission(request)
        return {"pause": ("Pause queues", pause(True)), "resume": ("Resume queues", pause(False))} if may else {}


RETRIED = "A retried job runs at once, and its attempts count on. If it has used them all, it has one more, and is a dead letter again if that fails."


@admin.register(DeadLetter)
class DeadLetterAdmin(Page):
    def get_urls(self) -> list[Any]:
        return [*super().get_urls(), path("<path:object_id>", self.admin_site.admin_view(self.shown), name="penstock_deadletter_change")]

    def box(self, request: HttpRequest) -> Dead:
        return Dead(request.GET.get("of", ""), request.GET.get("subscription", ""))

    def choice(self, request: HttpRequest) -> Choice:
        of = request.GET
        return Choice(kind=of.get("kind", ""), error=of.get("q", ""), cause=of.get("cause") or None)

    def parts(self, request: HttpRequest) -> dict[str, Any]:
        if "of" not in request.GET:
            rows = [("", [(name, dead_of(name, subscription)), subscription or "-", n]) for name, subscription, n in operate.boxes() if n]
            return {"tables": [table("", "Queue or outbox  Subscription  Dead letters", rows)], "empty": "There are no dead letters."}
        box, chosen = self.box(request), self.choice(request)
        where = {"of": box.name, "subscription": box.subscription}
        after = request.GET.get("after", "")
        numbers = box.numbers(replace(chosen, after=int(after) if after.isdigit() else 0, limit=PAGE + 1))
        letters = list(box.letters(numbers[:PAGE]))
        own = ("kind", "key", "group") if box.is_queue else ("key", "topic")
        rows = [
            (
                str(number),
                [(number, self.link(box, number)), *(one[n] or "-" for n in own), one["attempts"], since(one["died_at"]), one["error"].partition("\n")[0]],
            )
            for one in letters
            for number in [one.get("seq", one["id"])]
        ]
        kept = {key: value for key, value in request.GET.items() if key in ("kind", "cause", "q")}

        def links(name: str, values: Sequence[tuple[str, str]], chosen: str | None) -> list[tuple[str, str, bool]]:
            others = {**where, **{key: value for key, value in kept.items() if key != name}}
            return [("All", dead_of(**others), not chosen), *((label, dead_of(**others, **{name: value}), value == chosen) for value, label in values)]

        causes = box.causes(Choice(kind=chosen.kind, error=chosen.error))
        filters = [
            ("kind", links("kind", [(kind, kind) for kind in box.kinds()], chosen.kind)),
            ("first line of the error", links("cause", [(cause, f"{cause} ({n:,})") for cause, n in causes if cause], chosen.cause)),
        ]
        return {
            "title": f"Dead letters of {box.name}" + (f", {box.subscription}" if box.subscription else ""),
            "choosing": table("", f"{'Id' if box.is_queue else 'Seq'}  {'  '.join(own).title()}  Attempts  Age  Error", rows),
            "matching": box.count(chosen),
            "filters": [one for one in filters if len(one[1]) > 1],
            "search": {"q": chosen.error, "kept": [(k, v) for k, v in {**where, **kept}.items() if v and k != "q"]},
            "next": dead_of(**where, **kept, after=str(numbers[PAGE - 1])) if len(numbers) > PAGE else "",
            "empty": "No dead letter matches.",
            "notes": [RETRIED] if box.is_queue else [],
        }

    def link(self, box: Dead, number: int) -> str:
        return str(reverse("admin:penstock_deadletter_change", args=[admin_quote(self.object_id(box, number))]))

    def object_id(self, box: Dead, number: int | str) -> str:
        return "/".join(quote(part, safe="") for part in (box.name, box.subscription, str(number)) if part)

    def shown(self, request: HttpRequest, object_id: str) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        object_id = admin_unquote(object_id)
        name, *subscription, number = map(unquote, object_id.split("/"))
        try:
            box = Dead(name, *subscription[:1])
            letters = list(box.letters([int(number)])) if number.isdigit() else []
        except NotFoundError as e:
            raise Http404(str(e)) from e
        if not letters:
            messages.warning(request, f"{object_id} is not a dead letter any more.")
            return HttpResponseRedirect(dead_of(box.name, box.subscription))
        one = letters[0]
        facts = [(key.replace("_", " "), value) for key, value in one.items() if key not in ("headers", "failures", "error", "payload", "payload_base64")]
        return self.page(
            request,
            "dead_letter",
            {
                "title": f"Dead letter {object_id}",
                "facts": facts,
                "one": one,
                "number": number,
                "notes": [RETRIED] if box.is_queue else [],
                "back": dead_of(box.name, box.subscription),
            },
        )

    def actions_of(self, request: HttpRequest) -> Any:
        def decide(verb: str) -> Any:
            def do(request: HttpRequest, rows: Sequence[str]) -> HttpResponse | None:
                box = self.box(request)
                across = bool(request.POST.get("all"))
                numbers = box.numbers(self.choice(request)) if across and not rows else [int(row) for row in rows if row.isdigit()]
                if (verb == "discard" or across) and not request.POST.get("sure"):
                    ids = [str(n) for n in numbers]
                    return self.page(request, "sure", {"title": "Are you sure?", "verb": verb, "ids": ids, "box": box, "back": request.get_full_path()})
                n = box.retry(numbers) if verb == "retry" else box.discard(numbers)
                self.noted(request, [self.object_id(box, number) for number in numbers], "Retried." if verb == "retry" else "Discarded.")
                messages.success(request, f"{plural(n, 'dead letter')} of {box.name} {'sent back' if verb == 'retry' else 'discarded'}.")
                return None

            return do

        found = {"retry": ("Retry dead letters", decide("retry"))} if self.has_change_permission(request) else {}
        return found | ({"discard": ("Discard dead letters", decide("discard"))} if self.has_delete_permission(request) else {})


@admin.register(Schedule)
class ScheduleAdmin(Page):
    def parts(self, request: HttpRequest) -> dict[str, Any]:
        rows = [
            (
                f"{quote(s['queue'], safe='')}/{quote(s['name'], safe='')}",
                [
                    s["queue"],
                    s["name"],
                    s["cron"],
                    "paused" if s["paused"] else s["next"],
                    s.get("last_job", "-"),
                    *(s[n] or "-" for n in ("kind", "key")),
                    s.get("payload", "(bytes)")[:200],
                ],
            )
            for s in operate.schedules()
        ]
        return {"choosing": table("", "Queue  Schedule  Cron  Next  Last job  Kind  Key  Payload", rows), "empty": "There is no schedule."}

    def actions_of(self, request: HttpRequest) -> Any:
        def drop(request: HttpRequest, rows: Sequence[str]) -> HttpResponse | None:
            if not request.POST.get("sure"):
                return self.page(request, "sure", {"title": "Are you sure?", "verb": "drop", "ids": rows, "back": request.get_full_path()})
            for row in rows:
                queue, _, name = row.partition("/")
                operate.drop_schedule(unquote(queue), unquote(name))
            self.noted(request, rows, "Dropped.")
            messages.success(request, f"{plural(len(rows), 'schedule')} dropped. Jobs that it has enqueued stay.")
            return None

        def act(function: str, done: str) -> Any:
            def do(request: HttpRequest, rows: Sequence[str]) -> None:
                for row in rows:
                    queue, _, name = row.partition("/")
                    operate.on_schedule(function, unquote(queue), unquote(name))
                self.noted(request, rows, done.capitalize() + ".")
                messages.success(request, f"{plural(len(rows), 'schedule')} {done}.")

            return do

        found: dict[str, Any] = {}
        if self.has_change_permission(request):
            found["pause"] = ("Pause schedules", act("pause_schedule", "paused"))
            found["resume"] = ("Resume schedules", act("resume_schedule", "resumed"))
            found["run"] = ("Run schedules now", act("run_schedule", "run"))
        return found | ({"drop": ("Drop schedules", drop)} if self.has_delete_permission(request) else {})
