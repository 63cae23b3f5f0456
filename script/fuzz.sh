#!/usr/bin/env bash
# fuzz.sh DURATION: runs every fuzz target that long, one after the other.
set -euo pipefail
cd "$(dirname "$0")/.."

mapfile -t targets < <(grep -rnoE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' . | sed -E 's#^(.*)/[^/]*_test\.go:[0-9]+:func (.*)$#\1 \2#' | sort)
for target in "${targets[@]}"; do
	read -r dir name <<<"$target"
	echo "== $dir $name"
	go test -run '^$' -fuzz "^$name\$" -fuzztime "$1" "$dir"
done
