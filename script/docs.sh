#!/usr/bin/env bash
# docs.sh: build the site of the documentation into bin/docs. The first time it installs what that needs, from PyPI and npm, into
# bin/docs-tools; from then on it needs no network.
set -euo pipefail
cd "$(dirname "$0")/.."

tools=bin/docs-tools
want=$(cat script/docs/requirements.txt script/docs/package-lock.json | cksum)
if [[ $(cat $tools/installed 2>/dev/null) != "$want" ]]; then
	rm -rf $tools
	python3 -m venv $tools
	$tools/bin/pip install --quiet --disable-pip-version-check -r script/docs/requirements.txt
	cp script/docs/package.json script/docs/package-lock.json $tools
	npm ci --prefix $tools --silent --no-audit --no-fund --ignore-scripts
	printf '%s\n' "$want" >$tools/installed
fi
$tools/bin/mkdocs build "$@"
echo 'bin/docs/index.html'
