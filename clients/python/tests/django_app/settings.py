"""A project with two databases: Penstock is in the default one."""

import os
from urllib.parse import urlsplit

url = urlsplit(os.environ.get("DJANGO_TEST_URL", "postgres://localhost/none"))

SECRET_KEY = "tests"
USE_TZ = True
INSTALLED_APPS = ["django.contrib.contenttypes", "penstock.django"]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": url.path.lstrip("/"),
        "USER": url.username,
        "PASSWORD": url.password or "",
        "HOST": url.hostname,
        "PORT": url.port or "",
    },
    "other": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"},
}
PENSTOCK = {
    "OUTBOXES": ["orders"],
    "QUEUES": {
        "emails": {"max_attempts": 5, "handler": "tests.django_app.jobs.send"},
        "stacks": {"ordering": "lifo"},
        "kept": {"keep_done": "1 day", "max_attempts": 2},
    },
    "INBOXES": {"billing": {"keep": "2 days"}},
}
TASKS = {"default": {"BACKEND": "penstock.django.tasks.PenstockBackend", "QUEUES": ["default", "kept"]}}
