#!/usr/bin/env bash
# extras.sh: as root on Debian, installs what a few tests want besides the servers
# (a clock that can be set, a pooler). Elsewhere those tests are skipped and say why.
set -euo pipefail
cd "$(dirname "$0")/.."

mapfile -t missing < <(bin/withservers -missing-extras)
((${#missing[@]} == 0)) || [[ $EUID -ne 0 ]] || ! command -v apt-get >/dev/null || script/apt-install.sh "${missing[@]}"
