#!/usr/bin/env bash
# test-release.sh: installs each file of bin/release for this platform in an empty folder, as a user does who has neither Go nor the source, and
# runs the demo with it; the clients publish and work on the server that PENSTOCK_TEST_POSTGRES names:
#   make release && bin/withservers -only postgres script/test-release.sh
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD release=$PWD/bin/release
: "${PENSTOCK_TEST_POSTGRES:?is the URL of a PostgreSQL server: bin/withservers -only postgres script/test-release.sh}"
[[ $(uname -sm) == 'Linux x86_64' ]] || { echo 'what a release has for Linux on x86-64 can be tried there only'; exit 1; }
[[ -f $release/checksums.txt ]] || { echo 'build the files first: make release'; exit 1; }
version=$(sed -n 's/^const version = "\(.*\)"$/\1/p' cmd/penstock/version.go)
command -v rpm > /dev/null && command -v cpio > /dev/null || script/apt-install.sh cpio rpm

empty=$(mktemp -d)
trap 'rm -rf "$empty"' EXIT
chmod 755 "$empty"
# Of the environment only what a package manager needs; no Go on the path.
python=$(python3 -c 'import sys; print(sys.executable)')
clean() { (exec_clean "$@"); }
exec_clean() { exec env -i HOME="$HOME" PATH="$1/bin:/usr/bin:/bin:/usr/sbin" PENSTOCK_DATABASE_URL="${url-}" "${@:2}"; }
fail() { echo "$*"; exit 1; }
# try NAME COMMAND...: the command is this version, and its demo loses nothing.
try() {
	local name=$1 out
	shift
	out=$(clean / "$@" version) || fail "$name: $out"
	[[ $out == "penstock $version (commit "* ]] || fail "$name is $out"
	out=$(clean / "$@" demo --limit 2000 2>&1) || fail "$name: $out"
	[[ $out == *'Every committed flight arrived'* ]] || fail "$name: $out"
	echo "$name: ok"
}
folder() { mkdir "$empty/$1" && cd "$empty/$1"; }

(cd "$release" && sha256sum --quiet --check checksums.txt)
[[ $(find "$release" -maxdepth 3 -type f -name '*penstock*' ! -path '*/maven/*' | grep -vcF "$version") == 0 ]] || fail 'a file has another version in its name'

release/check.py "$release" "$version"
for arm in "$(dpkg-deb --field "$release/penstock_${version}_arm64.deb" Architecture 2> /dev/null)" "$(rpm -qp --queryformat '%{ARCH}' "$release/penstock-$version-1.aarch64.rpm" 2> /dev/null)"; do
	[[ ! -f $release/penstock_${version}_linux_arm64.tar.gz || $arm == a*64 && $arm != amd64 ]] || fail "a package for arm64 is for '$arm'"
done

folder archive
tar -xzf "$release/penstock_${version}_linux_amd64.tar.gz"
try 'tar.gz' "$PWD/penstock_${version}_linux_amd64/penstock"

folder deb
dpkg -x "$release/penstock_${version}_amd64.deb" .
[[ $(dpkg-deb --field "$release/penstock_${version}_amd64.deb" Version) == "$version" ]] || fail 'the deb has another version'
[[ -f usr/lib/systemd/system/penstock-relay.service && -f usr/share/doc/penstock/copyright ]] || fail 'the deb lacks its units or its licence'
try deb "$PWD/usr/bin/penstock"

folder rpm
rpm=$release/penstock-$version-1.x86_64.rpm
rpm --checksig "$rpm" > /dev/null
[[ $(rpm -qp --queryformat '%{VERSION}' "$rpm") == "$version" ]] || fail 'the rpm has another version'
# rpm2cpio compares a size that nfpm does not write, and so ends with 1. The digests were checked above.
{ rpm2cpio "$rpm" || true; } | cpio --quiet --no-absolute-filenames -idm 2> /dev/null
[[ -f usr/lib/systemd/system/penstock-relay.service && -f usr/share/licenses/penstock/LICENSE ]] || fail 'the rpm lacks its units or its licence'
try rpm "$PWD/usr/bin/penstock"

