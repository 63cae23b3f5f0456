#!/usr/bin/env bash
# conformance.sh [--build]: the program that clients/conformance requires of each language.
set -euo pipefail
cd "$(dirname "$0")"

# The sources of the jar and its output: Maven takes ten seconds to see that nothing has changed.
state() {
	java -version 2>&1
	find pom.xml penstock conformance -type f ! -name built-from -print0 | sort -z | xargs -0 sha256sum
}
stamp=conformance/target/built-from

if [[ ${1-} == --build ]]; then
	exec >&2
	command -v mvn >/dev/null && command -v javac >/dev/null || { echo 'Maven and a JDK of version 17 or later are not here'; exit 77; }
	[[ ! -f $stamp || $(<"$stamp") != "$(state)" ]] || exit 0
	rm -rf {penstock,conformance}/target # Maven takes half of an interrupted run's output for all of it
	mvn -B -q -ntp -Dstyle.color=never -pl penstock,conformance resources:resources compiler:compile jar:jar
	state >"$stamp"
	exit
fi
# Many of these programs start on few processors, and none runs for long.
exec java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto -Dorg.jooq.no-logo=true -Dorg.jooq.no-tips=true \
	-cp penstock/target/classes:conformance/target/penstock-conformance-0.1.0.jar io.penstock.conformance.Program
