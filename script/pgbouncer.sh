#!/usr/bin/env bash
# pgbouncer.sh: fetches Debian 13's PgBouncer, which knows prepared statements in
# transaction mode (Debian 12's does not), once, with the libraries that it needs, and
# prints the program's path. Nothing is installed. PENSTOCK_CACHE says where to keep it.
set -euo pipefail

release=trixie
if [[ $EUID -eq 0 ]]; then
	cache=${PENSTOCK_CACHE:-/var/cache/penstock} # PgBouncer does not run as root
else
	cache=${PENSTOCK_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/penstock}
fi
dir=$cache/pgbouncer-$release
if [[ ! -d $dir ]]; then
	keys=/usr/share/keyrings/debian-archive-keyring.gpg
	if ! command -v apt-get >/dev/null || [[ ! -r $keys ]]; then
		echo "this needs Debian's apt-get; elsewhere name a PgBouncer of 1.21 or later yourself: PENSTOCK_TEST_PGBOUNCER=…" >&2
		exit 1
	fi
	umask 022
	mkdir -p "$cache"
	work=$(mktemp -d "$cache/fetch.XXXXXX")
	trap 'rm -rf "$work"' EXIT
	# apt-get with separate folders for everything, for a machine on which nothing is installed.
	mkdir -p "$work"/{lists/partial,cache/archives/partial,root}
	mirror=$("$(dirname "$0")/debian-mirror.sh")
	echo "deb [signed-by=$keys] $mirror $release main" >"$work/sources.list"
	options=(-qq -o Dir::Etc::SourceList="$work/sources.list" -o Dir::Etc::SourceParts=- -o Dir::State::Lists="$work/lists"
		-o Dir::Cache="$work/cache" -o Dir::State::Status=/dev/null -o Debug::NoLocking=1 -o APT::Sandbox::User=
		-o APT::Install-Recommends=false)
	apt-get "${options[@]}" update >&2
	apt-get "${options[@]}" --download-only --yes install pgbouncer >&2
	for package in "$work"/cache/archives/*.deb; do
		dpkg -x "$package" "$work/root"
	done
	rm -rf "$work/root/usr/share"
	# With the loader and the libraries of its release it runs on any.
	cat >"$work/root/pgbouncer" <<-'RUN'
		#!/bin/sh
		here=$(dirname "$0")
		exec "$here"/usr/lib64/ld-linux-x86-64.so.2 --library-path "$here/usr/lib/x86_64-linux-gnu" "$here/usr/sbin/pgbouncer" "$@"
	RUN
	chmod 755 "$work/root/pgbouncer" "$work/root"
	mv -T "$work/root" "$dir" 2>/dev/null || [[ -d $dir ]] # or another run was first
fi
echo "$dir/pgbouncer"
