"""Django's own tests of its task backends, on ours: PENSTOCK_DJANGO_TESTS is the folder `tests` of Django's source."""

from __future__ import annotations

import io
import os
import sys
import unittest
from pathlib import Path
from typing import Any

import pytest

from penstock import testing

# docs/guides/django.md says why
DO_NOT_APPLY = {
    "test_dummy_backend": {"test_refresh_result", "test_refresh_result_async"},
    "test_immediate_backend": {
        "test_cannot_get_result",
        "test_cannot_refresh_result",
        "test_cannot_pass_run_after",
        "test_catches_exception",
        "test_complex_exception",
    },
    "test_tasks": {"test_refresh_result"},
}


def in_place_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts the backend in the place of Django's dummy one, and in that of its immediate one, which runs each job after its enqueue."""
    from django.db import connection
    from django.tasks.backends import dummy, immediate
    from django.test import SimpleTestCase

    from penstock.django import tasks

    class Waiting(tasks.PenstockBackend):
        def __init__(self, alias: str, params: Any) -> None:
            super().__init__(alias, params)
            self.results: list[Any] = []

        def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
            self.results.append(super().enqueue(task, args, kwargs))
            return self.results[-1]

        def clear(self) -> None:
            self.results.clear()
            testing.clear(connection, "default")

    class Immediate(tasks.PenstockBackend):
        def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
            testing.clear(connection, "default")  # a KeyboardInterrupt leaves its job
            result = super().enqueue(task, args, kwargs)
            testing.run_one(connection, "default", tasks.Handlers("default", "worker", None))
            result.refresh()
            return result

    monkeypatch.setattr(dummy, "DummyBackend", Waiting)
    monkeypatch.setattr(immediate, "ImmediateBackend", Immediate)
    monkeypatch.setattr(SimpleTestCase, "databases", {"default"})


def test_djangos_own_tests(project: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = os.environ.get("PENSTOCK_DJANGO_TESTS")
    if not folder:
        pytest.skip("PENSTOCK_DJANGO_TESTS is not set: this Django has no tests of tasks")
    from django.conf import settings

    from penstock.django.schema import create_missing, drop

    monkeypatch.syspath_prepend(folder)
    for name in [name for name in sys.modules if name.split(".")[0] == "tasks"]:
        monkeypatch.delitem(sys.modules, name)
    in_place_of(monkeypatch)
    queues = {**settings.PENSTOCK["QUEUES"], "default": {"max_attempts": 1, "keep_done": "1 day"}}
    monkeypatch.setattr(settings, "PENSTOCK", {**settings.PENSTOCK, "QUEUES": queues})
    drop()
    create_missing()
    log = io.StringIO()
    suite = unittest.defaultTestLoader.discover(str(Path(folder) / "tasks"), top_level_dir=folder)
    ran = unittest.TextTestRunner(log, verbosity=0).run(suite)
    drop()
    monkeypatch.undo()
    create_missing()  # for later tests of this project
    failed: dict[str, set[str]] = {}
    for test, _ in ran.failures + ran.errors:
        module, _, method = getattr(test, "test_case", test).id().removeprefix("tasks.").partition(".")
        failed.setdefault(module, set()).add(method.rpartition(".")[2])
    assert ran.testsRun >= 85 and not ran.skipped, log.getvalue()
    assert failed == DO_NOT_APPLY, log.getvalue()
