"""docs/guides/django.md, followed from an empty folder: every command and every file, in their order. Then mypy checks them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import psycopg

from .conftest import PENSTOCK, ROOT

WAITS = {"penstock_work": "mail to ann", "relay": '"order.placed"'}  # the output after which these commands wait

CHECKED = """
[mypy]
strict = True
exclude = ^\\.venv/|^manage\\.py$|^orders/migrations/
plugins = mypy_django_plugin.main

[mypy.plugins.django-stubs]
django_settings_module = "shop.settings"
"""


def test_guide(server: str, tmp_path: Path) -> None:
    name, url = f"shop_{uuid.uuid4().hex[:12]}", urlsplit(server)
    text = (
        (ROOT / "docs/guides/django.md")
        .read_text()
        .replace("createdb shop", f"createdb {name}")
        .replace(":///shop", f":///{name}")
        .replace('"shop"', f'"{name}"')
    )
    folder = tmp_path / "empty"
    folder.mkdir()
    wheels = tmp_path / "release/python"
    subprocess.run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(wheels), str(ROOT / "clients/python")], check=True)
    # make test-release installs [server]: here it is the program of PENSTOCK_BIN
    text = text.replace("penstock-client[server,django]", "penstock-client[django]")
    blocks: list[tuple[str, str]] = re.findall(r"```(sh|python)\n(.*?)```", text, re.DOTALL)
    assert [language for language, _ in blocks].count("sh") == 7 and len(blocks) == 16
    env = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "DJANGO_SETTINGS_MODULE", "VIRTUAL_ENV")}
    env |= {
        "PATH": f"{folder}/.venv/bin{os.pathsep}{Path(PENSTOCK).parent}{os.pathsep}{env['PATH']}",
        "PGHOST": url.hostname or "",
        "PGPORT": str(url.port or 5432),
        "PGUSER": url.username or "",
    }
    env |= {"PGPASSWORD": unquote(url.password or ""), "PGSSLMODE": parse_qs(url.query).get("sslmode", ["prefer"])[0]}
    try:
        for language, code in blocks:
            if language == "python":
                first = re.match(r"# (at the end of )?(\S+)\n", code)
                assert first
                with (folder / first[2]).open("a" if first[1] else "w") as file:
                    file.write(code)
                continue
            waits = next((line for command, line in WAITS.items() if command in code), None)
            with subprocess.Popen(
                ["bash", "-euc", code], cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
            ) as shell:
                assert shell.stdout
                printed = ""
                for line in shell.stdout:
                    printed += line
                    if waits and waits in line:
                        os.killpg(shell.pid, signal.SIGTERM)
                assert shell.wait() in ((0, -signal.SIGTERM) if waits else (0,)), printed
                assert not waits or waits in printed, printed
                assert "manage.py check" not in code or "no issues" in printed, printed  # it imports urls.py
                assert "manage.py test" not in code or "Ran 5 tests" in printed, printed
        for block in re.findall(r"```text\n(# .*?)```", text, re.DOTALL):
            for path, code in re.findall(r"^# (?:at the end of )?(\S+\.py)\n(.*?)(?=^# \S.*\.py\n|\Z)", block, re.DOTALL | re.MULTILINE):
                with (folder / path).open("a") as file:
                    file.write(code)
        (folder / "mypy.ini").write_text(CHECKED)
        settings = folder / "shop/settings.py"
        settings.write_text(settings.read_text().replace("ALLOWED_HOSTS = []", "ALLOWED_HOSTS: list[str] = []"))  # Django's own line
        for args in (["pip", "install", "--quiet", "mypy", "django-stubs", "django-tasks"], ["mypy", "."]):
            ended = subprocess.run([folder / ".venv/bin/python", "-m", *args], check=False, cwd=folder, env=env, capture_output=True, text=True)
            assert ended.returncode == 0, ended.stdout + ended.stderr
    finally:
        with psycopg.connect(server, autocommit=True) as conn:
            conn.execute(f'drop database if exists "{name}" with (force)')
            conn.execute(f'drop database if exists "test_{name}" with (force)')
