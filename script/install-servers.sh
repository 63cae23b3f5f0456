#!/usr/bin/env bash
# install-servers.sh: as root on Debian, installs the servers and tools that the tests need, and
# says which and why. Elsewhere it says what to install, and fails where one is missing without
# which most tests have nothing to run on; in CI it fails for any.
set -euo pipefail
cd "$(dirname "$0")/.."

mkdir -p bin
go build -o bin/withservers ./internal/test/testserver/withservers
needed=$(bin/withservers -missing) extras=$(bin/withservers -missing-extras)
[[ $needed$extras ]] || exit 0
if [[ $needed ]]; then
	printf 'most tests need what is not installed here:\n%s\n' "$(sed 's/^/  /' <<<"$needed")"
fi
if [[ $extras ]]; then
	printf 'some tests need, and are skipped without:\n%s\n' "$(sed 's/^/  /' <<<"$extras")"
fi
mapfile -t packages < <(printf '%s\n' "$needed" "$extras" | cut -f1 | grep .)
script/apt-install.sh "${packages[@]}" || [[ ! $needed && ! ${CI:-} ]]
