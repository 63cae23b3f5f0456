#!/usr/bin/env bash
# test.sh [Maven's arguments]: builds the jars twice, tests them, and tries the README's commands with the jar, on the server that
# PENSTOCK_TEST_POSTGRES names, or a private one.
set -euo pipefail
cd "$(dirname "$0")"
root=$(cd ../.. && pwd)

if [[ -z ${PENSTOCK_TEST_POSTGRES-} ]]; then
	(cd "$root" && go build -o bin/penstock ./cmd/penstock && go build -o bin/withservers ./internal/test/testserver/withservers)
	exec "$root/bin/withservers" -only postgres "$PWD/test.sh" "$@"
fi
export PENSTOCK_BIN=${PENSTOCK_BIN:-$root/bin/penstock}
maven=(mvn -B -q -ntp -Dstyle.color=never)
if (($#)); then
	exec "${maven[@]}" "$@"
fi
jars() { (cd "$1" && sha256sum */target/*.jar); }
"${maven[@]}" clean verify
# The worker in virtual threads, if a JDK that has them is installed next to the usual one.
later=
for java in /usr/lib/jvm/*/bin/java; do
	version=$("$java" -XshowSettings:properties -version 2>&1 | sed -n 's/.*java.specification.version = //p')
	[[ ! $version =~ ^[0-9]+$ || $version -lt 21 ]] || later=$java
done
if [[ $later ]]; then
	"${maven[@]}" surefire:test -pl penstock -Djvm="$later" -Dtest=WorkTest
	echo "virtual threads: tested with $later"
else
	echo 'virtual threads: skipped, there is no JDK of version 21 or later in /usr/lib/jvm'
fi
first=$(jars .)
"${maven[@]}" clean package -DskipTests
[[ $first == "$(jars .)" ]] || { printf 'two builds differ:\n%s\n%s\n' "$first" "$(jars .)"; exit 1; }
for jar in {penstock,*-starter}/target/*-0.1.0.jar; do
	pom=$(unzip -p "$jar" 'META-INF/maven/*/pom.xml')
	[[ $pom != *'<parent>'* && $pom != *'${'* && $pom == *'<license>'* ]] || { echo "$jar: its POM is not complete"; exit 1; }
done
for jar in {penstock,*-starter}/target/*.jar; do
	jar tf "$jar" | grep -qx META-INF/LICENSE || { echo "$jar lacks its licence"; exit 1; }
done

# The README's first commands, in an empty folder with the jar and a database.
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cp penstock/target/penstock-0.1.0.jar "$folder"
base=${PENSTOCK_TEST_POSTGRES/#postgres:/postgresql:}
user=${base#*://} && user=${user%%@*}
host=${base#*@} && host=${host%%/*}
name=java_readme_$$
psql -qX "$PENSTOCK_TEST_POSTGRES" -c "create database $name"
awk '/^```/ { if (inside) exit; inside = 1; next } inside' README.md |
	sed "s#^export PENSTOCK_DATABASE_URL=.*#export PENSTOCK_DATABASE_URL='postgresql://$host/$name?user=${user%%:*}\&password=${user#*:}\&sslmode=disable'#; s#^java #exec java #" > "$folder/commands.sh"
(cd "$folder" && PATH=$(dirname "$PENSTOCK_BIN"):$PATH exec bash -e commands.sh) > "$folder/out" 2>&1 &
worker=$!
until grep -q '^mail to ann$' "$folder/out"; do
	kill -0 $worker 2> /dev/null || { cat "$folder/out"; echo 'the commands of the README ended'; exit 1; }
	sleep 0.1
done
kill $worker
wait $worker || true
javac -Xlint:all,-processing,-classfile -Werror -d "$folder/classes" -cp "$folder/*" "$folder/Emails.java"
echo 'the commands of the README: a job was done'
guide/test.sh
