#!/usr/bin/env bash
# Builds the package twice, installs the wheel into a new virtual environment and runs everything on it: ruff, mypy, pytest, the README.
# `test.sh` takes the python3 that is there; `test.sh python3.10 python3.13` those. It needs bin/penstock and PENSTOCK_TEST_POSTGRES:
#   make build && bin/withservers -only postgres clients/python/test.sh
set -euo pipefail
cd "$(dirname "$0")"
export PENSTOCK_BIN=${PENSTOCK_BIN:-$(cd ../.. && pwd)/bin/penstock}
: "${PENSTOCK_TEST_POSTGRES:?is the URL of a PostgreSQL server: bin/withservers -only postgres clients/python/test.sh}"

tools=(build 'hatchling>=1.26' pytest mypy ruff asyncpg django django-tasks fastapi greenlet 'psycopg[binary,pool]' sqlalchemy uvicorn)
unset PYTHONPATH # the wheel is tested, not the folder
first=yes
for python in "${@:-python3}"; do
  venv=$PWD/.venv-$("$python" -c 'import platform; print(platform.python_version())')
  if [[ $(cat "$venv/installed" 2>/dev/null) != "${tools[*]}" ]]; then
    rm -rf "$venv"
    "$python" -m venv "$venv"
    "$venv/bin/pip" install --quiet --no-compile --disable-pip-version-check "${tools[@]}"
    echo "${tools[*]}" > "$venv/installed"
  fi
  export PATH=$venv/bin:$PATH
  if [[ $first ]]; then
    files=(src tests hatch_build.py ../../examples/fastapi)
    ruff format --check --quiet --config pyproject.toml "${files[@]}" || { echo "run: ruff format ${files[*]}"; exit 1; }
    ruff check --quiet --config pyproject.toml "${files[@]}"
    build() { rm -rf dist src/penstock/django/schema.sql && "$python" -m build --no-isolation > /dev/null && sha256sum dist/*; }
    before=$(build)
    after=$(build)
    [[ $before == "$after" ]] || { printf 'two builds differ:\n%s\n%s\n' "$before" "$after"; exit 1; }
    names=$("$python" -m zipfile -l dist/*.whl)
    [[ $names == *licenses/LICENSE* && $names == *penstock/py.typed* && $names == *schema.sql* ]] || { echo 'the wheel lacks its licence, py.typed or schema.sql'; exit 1; }
    needs=$("$python" -c 'import glob, zipfile; w = zipfile.ZipFile(glob.glob("dist/*.whl")[0]); print(w.read(next(n for n in w.namelist() if n.endswith("/METADATA"))).decode())')
    [[ $needs == *'sqlalchemy[asyncio]'* ]] || { echo 'the extra [sqlalchemy] lacks greenlet, which [asyncio] brings'; exit 1; }
  fi
  pip install --quiet --disable-pip-version-check --no-deps --force-reinstall dist/*.whl
  [[ -z $first ]] || mypy
  first=
  # Django's own tests of tasks, which only its source has: from Django 6 on, which needs Python 3.12.
  django=$(python -c 'import django; print(django.__version__)')
  source=$venv/django-$django
  export PENSTOCK_DJANGO_TESTS=
  if [[ ${django%%.*} -ge 6 ]]; then
    if [[ ! -d $source ]]; then
      rm -rf "$venv/sdist"
      pip download --quiet --disable-pip-version-check --no-deps --no-binary django --dest "$venv/sdist" "django==$django"
      mkdir "$venv/sdist/source"
      tar -xzf "$venv"/sdist/*.tar.gz -C "$venv/sdist/source" --strip-components=1 --wildcards '*/tests/tasks'
      mv "$venv/sdist/source" "$source"
    fi
    PENSTOCK_DJANGO_TESTS=$source/tests
  fi
  echo "$("$python" --version):"
  python -m pytest -q
done