# The image's one layer for this processor as a root, its entry point as its user there.
folder image
tar -xf "$release/penstock_${version}_image.tar"
"$python" - > config.json <<-'END'
	import json, tarfile
	blob = lambda d: "blobs/" + d["digest"].replace(":", "/")
	index = json.load(open(blob(json.load(open("index.json"))["manifests"][0])))
	manifest = json.load(open(blob(next(m for m in index["manifests"] if m["platform"]["architecture"] == "amd64"))))
	for layer in manifest["layers"]:
	    tarfile.open(blob(layer)).extractall("root")
	print(open(blob(manifest["config"])).read())
END
grep -q '"Entrypoint":\["/penstock"\]' config.json && grep -q '"User":"65532:65532"' config.json || fail "the image: $(cat config.json)"
grep -q 'BEGIN CERTIFICATE' root/etc/ssl/certs/ca-certificates.crt || fail 'the image lacks roots of TLS'
if [[ $EUID == 0 ]]; then
	try image chroot --userspec=65532:65532 root /penstock
else
	try image "$PWD/root/penstock"
fi

# The chart: linted, its values checked, and rendered to what is in deploy for those without Helm.
folder chart
helm=$root/bin/release-tools/bin/helm
tar -xzf "$release/penstock-$version.tgz"
"$helm" lint --quiet --strict penstock --values penstock/example.yaml
render() { "$helm" template penstock "$release/penstock-$version.tgz" --kube-version 1.27.0 "$@"; }
diff <(render --values penstock/example.yaml) <(tail -n +2 "$root/deploy/kubernetes/penstock.yaml") || fail 'deploy/kubernetes/penstock.yaml is not what the chart renders: its first line says how to write it'
out=$(render --set relay.replica=3 2>&1) && fail 'the chart takes a value that it does not know'
[[ $out == *replica* ]] || fail "$out"
[[ $(render --set relay.enabled=false,console.enabled=true | grep -c '^kind: Deployment') == 1 ]] || fail 'the chart renders parts that are off'
echo 'chart: ok'

