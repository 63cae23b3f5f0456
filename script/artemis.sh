#!/usr/bin/env bash
# artemis.sh: fetches Apache ActiveMQ Artemis with Maven, once, and prints its folder. PENSTOCK_CACHE says where to keep it.
set -euo pipefail
cd "$(dirname "$0")/.."

version=${ARTEMIS_VERSION:-2.40.0}
cache=${PENSTOCK_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/penstock}
dir=$cache/apache-artemis-$version
if [[ ! -d $dir ]]; then
	missing=()
	for program in mvn:maven java:openjdk-17-jre-headless unzip:unzip; do
		command -v "${program%:*}" >/dev/null || missing+=("${program#*:}")
	done
	((${#missing[@]} == 0)) || script/apt-install.sh "${missing[@]}" >&2
	mkdir -p "$cache"
	work=$(mktemp -d "$cache/fetch.XXXXXX")
	trap 'rm -rf "$work"' EXIT
	mvn -B -q -Dstyle.color=never dependency:copy -Dartifact="org.apache.activemq:apache-artemis:$version:zip:bin" -DoutputDirectory="$work" >&2
	unzip -q "$work"/*.zip -d "$work"
	mv -T "$work/apache-artemis-$version" "$dir" 2>/dev/null || [[ -d $dir ]] # or another run was first
fi
echo "$dir"
