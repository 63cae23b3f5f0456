"""What operators see and decide under Django: by commands, and in the admin."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from html import unescape
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

import psycopg
import pytest

import penstock
from penstock import testing

from .conftest import PENSTOCK, manage, rows, until
from .conftest import penstock as program


class Refuses(BaseHTTPRequestHandler):
    """A webhook for which every message is malformed."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(400)
        self.end_headers()

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture(scope="module")
def refused(project: str) -> str:
    """An outbox with three dead letters of the subscription billing. A fourth message committed late, and a fifth was published after the relay."""
    server = HTTPServer(("127.0.0.1", 0), Refuses)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sink = f"http://127.0.0.1:{server.server_port}/#allow_private=true"
    with psycopg.connect(project, autocommit=True) as conn, psycopg.connect(project) as late:
        conn.execute("select penstock.create_outbox('refused')")
        penstock.publish(late, "refused", "late")
        penstock.publish_many(conn, "refused", [penstock.Message(f"message {n}", key=f"k{n}", topic="t", headers={"a": "b"}) for n in range(3)])
        relay = [PENSTOCK, "relay", "--database-url", project, "--outbox", "refused", "--subscription", "billing", "--sink", sink]
        with subprocess.Popen(relay, stderr=subprocess.DEVNULL) as running:
            until(lambda: rows(conn, "select count(*) from penstock._dead_letter") == [(3,)])
            running.send_signal(signal.SIGTERM)
            assert running.wait(60) == 0
        late.commit()
        penstock.publish(conn, "refused", "waits")
    server.shutdown()
    server.server_close()
    return "refused"


