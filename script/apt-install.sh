#!/usr/bin/env bash
# apt-install.sh PACKAGE...: installs Debian packages without side effects on
# the machine's own services: nothing is started, no database cluster is made,
# and a server that runs already stays as it is. Safe to run twice, also at the
# same time.
set -euo pipefail

if ! command -v apt-get >/dev/null || [[ $EUID -ne 0 ]]; then
	echo "missing: $* (on Debian: sudo apt-get install $*; installed automatically only by root there)" >&2
	if [[ " $* " == *" postgresql "* || " $* " == *" rabbitmq-server "* ]]; then
		cat >&2 <<-TEXT
			instead of installing servers you can
			  - name running ones: PENSTOCK_TEST_POSTGRES=postgres://… PENSTOCK_TEST_RABBITMQ=amqp://…
			  - name the folders of their programs: PENSTOCK_TEST_PG_BIN=… PENSTOCK_TEST_RABBITMQ_BIN=…
		TEXT
	fi
	exit 1
fi

exec 9>/run/penstock-apt-install.lock
flock 9

# The process that held the lock before may have installed them.
needed=()
for package in "$@"; do
	status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
	[[ $status == installed ]] || needed+=("$package")
done
((${#needed[@]})) || exit 0
echo "installing ${needed[*]} with apt-get (not started, next to whatever runs already)"

undo=()
trap 'for step in "${undo[@]}"; do eval "$step"; done' EXIT

# Debian's way to say that package scripts must not start services. A file left
# behind by a run that was killed carries the mark and is replaced.
policy=/usr/sbin/policy-rc.d
if [[ ! -e $policy ]] || grep -q penstock-tests "$policy"; then
	printf '#!/bin/sh\n# penstock-tests\nexit 101\n' >"$policy"
	chmod 755 "$policy"
	undo+=('rm -f "$policy"')
fi

export DEBIAN_FRONTEND=noninteractive
aptget() {
	apt-get -qq -o DPkg::Lock::Timeout=600 "$@" </dev/null >"$log" 2>&1 9>&- || { cat "$log" >&2; return 1; }
}
log=$(mktemp)
undo+=('rm -f "$log"')

# The package lists have a lock for which apt does not wait.
for try in 1 2 3 4 5; do
	aptget update && break
	((try < 5)) || { echo "apt-get update failed: is the package mirror reachable?" >&2; exit 1; }
	sleep 5
done

# A PostgreSQL server package makes and starts a cluster "main" unless this file
# says otherwise. The file comes with postgresql-common, which makes none.
if [[ " ${needed[*]} " == *" postgresql "* ]]; then
	aptget install --no-install-recommends postgresql-common
	conf=/etc/postgresql-common/createcluster.conf
	kept=$(mktemp)
	cp -p "$conf" "$kept"
	undo+=('cp -p "$kept" "$conf"; rm -f "$kept"')
	echo 'create_main_cluster = false' >>"$conf"
fi

aptget install --no-install-recommends "${needed[@]}"

# With systemd, what was installed would start with the next boot.
if [[ -d /run/systemd/system && " ${needed[*]} " == *" rabbitmq-server "* ]]; then
	systemctl --quiet disable rabbitmq-server || true
fi
if [[ -d /run/systemd/system && " ${needed[*]} " == *" mariadb-plugin-rocksdb "* ]]; then
	systemctl --quiet disable mariadb || true
fi