# database NAME: a new database for a client, as url.
database() {
	PGOPTIONS=--client-min-messages=warning psql -qX "$PENSTOCK_TEST_POSTGRES" -c "drop database if exists $1" -c "create database $1"
	url=${PENSTOCK_TEST_POSTGRES%/*}/$1?${PENSTOCK_TEST_POSTGRES#*\?}
}
# works NAME CODE COMMAND...: the worker prints that it has done the job, and ends with this code when it gets SIGTERM.
works() {
	local name=$1 code=$2 ended=0
	shift 2
	exec_clean "$PWD" "$@" > worker.log 2>&1 &
	local worker=$!
	until grep -q '^mail to ann' worker.log; do
		kill -0 $worker 2> /dev/null || fail "$name: $(cat worker.log)"
		sleep 0.1
	done
	kill $worker
	wait $worker || ended=$?
	[[ $ended == "$code" ]] || fail "$name: the worker ended with $ended: $(cat worker.log)"
	echo "$name: ok"
}

folder python
"$python" -m venv .
bin/pip install --quiet --disable-pip-version-check --no-index --find-links "$release/python" 'penstock-client[server]'
try 'penstock-client[server] for Python' bin/penstock
bin/pip install --quiet --disable-pip-version-check 'psycopg[binary]'
[[ $(bin/python -c 'import penstock; print(penstock.__version__)') == "$version" ]] || fail 'the Python client has another version'
database release_python
clean . bin/penstock migrate > /dev/null
clean . bin/penstock queue create emails > /dev/null
clean . bin/python -c 'import os, penstock, psycopg; tx = psycopg.connect(os.environ["PENSTOCK_DATABASE_URL"]); penstock.enqueue(tx, "emails", {"to": "ann"}); tx.commit()'
works 'a job in Python' 0 bin/python -c 'import os, penstock; penstock.work(os.environ["PENSTOCK_DATABASE_URL"], "emails", lambda job: print("mail to", job.json()["to"], flush=True))'

# A registry of this machine with the packages of @penstock, so that npm chooses the one for this platform itself.
folder npm
mkdir project
"$root/release/npm/registry.py" "$release/npm" > registry.log 2>&1 &
registry=$!
trap 'kill $registry 2> /dev/null; rm -rf "$empty"' EXIT
until [[ -s registry.log ]]; do kill -0 $registry || fail "$(cat registry.log)"; sleep 0.1; done
cd project
echo "@penstock:registry=$(head -1 ../registry.log)" > .npmrc
npm install --silent --no-audit --no-fund @penstock/server @penstock/client pg
[[ $(echo node_modules/@penstock/*) == 'node_modules/@penstock/client node_modules/@penstock/server node_modules/@penstock/server-linux-x64' ]] || fail "npm has installed $(echo node_modules/@penstock/*)"
try '@penstock/server for Node.js' node_modules/.bin/penstock
database release_npm
clean . node_modules/.bin/penstock migrate > /dev/null
clean . node_modules/.bin/penstock queue create emails > /dev/null
clean . node_modules/.bin/penstock enqueue emails '{"to": "ann"}' > /dev/null
# The launcher passes signals on, and the exit code.
works 'a job by npx' 0 node_modules/.bin/penstock work emails --exec 'echo mail to ann'
clean . node_modules/.bin/penstock queue show nothing > /dev/null 2>&1 && fail 'the launcher hides an exit code'
cat > emails.mjs <<'END'
import pg from 'pg'
import { Penstock } from '@penstock/client'
const pool = new pg.Pool({ connectionString: process.env.PENSTOCK_DATABASE_URL })
const penstock = new Penstock()
await penstock.enqueue(pool, 'emails', { payload: { to: 'ann' } })
await penstock.work(pool, 'emails', async job => console.log('mail to', job.json().to), {})
await pool.end()
END
works 'a job in TypeScript' 0 node emails.mjs

# Maven with a repository that has only what came from the internet, and the release's.
folder java
m2=$root/bin/release-tools/m2
rm -rf "$m2/io/penstock"
cat > pom.xml <<END
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>shop</groupId><artifactId>shop</artifactId><version>1</version>
  <repositories><repository><id>release</id><url>file://$release/maven</url></repository></repositories>
  <dependencies>
    <dependency><groupId>io.penstock</groupId><artifactId>penstock-spring-boot-starter</artifactId><version>$version</version></dependency>
    <dependency><groupId>org.postgresql</groupId><artifactId>postgresql</artifactId><version>42.7.7</version></dependency>
  </dependencies>
</project>
END
mvn -B -q -ntp -Dstyle.color=never -Dmaven.repo.local="$m2" org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies -DoutputDirectory=lib
for pom in "$release"/maven/io/penstock/*/"$version"/*.pom; do
	for element in name description url license developer scm; do grep -q "<$element[ >]" "$pom" || fail "$pom lacks <$element>"; done
	! grep -q '<parent>\|\${' "$pom" || fail "$pom is not complete"
	for kind in '' -sources -javadoc; do [[ -f ${pom%.pom}$kind.jar ]] || fail "${pom%.pom}$kind.jar is missing"; done
done
database release_java
server=$empty/python/bin/penstock
clean . "$server" migrate > /dev/null
clean . "$server" queue create emails > /dev/null
clean . "$server" enqueue emails ann > /dev/null
cat > Emails.java <<'END'
import io.penstock.*;

class Emails {
    public static void main(String[] args) throws Exception {
        var database = new org.postgresql.ds.PGSimpleDataSource();
        database.setUrl("jdbc:" + args[0]);
        Penstock.on(database).work("emails", job -> {
            System.out.println("mail to " + job.text());
            return Outcome.done();
        });
    }
}
END
base=${PENSTOCK_TEST_POSTGRES#*://} user=${base%%@*} host=${base#*@}
works 'a job in Java' 143 java -cp 'lib/*' Emails.java "postgresql://${host%%/*}/release_java?user=${user%%:*}&password=${user#*:}&sslmode=disable"
echo "everything in $release that runs on this platform was tried"
