#!/usr/bin/env bash
# elasticmq.sh: fetches ElasticMQ, an emulator of SQS, with Maven, once, and prints the folder of its jars. PENSTOCK_CACHE says where to
# keep it.
set -euo pipefail
cd "$(dirname "$0")/.."

version=${ELASTICMQ_VERSION:-1.6.12}
cache=${PENSTOCK_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/penstock}
dir=$cache/elasticmq-$version
if [[ ! -d $dir ]]; then
	missing=()
	command -v mvn >/dev/null || missing+=(maven)
	command -v java >/dev/null || missing+=(openjdk-17-jre-headless)
	((${#missing[@]} == 0)) || script/apt-install.sh "${missing[@]}" >&2
	mkdir -p "$cache"
	work=$(mktemp -d "$cache/fetch.XXXXXX")
	trap 'rm -rf "$work"' EXIT
	mvn -B -q -Dstyle.color=never -f internal/test/awstest/elasticmq/pom.xml -Delasticmq.version="$version" \
		dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$work/jars" >&2
	mv -T "$work/jars" "$dir" 2>/dev/null || [[ -d $dir ]] # or another run was first
fi
echo "$dir"
