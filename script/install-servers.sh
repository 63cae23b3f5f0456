#!/usr/bin/env bash
# install-servers.sh: as root on Debian, installs what the tests need and is not there.
set -euo pipefail
cd "$(dirname "$0")/.."

mkdir -p bin
go build -o bin/withservers ./internal/testserver/withservers
mapfile -t missing < <(bin/withservers -missing)
((${#missing[@]} == 0)) || script/apt-install.sh "${missing[@]}"
script/extras.sh
