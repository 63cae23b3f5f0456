#!/usr/bin/env bash
# The harness runs this. --build makes a virtual environment with the client in it; without it, this becomes the program.
set -euo pipefail
cd "$(dirname "$0")"
python=${PENSTOCK_PYTHON:-python3}
venv=$PWD/.venv-conformance

if [[ ${1-} == --build ]]; then
  "$python" -c 'import sys, venv; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || { echo "Python 3.10 or newer, with venv, is missing" >&2; exit 77; }
  stamp=$venv/built-from
  now=$("$python" --version; cat pyproject.toml)
  if [[ ! -f $stamp || $(cat "$stamp") != "$now" ]]; then
    rm -rf "$venv"
    if "$python" -m pip --python "$python" --version >/dev/null 2>&1; then # unpacking another pip takes longer than installing the rest
      "$python" -m venv --without-pip "$venv"
      pip=("$python" -m pip --python "$venv/bin/python")
    else
      "$python" -m venv "$venv"
      pip=("$venv/bin/pip")
    fi
    "${pip[@]}" install --quiet --no-compile --disable-pip-version-check 'psycopg[binary]>=3.1' 'asyncpg>=0.29' 'sqlalchemy>=2.0' greenlet
    printf '%s' "$now" > "$stamp"
  fi
  exit
fi
PYTHONPATH=$PWD/src exec "$venv/bin/python" -m penstock.conformance
