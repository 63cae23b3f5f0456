#!/usr/bin/env bash
# bench.sh [--quick] [--part all|drain|steady|pinned] [--most SECONDS]: penstock's client for Java on one PostgreSQL:
# the one that PENSTOCK_TEST_POSTGRES names, or a private one that waits for the disk at every commit. Prints one JSON line. --most limits the time of --part
# drain.
set -euo pipefail
cd "$(dirname "$0")"
root=$(cd ../../.. && pwd)
if [[ -z ${PENSTOCK_TEST_POSTGRES-} ]]; then
	(cd "$root" && go build -o bin/penstock ./cmd/penstock && go build -o bin/withservers ./internal/test/testserver/withservers)
	exec "$root/bin/withservers" -durable -only postgres "$PWD/bench.sh" "$@"
fi
export PENSTOCK_BIN=${PENSTOCK_BIN:-$root/bin/penstock}
../../java/conformance.sh --build
[[ target/classpath -nt pom.xml ]] || mvn -B -q -ntp -Dstyle.color=never dependency:build-classpath -Dmdep.outputFile=target/classpath
classpath=target:../../java/penstock/target/classes:$(cat target/classpath)
javac -d target -cp "$classpath" Bench.java
exec java -cp "$classpath" Bench "$@"
