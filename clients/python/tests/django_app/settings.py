"""A project with two databases: Penstock is in the default one."""

import os
from urllib.parse import urlsplit

url = urlsplit(os.environ.get("DJANGO_TEST_URL", "postgres://localhost/none"))

SECRET_KEY = "tests"
USE_TZ = True
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "penstock.django",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
ROOT_URLCONF = "tests.django_app.urls"
STATIC_URL = "/static/"
ALLOWED_HOSTS = ["testserver"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
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
        "stacks": {"ordering": "lifo", "groups": {"*": {"max_running": 3}, "shop": {"rate": 60, "per": "1 minute", "weight": 2}}},
        "kept": {"keep_done": "1 day", "max_attempts": 2},
    },
    "INBOXES": {"billing": {"keep": "2 days"}},
    "SCHEDULES": {
        "sums": {"task": "tests.django_app.tasks.add", "cron": "TZ=Europe/Berlin 0 4 * * *", "args": [1], "kwargs": {"b": 2}, "key": "k", "skip_overlap": True},
        "digest": {"queue": "stacks", "cron": "@hourly", "kind": "digest", "payload": {"n": 1}},
    },
}
TASKS = {"default": {"BACKEND": "penstock.django.tasks.PenstockBackend", "QUEUES": ["default", "kept"]}}