@pytest.fixture
def conn(project: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(project, autocommit=True) as made:
        testing.clear(made, "emails")
        yield made
        made.execute("select penstock.resume_queue('emails')")
        made.execute("select penstock.unschedule(q.name, s.name) from penstock._schedule s join penstock._queue q on q.id = s.queue where q.name = 'emails'")
        testing.clear(made, "emails")


@pytest.fixture
def dead(conn: psycopg.Connection) -> list[int]:
    """Three dead letters of the queue emails: two with one first line of error, and one of another kind with bytes. One job waits, one runs."""
    kinds = ["welcome", "welcome", "bill", "later", "runs"]
    payloads: list[object] = [{"to": "ann"}, {"to": "<b>bob</b>"}, b"\xff\x00", "x", "y"]
    penstock.enqueue_many(conn, "emails", [penstock.NewJob(p, kind=k, key=f"k{n}") for n, (k, p) in enumerate(zip(kinds, payloads, strict=True))])
    found = rows(conn, "select id, lease from penstock.claim('emails', 3, '1 h', worker => 'host/1')")
    for (_, lease), error in zip(found, ("SMTPError: <no>\nline 1", "SMTPError: <no>\nline 2", "ValueError"), strict=True):
        conn.execute("select penstock.dead_letter('emails', %s, %s)", [lease, error])
    conn.execute("select from penstock.claim('emails', 1, '1 h', worker => 'host/2')")
    conn.execute("select penstock.schedule('emails', 'nightly', '0 4 * * *', '{\"n\": 1}'::jsonb, kind => 'digest')")
    return [id_ for id_, _ in found]  # type: ignore[misc]


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_status_has_the_figures_of_the_program(project: str, refused: str, conn: psycopg.Connection, dead: list[int]) -> None:
    penstock.enqueue_many(conn, "default", [penstock.NewJob(str(n)) for n in range(20)])
    rows(conn, "select from penstock.ack_claim('default', '{}', 20, worker => 'host/3')")  # they share a row
    mine = json.loads(manage("penstock_status", "--json"))
    theirs = json.loads(program("status", "--json", "--database-url", project))
    for kind, name in (("queues", "queue"), ("outboxes", "outbox"), ("inboxes", "consumer")):
        assert [one[name] for one in mine[kind]] == [one[name] for one in theirs[kind]]
    of_queues = ("order", "paused", "max_attempts", "max_running", "ready", "running", "delayed", "waiting", "dead_letters")
    for ours, of in zip(mine["queues"], theirs["queues"], strict=True):
        assert {n: ours[n] for n in of_queues} == {n: of[n] for n in of_queues}
    [ours] = [s for o in mine["outboxes"] for s in o["subscriptions"] if o["outbox"] == refused]
    [of] = [s for o in theirs["outboxes"] for s in o["subscriptions"] if o["outbox"] == refused]
    of_outboxes = ("subscription", "backlog", "parked", "dead_letters", "epoch")
    assert {n: ours[n] for n in of_outboxes} == {n: of[n] for n in of_outboxes}
    assert (ours["backlog"], ours["dead_letters"]) == (2, 3) and ours["oldest_age_ns"] > 0
    [emails] = [q for q in mine["queues"] if q["queue"] == "emails"]
    assert (emails["ready"], emails["running"], emails["dead_letters"]) == (1, 1, 3)
    assert [(q["queue"], w["worker"], w["running"]) for q in mine["queues"] for w in q["workers"]] == [("default", "host/3", 20), ("emails", "host/2", 1)]
    testing.clear(conn, "default")
    [schedule] = emails["schedules"]
    theirs = json.loads(program("schedule", "list", "emails", "--json", "--database-url", project))
    assert schedule == {n: value for n, value in theirs.items() if n not in ("queue", "headers")}


@pytest.mark.parametrize(
    ("change", "backlog"),
    [
        ({"low": "4"}, 2),
        ({"low": "4", "ahead": "'{[1,2)}'"}, 1),
        ({"done": "'3:3:'", "low": "0", "upto": "pg_current_snapshot()", "upto_low": "5", "pos": "3"}, 2),
        ({"done": "'3:3:'", "low": "0", "upto": "h.done", "upto_low": "4", "pos": "3"}, 3),
        ({"done": "'3:3:'", "low": "0", "ahead": "'{[2,4)}'"}, 3),
    ],
)
def test_backlogs_have_the_figures_of_the_program(project: str, refused: str, conn: psycopg.Connection, change: dict[str, str], backlog: int) -> None:
    """At any place where a cursor can be: with transactions in flight, in the middle of a page, and with messages settled ahead."""
    columns = ["subscription", "epoch", "lease_until", "since", "low", "upto_low", "pos", "settled", "system", "timeline", "holder", "done", "upto", "ahead"]
    made = ", ".join(change.get(name, f"h.{name}") for name in columns)
    [(n,)] = rows(
        conn,
        f"insert into penstock._cursor ({', '.join(columns)}) select {made} from penstock._subscription s, penstock._head(s.id) h"
        " where s.outbox = %s returning n",
        refused,
    )
    try:
        for text in (manage("penstock_status", refused, "--json"), program("status", refused, "--json", "--database-url", project)):
            [outbox] = json.loads(text)["outboxes"]
            assert outbox["subscriptions"][0]["backlog"] == backlog
    finally:
        conn.execute("delete from penstock._cursor where n = %s", [n])


def test_status_for_people(project: str, refused: str, conn: psycopg.Connection, dead: list[int]) -> None:
    from django.core.management.base import CommandError

    conn.execute("select penstock.pause_queue('stacks')")
    text = manage("penstock_status")
    words = [line.split() for line in text.splitlines()]
    assert ["refused", "billing", "2", "0", "3", "-"] in [[*line[:3], *line[4:]] for line in words], text
    assert ["emails", "1", "1", "0", "0", "3"] in [[*line[:2], *line[3:]] for line in words], text
    assert ["emails", "host/2", "1"] in [line[:3] for line in words]
    assert ["emails", "nightly", "0", "4"] in [line[:4] for line in words]
    assert "emails: 3 dead letters to retry or to discard: manage.py penstock_dead list emails\n" in text
    assert "refused, billing: no relay runs, and 2 messages wait: penstock relay --database-url" in text
    assert "\norders: no relay has ever run for it, and its messages wait: penstock relay --database-url" in text
    [told] = [line for line in text.splitlines() if "no relay runs" in line]
    command = shlex.split(told.partition(": penstock ")[2].replace("--sink URL", "--sink stdout"))
    environment = os.environ | {"PGPASSWORD": unquote(urlsplit(project).password or "")}
    with subprocess.Popen([PENSTOCK, *command], env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as relay:
        assert relay.stdout
        [printed] = [json.loads(relay.stdout.readline())]
        relay.kill()
    assert "payload" in printed, "the command runs as it is printed"
    assert "stacks: it is paused" in text
    conn.execute("select penstock.resume_queue('stacks')")
    only = manage("penstock_status", "emails")
    assert "emails" in only and "refused" not in only and "stacks" not in only
    with pytest.raises(CommandError, match="no outbox and no queue 'x'"):
        manage("penstock_status", "x")


def test_a_killed_worker_is_no_worker(project: str, conn: psycopg.Connection) -> None:
    """Its lease has ended and no maintenance has run since: three jobs are ready, and nothing works on them."""
    penstock.enqueue_many(conn, "emails", [penstock.NewJob(str(n)) for n in range(4)])
    conn.execute("select from penstock.claim('emails', 1, '1 h', worker => 'killed/1')")
    conn.execute("update penstock.emails set created_at = created_at - interval '1 minute'")
    assert "no worker seems to run" not in manage("penstock_status", "emails")
    conn.execute("update penstock._lease set lease_until = clock_timestamp()")
    assert "emails: no worker seems to run, and 3 jobs are ready: manage.py penstock_work emails" in manage("penstock_status", "emails")
    assert "killed/1" not in manage("penstock_status", "emails")
    assert json.loads(manage("penstock_status", "emails", "--json"))["queues"][0]["workers"] == []


def test_jobs_of_groups_that_no_worker_takes(conn: psycopg.Connection) -> None:
    """A worker takes no jobs of groups unless its flags name them. Where one lives that takes others, the groups are named."""

    def told() -> str:
        conn.execute("update penstock.emails set created_at = created_at - interval '1 minute'")
        [note] = [line for line in manage("penstock_status", "emails").splitlines() if line.startswith("emails: ")]
        assert note.partition(": manage.py")[0] in unescape(body(client_of(superuser=True).get(QUEUES)))
        return note

    penstock.enqueue_many(conn, "emails", [penstock.NewJob("x", group_key="a b") for _ in range(2)])
    assert told() == "emails: no worker seems to run, and 2 jobs are ready: manage.py penstock_work emails --all-groups"
    conn.execute("select penstock.report('emails', 0, %s)", ['{"worker": "w/1"}'])
    assert told() == "emails: no worker seems to take jobs of group a b, and 2 jobs are ready: manage.py penstock_work emails --group 'a b'"
    penstock.enqueue(conn, "emails", "x", group_key="globex")
    most = "emails: no worker seems to take jobs of 2 groups, such as globex, and 3 jobs are ready: manage.py penstock_work emails --all-groups"
    assert told() == most
    queue = penstock.Queue(conn, "emails")
    try:
        queue.hold_group("a b", 3600)
        assert "take jobs of group globex, and" in told()
        queue.hold_group("globex", 3600)
        assert "emails: a hold or a limit keeps jobs of group a b: penstock queue group list --database-url" in told()
    finally:
        for group in ("a b", "globex"):
            queue.hold_group(group, 0)
    conn.execute("select penstock.report('emails', 0, %s)", ['{"worker": "w/1", "stopped": true}'])
    assert "no worker seems to run, and" in told()


def test_more_than_is_counted(conn: psycopg.Connection, dead: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    penstock.enqueue_many(conn, "emails", [penstock.NewJob(str(n)) for n in range(1001)])
    [emails] = json.loads(manage("penstock_status", "emails", "--json"))["queues"]
    assert (emails["ready"], emails["at_least"]) == (1000, ["ready"])
    assert " 1,000+ " in manage("penstock_status", "emails")
    [emails] = json.loads(manage("penstock_status", "emails", "--json", "--exact"))["queues"]
    assert emails["ready"] == 1002 and "at_least" not in emails


def test_dead_letters_of_a_queue(project: str, conn: psycopg.Connection, dead: list[int]) -> None:
    listed = manage("penstock_dead", "list", "emails", "--json")
    assert [without_times(one) for one in lines(listed)] == [
        without_times(one) for one in lines(program("dead", "list", "emails", "--json", "--database-url", project))
    ]
    for id_ in dead:
        shown = lines(manage("penstock_dead", "show", "emails", str(id_), "--json"))
        assert [without_times(one) for one in shown] == [
            without_times(one) for one in lines(program("dead", "show", "emails", str(id_), "--json", "--database-url", project))
        ]

    def chosen(*flags: str) -> list[int]:
        return [one["id"] for one in lines(manage("penstock_dead", "list", "emails", "--json", *flags))]

    assert chosen("--kind", "welcome") == dead[:2]
    assert chosen("--error", "line 2") == dead[1:2]
    assert chosen("--kind", "bill", "--error", "SMTP") == []
    assert chosen("--key", "k0") == dead[:1]
    assert chosen("--newer-than", "1h", "--limit", "2") == dead[:2]
    assert chosen("--older-than", "1h") == []
    people = manage("penstock_dead", "list", "emails")
    assert people.splitlines()[0].split() == ["ID", "KIND", "KEY", "GROUP", "ATTEMPTS", "AGE", "ERROR"]
    assert "SMTPError: <no>\n" in people  # the first line
    text = manage("penstock_dead", "show", "emails", str(dead[0]))
    assert "SMTPError: <no>\n               line 1\n" in text
    assert '{"to": "ann"}' in text and f"manage.py penstock_dead retry emails --id {dead[0]}\n" in text
    assert manage("penstock_dead", "list", "stacks") == "0 dead letters of stacks.\n"


def without_times(one: dict[str, Any]) -> dict[str, Any]:
    """Python's times have milliseconds, and Go's microseconds."""
    return one | {"created_at": one["created_at"][:23], "died_at": one["died_at"][:23], "failures": [f | {"at": f["at"][:19]} for f in one["failures"]]}


def test_what_is_decided_about_jobs(conn: psycopg.Connection, dead: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    assert manage("penstock_dead", "retry", "emails", "--kind", "welcome") == "2 dead letters of emails retried.\n"
    assert rows(conn, "select id from penstock._dead_job") == [(dead[2],)]
    waiting = rows(conn, "select id, attempt from penstock.claim('emails', 10)")
    assert {(dead[0], 2), (dead[1], 2)} <= set(waiting)
    assert lines(manage("penstock_dead", "discard", "emails", str(dead[2]), "--json")) == [{"queue": "emails", "discarded": 1}]
    assert rows(conn, "select from penstock._dead_job") == []


def test_what_is_not_done_by_accident(conn: psycopg.Connection, dead: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    from django.core.management.base import CommandError

    for args, says in (
        (("retry", "emails"), "say which"),
        (("discard", "emails"), "say which"),
        (("discard", "emails", "--kind", "welcome"), "pass --yes"),
        (("retry", "emails", "--all"), "pass --yes"),
        (("retry", "emails", "--all", "--kind", "welcome"), "one of them"),
        (("discard", "emails", "--id", str(dead[0]), "--id", "99"), "no such dead letter: 99"),
        (("discard", "emails", "--topic", "t"), "--topic chooses among messages"),
        (("discard", "emails", "--limit", "0"), "--limit is 0"),
        (("show", "emails", "99"), "no such dead letter: 99"),
        (("show", "emails"), "give the ID"),
        (("list", "missing"), "no queue and no outbox 'missing'"),
        (("list", "orders"), "which subscription"),
        (("list", "emails", "--older-than", "1 year"), "not a duration"),
    ):
        with pytest.raises(CommandError, match=says):
            manage("penstock_dead", *args)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda question: "n" if "3 dead letters of emails" in question else "y")
    with pytest.raises(CommandError, match="nothing was discarded"):
        manage("penstock_dead", "discard", "emails", "--all")
    assert len(rows(conn, "select from penstock._dead_job")) == 3
    assert "2 dead letters" in manage("penstock_dead", "discard", "emails", "--kind", "welcome")
    assert manage("penstock_dead", "retry", "emails", "--all", "--yes") == "1 dead letter of emails retried.\n"


def test_dead_letters_of_an_outbox(project: str, refused: str, conn: psycopg.Connection) -> None:
    listed = lines(manage("penstock_dead", "list", refused, "--json"))
    assert [without_times(one) for one in listed] == [
        without_times(one) for one in lines(program("dead", "list", refused, "--json", "--database-url", project))
    ]
    first, second, third = listed
    assert manage("penstock_dead", "list", refused).splitlines()[0].split() == ["SEQ", "ID", "KEY", "TOPIC", "ATTEMPTS", "AGE", "ERROR"]
    shown = manage("penstock_dead", "show", refused, "--seq", str(first["seq"]))
    assert "message 0" in shown and f"retry {refused} --seq {first['seq']} --subscription billing" in shown
    assert lines(manage("penstock_dead", "retry", refused, "--key", "k0", "--json")) == [{"outbox": refused, "subscription": "billing", "retried": 1}]
    assert rows(conn, "select seq from penstock._dead_letter where retry") == [(first["seq"],)]
    assert manage("penstock_dead", "discard", refused, "--id", second["id"], "--subscription", "billing") == f"1 dead letter of {refused} discarded.\n"
    left = lines(program("dead", "list", refused, "--json", "--database-url", project))
    assert [one["seq"] for one in left] == [third["seq"]]


# The admin

DEAD = "/admin/penstock/deadletter/"
QUEUES = "/admin/penstock/queue/"
SCHEDULES = "/admin/penstock/schedule/"


def client_of(*permissions: str, superuser: bool = False) -> Any:
    """A browser in which a member of the staff with these permissions has logged in. It checks CSRF tokens."""
    from django.contrib.auth.models import Permission, User
    from django.test import Client

    name = "+".join(permissions) or "super" * superuser or "none"
    user, _ = User.objects.get_or_create(username=name, defaults={"is_staff": True, "is_superuser": superuser})
    user.user_permissions.set(Permission.objects.filter(content_type__app_label="penstock", codename__in=permissions))
    assert user.user_permissions.count() == len(permissions)
    client = Client(enforce_csrf_checks=True)
    client.force_login(user)
    return client


def post(client: Any, url: str, page: str = "", **data: Any) -> Any:
    """What a form of the page would send: with its token. Follows the answer."""
    token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', client.get(page or url).content.decode())
    assert token
    return client.post(url, {**data, "csrfmiddlewaretoken": token[1]}, follow=True)


def body(answer: Any) -> str:
    assert answer.status_code == 200, answer.content.decode()
    return str(answer.content.decode())


def test_admin_shows_queues_and_outboxes(refused: str, conn: psycopg.Connection, dead: list[int]) -> None:
    client = client_of(superuser=True)
    index = body(client.get("/admin/"))
    for url in (QUEUES, DEAD, SCHEDULES):
        assert f'href="{url}"' in index
    assert f'href="{QUEUES}add/"' not in index
    page = body(client.get(QUEUES))
    assert f'<a href="{DEAD}?of=emails">3</a>' in page
    assert f'<a href="{DEAD}?of={refused}&amp;subscription=billing">' in page
    assert "host/2" in page and "dead letters to retry or to discard" in page
    assert "penstock_dead" not in page, "the pages do that"
    penstock.enqueue(conn, "stacks", "x")
    conn.execute("update penstock.stacks set created_at = created_at - interval '1 minute'")
    assert "1 job is ready: manage.py penstock_work stacks" in body(client.get(QUEUES))
    testing.clear(conn, "stacks")
    assert "(none)" in page  # orders, which has no subscription
    assert "2 queues paused" in body(post(client, QUEUES, action="pause", row=["emails", "stacks"]))
    assert rows(conn, "select name from penstock._queue where paused order by 1") == [("emails",), ("stacks",)]
    assert "emails (paused)" in body(client.get(QUEUES))
    assert "2 queues resumed" in body(post(client, QUEUES, action="resume", row=["emails", "stacks"]))
    assert rows(conn, "select name from penstock._queue where paused") == []
    assert "Choose rows first" in body(post(client, QUEUES, action="pause"))
    assert f'href="{QUEUES}' in body(client.get("/admin/")), "the history of the index leads to no page that is not there"


def test_admin_lists_and_filters_dead_letters(conn: psycopg.Connection, dead: list[int]) -> None:
    client = client_of(superuser=True)
    assert f'<a href="{DEAD}?of=emails">emails</a>' in body(client.get(DEAD))
    page = body(client.get(f"{DEAD}?of=emails"))
    assert [f'value="{id_}"' in page for id_ in dead] == [True] * 3
    assert "SMTPError: &lt;no&gt;" in page and "<no>" not in page and "line 1" not in page
    assert "it has one more" in page
    links = dict(re.findall(r'<a href="([^"]+)">([^<]+ \(\d\)|welcome|bill)</a>', page))
    assert sorted(links.values()) == ["SMTPError: &lt;no&gt; (2)", "ValueError (1)", "bill", "welcome"]
    for link, label in links.items():
        chosen = body(client.get(DEAD + link.replace("&amp;", "&").removeprefix(DEAD)))
        wanted = dead[:2] if label in ("welcome", "SMTPError: &lt;no&gt; (2)") else dead[2:]
        assert re.findall(r'name="row" value="(\d+)"', chosen) == [str(id_) for id_ in wanted], label
    assert re.findall(r'name="row" value="(\d+)"', body(client.get(f"{DEAD}?of=emails&q=line+2"))) == [str(dead[1])]
    assert "No dead letter matches" in body(client.get(f"{DEAD}?of=emails&q=nothing"))
    assert client.get(f"{DEAD}?of=missing").status_code == 404
    assert client.get(f"{DEAD}missing/1").status_code == 404


def test_admin_shows_a_dead_letter(refused: str, conn: psycopg.Connection, dead: list[int]) -> None:
    client = client_of(superuser=True)
    [link] = re.findall(rf'<a href="([^"]+)">{dead[1]}</a>', body(client.get(f"{DEAD}?of=emails")))
    page = body(client.get(link))
    assert "{&quot;to&quot;: &quot;&lt;b&gt;bob&lt;/b&gt;&quot;}" in page and "line 2" in page and "welcome" in page
    assert "it has one more" in page
    assert "/wA=" in body(client.get(link.replace(f"_2F{dead[1]}", f"_2F{dead[2]}")))
    back = f"{DEAD}?of=emails"
    assert "1 dead letter of emails sent back" in body(post(client, back, link, action="retry", row=dead[1]))
    assert "is not a dead letter any more" in body(client.get(link, follow=True))
    seqs = re.findall(r'name="row" value="(\d+)"', body(client.get(f"{DEAD}?of={refused}&subscription=billing")))
    [link] = re.findall(rf'<a href="([^"]+)">{seqs[-1]}</a>', body(client.get(f"{DEAD}?of={refused}&subscription=billing")))
    assert "message" in body(client.get(link)) and "it has one more" not in body(client.get(link))


def test_admin_decides(conn: psycopg.Connection, dead: list[int]) -> None:
    from django.contrib.admin.models import LogEntry

    LogEntry.objects.all().delete()
    client, of = client_of(superuser=True), f"{DEAD}?of=emails"
    sure = body(post(client, of, action="discard", row=dead[:1]))
    assert "Discard 1 of emails?" in sure and len(rows(conn, "select from penstock._dead_job")) == 3
    assert "1 dead letter of emails discarded" in body(post(client, of, action="discard", row=dead[:1], sure="1"))
    assert rows(conn, "select id from penstock._dead_job order by 1") == [(dead[1],), (dead[2],)]
    asked = body(post(client, f"{of}&kind=bill", action="retry", all="1"))
    assert re.findall(r'name="row" value="(\d+)"', asked) == [str(dead[2])], "those that match the filter"
    assert "1 dead letter of emails sent back" in body(post(client, of, action="retry", row=[dead[2]], sure="1"))
    assert rows(conn, "select id from penstock._dead_job") == [(dead[1],)]
    noted = [(entry.object_id, entry.get_change_message()) for entry in LogEntry.objects.order_by("id")]
    assert noted == [(f"emails/{dead[0]}", "Discarded."), (f"emails/{dead[2]}", "Retried.")]
    assert client.get("/admin/").status_code == 200


def test_admin_has_pages(conn: psycopg.Connection, dead: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.django.admin.PAGE", 2)
    client = client_of(superuser=True)
    first = body(client.get(f"{DEAD}?of=emails"))
    assert re.findall(r'name="row" value="(\d+)"', first) == [str(id_) for id_ in dead[:2]] and "all 3 that match" in first
    [link] = re.findall(r'<a href="([^"]+)">Next page', first)
    second = body(client.get(link.replace("&amp;", "&")))
    assert re.findall(r'name="row" value="(\d+)"', second) == [str(dead[2])] and "Next page" not in second


def test_admin_schedules(conn: psycopg.Connection, dead: list[int]) -> None:
    conn.execute("select penstock.schedule('emails', 'a/b', '@hourly', 'x')")
    client = client_of(superuser=True)
    page = body(client.get(SCHEDULES))
    assert "nightly" in page and "0 4 * * *" in page and "digest" in page
    for action, paused in (("pause", True), ("resume", False)):
        assert f"1 schedule {action}d" in body(post(client, SCHEDULES, action=action, row="emails/a%2Fb"))
        assert rows(conn, "select paused from penstock._schedule where name = 'a/b'") == [(paused,)]
    assert "1 schedule run" in body(post(client, SCHEDULES, action="run", row="emails/a%2Fb"))
    assert rows(conn, "select last_job is null from penstock._schedule where name = 'a/b'") == [(False,)]
    conn.execute("select penstock.cancel('emails', array[last_job]) from penstock._schedule where name = 'a/b'")
    assert "Drop 1" in body(post(client, SCHEDULES, action="drop", row="emails/a%2Fb"))
    assert "1 schedule dropped" in body(post(client, SCHEDULES, action="drop", row="emails/a%2Fb", sure="1"))
    assert rows(conn, "select name from penstock._schedule order by 1") == [("digest",), ("nightly",), ("sums",)]


def test_admin_permissions(conn: psycopg.Connection, dead: list[int]) -> None:
    from django.test import Client

    assert Client().get(DEAD).status_code == 302
    none = client_of()
    for url in (QUEUES, DEAD, f"{DEAD}?of=emails", f"{DEAD}emails_2F{dead[0]}", SCHEDULES):
        assert none.get(url).status_code == 403, url
    of = f"{DEAD}?of=emails"
    reader = client_of("view_deadletter", "view_queue", "view_schedule")
    for url in (of, QUEUES, SCHEDULES, f"{DEAD}emails_2F{dead[0]}"):
        page = body(reader.get(url))
        assert 'name="action"' not in page, url
    retrier = client_of("view_deadletter", "change_deadletter")
    page = body(retrier.get(of))
    assert 'value="retry"' in page and 'value="discard"' not in page
    for client, url, data in (
        (reader, of, {"action": "retry", "row": dead[0]}),
        (reader, of, {"action": "discard", "row": dead[0], "sure": "1"}),
        (retrier, of, {"action": "discard", "row": dead[0], "sure": "1"}),
        (reader, QUEUES, {"action": "pause", "row": "emails"}),
        (reader, SCHEDULES, {"action": "drop", "row": "emails/nightly", "sure": "1"}),
    ):
        assert post(client, url, of if client is retrier else QUEUES, **data).status_code == 403, (url, data)
    assert len(rows(conn, "select from penstock._dead_job")) == 3
    assert rows(conn, "select paused from penstock._queue where name = 'emails'") == [(False,)]
    assert "sent back" in body(post(retrier, of, action="retry", row=dead[0]))
    assert reader.post(of, {"action": "retry", "row": dead[1]}).status_code == 403, "no token"


def test_on_sqlite_they_name_the_program(project: str) -> None:
    from django.core.management.base import CommandError
    from django.test import override_settings

    client = client_of(superuser=True)
    with override_settings(PENSTOCK={"DATABASE": "other"}):
        for args in (("penstock_status",), ("penstock_dead", "list", "emails")):
            with pytest.raises(CommandError, match=r"other is sqlite.*penstock status --database-url sqlite:FILE"):
                manage(*args)
        for url in (QUEUES, DEAD, SCHEDULES):
            assert "penstock status --database-url sqlite:FILE" in body(client.get(url))


def test_a_role_sees_what_it_may(conn: psycopg.Connection, dead: list[int], project: str) -> None:
    role = f"operator_{uuid.uuid4().hex[:8]}"
    url = urlsplit(project)
    env = os.environ | {"DJANGO_TEST_URL": urlunsplit(url._replace(netloc=f"{role}:o@{url.hostname}:{url.port}"))}

    def run(*args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, *args], check=False, env=env, capture_output=True, text=True)

    def status(*args: str) -> subprocess.CompletedProcess[str]:
        return run("-m", "django", "penstock_status", *args)

    conn.execute(f"create role {role} login password 'o'; grant usage on schema penstock to {role}".encode())
    try:
        none = status()
        assert (
            none.returncode == 1
            and none.stderr.count("penstock queue grant") == 1
            and "penstock queue grant QUEUE ROLE --operate" in none.stderr
            and "Traceback" not in none.stderr
        ), none.stderr
        conn.execute(f"select penstock.grant_operator('emails', '{role}')".encode())
        some = status()
        assert some.returncode == 0 and re.search(r"^emails +\d", some.stdout, re.MULTILINE), some
        assert "outboxes and inboxes: this role may not read them" in some.stdout and "queue default and 2 more: this role may not read it" in some.stdout, (
            some.stdout
        )
        assert [q["queue"] for q in json.loads(status("--json").stdout)["queues"]] == ["emails"]
        pages = "import django; django.setup(); from penstock.django.operate import boxes, schedules; print(boxes()); schedules()"
        last = run("-c", pages)
        assert last.stdout == "[('emails', '', 3)]\n" and "schedules need the role that owns the schema" in last.stderr, last
    finally:
        conn.execute(f"drop owned by {role}; drop role {role}".encode())
