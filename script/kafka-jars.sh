#!/usr/bin/env bash
# kafka-jars.sh: fetches an Apache Kafka broker with Maven, once, and prints the
# folder of its jars. KAFKA_VERSION chooses another than the default, and
# PENSTOCK_CACHE says where to keep it.
set -euo pipefail
cd "$(dirname "$0")/.."

version=${KAFKA_VERSION:-4.1.0}
cache=${PENSTOCK_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/penstock}
dir=$cache/kafka-$version
if [[ ! -d $dir ]]; then
	missing=()
	command -v mvn >/dev/null || missing+=(maven)
	command -v java >/dev/null || missing+=(openjdk-17-jre-headless)
	((${#missing[@]} == 0)) || script/apt-install.sh "${missing[@]}" >&2
	mkdir -p "$cache"
	work=$(mktemp -d "$cache/fetch.XXXXXX")
	trap 'rm -rf "$work"' EXIT
	mvn -B -q -Dstyle.color=never -f internal/test/testserver/kafka/pom.xml -Dkafka.version="$version" \
		dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$work/jars" >&2
	mv -T "$work/jars" "$dir" 2>/dev/null || [[ -d $dir ]] # or another run was first
fi
echo "$dir"
