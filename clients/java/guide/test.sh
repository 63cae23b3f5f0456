#!/usr/bin/env bash
# docs/guides/spring-boot.md, followed from an empty folder: its files and its commands, with the starter as Maven installs it. clients/java/test.sh
# calls it, with the server that PENSTOCK_TEST_POSTGRES names and the program PENSTOCK_BIN.
set -euo pipefail
cd "$(dirname "$0")"
here=$PWD guide=$PWD/../../../docs/guides/spring-boot.md
dir=$(mktemp -d)
shop=
database=java_guide_$$
psql() { PGOPTIONS=--client-min-messages=warning command psql -qXAt "$@"; }
end() {
	[[ ! $shop ]] || { kill $shop && wait $shop || true; } 2> /dev/null
	psql "$PENSTOCK_TEST_POSTGRES" -c "drop database if exists $database with (force)" -c "drop database if exists ${database}_test with (force)" -c "drop role if exists shop_app_$$" || true
	rm -rf "$dir"
}
trap end EXIT
psql "$PENSTOCK_TEST_POSTGRES" -c "create database $database" -c "create database ${database}_test"
base=${PENSTOCK_TEST_POSTGRES#*://} user=${PENSTOCK_TEST_POSTGRES#*://}
user=${user%%@*} host=${base#*@}
url="postgresql://${host%%/*}/$database?user=${user%%:*}&password=${user#*:}&sslmode=disable"
own=${PENSTOCK_TEST_POSTGRES%/*}/$database?${PENSTOCK_TEST_POSTGRES#*\?}

# Each block whose first line names a file is that file; the sh blocks are numbered.
mkdir "$dir/shop" && cd "$dir/shop"
python3 - "$guide" << 'END'
import pathlib, re, sys
commands = 0
for language, code in re.findall(r"```(\w+)\n(.*?)```", open(sys.argv[1]).read(), re.S):
    named = re.match(r"(?:<!--|#|--|//) (\S+)(?: -->)?\n", code)
    if language == "sh":
        commands += 1
    elif not named:
        continue
    path = pathlib.Path(f"commands.{commands}" if language == "sh" else named[1])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(code)
assert commands == 6, "the guide has other commands"

# The repository goes into pom.xml, and the handler that returns outcomes into its class.
text, pom, emails = open(sys.argv[1]).read(), pathlib.Path("pom.xml"), pathlib.Path("src/main/java/shop/Emails.java")
repositories = re.search(r"```xml\n(<repositories>.*?)```", text, re.S)[1].replace("/path/to/maven", str(pathlib.Path("none").resolve()))
pom.write_text(pom.read_text().replace("  <dependencies>", repositories + "  <dependencies>", 1))
handler = re.search(r"```java\n(@PenstockHandler.*?)```", text, re.S)[1] + "boolean night() { return false; }\n"
code = emails.read_text().replace("import org", "import io.penstock.Outcome;\nimport java.time.Duration;\nimport org", 1)
emails.write_text(code.rstrip().removesuffix("}") + handler + "}\n")
END
sed -n 's/^mvn -q -f penstock\/clients\/java/mvn -B -q -ntp -f "$here\/.."/p' commands.1 > install.sh
here=$here bash -eu install.sh
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
export PENSTOCK_DATABASE_URL=$url TEST_DATABASE_URL=${url/$database/${database}_test} SERVER_PORT=$port SERVER_ADDRESS=127.0.0.1
sed -n 3p commands.2 | sed 's/mvn -q/mvn -B -q -ntp -Dstyle.color=never/' | bash -eu > package.log 2>&1 || { cat package.log; exit 1; }
sed -n 4p commands.2 | sed 's/^/exec /' > run.sh
bash -eu run.sh > shop.log 2>&1 &
shop=$!
waits() { # TEXT: until the application has printed it
	for ((n = 0; n < 1200; n++)); do
		grep -qF "$1" shop.log && return
		kill -0 $shop || break
		sleep 0.1
	done
	cat shop.log; echo "there is no '$1'"; exit 1
}
waits 'Started Shop'
order=$(sed "s/localhost:8080/127.0.0.1:$port/" commands.3 | bash -eu)
[[ $order == '{"order":'*'}' ]] || { cat shop.log; echo "the order is $order"; exit 1; }
waits 'mail to ann@example.org about order '
export PENSTOCK_DATABASE_URL=$own PATH=$(dirname "$PENSTOCK_BIN"):$PATH
until [[ $(psql "$own" -c "select name from penstock.schedules('emails')") == nightly ]]; do # the application has made it
	kill -0 $shop || { cat shop.log; exit 1; }
	sleep 0.1
done
sed 's/--all$/& --yes/' commands.5 | bash -eu > /dev/null
psql "$own" -c "create role shop_app_$$" > /dev/null
sed "s/shop_app/shop_app_$$/" commands.6 | bash -eu > /dev/null
psql "$own" -c "select penstock.advance_queue('emails', '1 day')" > /dev/null
waits 'the digest of today'
sed -n '1s/^/exec /p' commands.4 > relay.sh
bash -eu relay.sh > relay.log 2>&1 &
relay=$!
until grep -qs '"topic":"order.placed"' relay.log; do kill -0 $relay 2> /dev/null || { cat relay.log; exit 1; }; sleep 0.1; done
kill $relay
wait $relay
kill $shop # SIGTERM
wait $shop || [[ $? == 143 ]]
shop=
echo 'spring-boot: ok'
