#!/usr/bin/env bash
# in-debian.sh RELEASE "PACKAGE…" COMMAND [ARGUMENT…]: runs the command in a Debian of that release (trixie, sid) that has
# these packages, in the same folder; `go test -exec` takes it. The Debian is made once, as root, by debootstrap from the mirror that
# apt has on this machine (or PENSTOCK_DEBIAN_MIRROR), and kept in PENSTOCK_CACHE: delete it there for newer packages. The command
# sees this repository, /tmp, /dev and the network of the machine, of which nothing is changed: what is mounted is mounted for the
# command alone, and is gone with it.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd -P)
release=$1 packages=$2
shift 2

cache=${PENSTOCK_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/penstock}/debian
base=$cache/$release dir=$cache/$release-$(tr -s ' /' '-' <<<"$packages")

# enter DIR COMMAND…: with DIR as the root of all files. It replaces the shell.
enter() {
	exec unshare --mount "${isolated[@]}" bash -c '
		set -euo pipefail
		dir=$1 root=$2 here=$PWD
		shift 2
		for shared in /dev /tmp "$root" "${TMPDIR:-}" "${PENSTOCK_TEST_DATA:-}"; do
			[[ $shared ]] || continue
			mkdir -p "$dir$shared"
			mount --rbind "$shared" "$dir$shared"
		done
		mount -t proc proc "$dir/proc"
		PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin exec chroot "$dir" sh -c "cd \"\$0\" && exec \"\$@\"" "$here" "$@"' \
		enter "$1" "$root" "${@:2}"
}
isolated=()

make_base() {
	command -v debootstrap >/dev/null || "$root/script/apt-install.sh" debootstrap >&2 # its words are not the command's
	local mirror
	mirror=$("$root/script/debian-mirror.sh")
	debootstrap --variant=minbase "$release" "$work" "$mirror" >"$log" 2>&1
	# Package scripts start no services and make no cluster of databases.
	printf '#!/bin/sh\nexit 101\n' >"$work/usr/sbin/policy-rc.d"
	mkdir -p "$work/etc/postgresql-common"
	echo 'create_main_cluster = false' >"$work/etc/postgresql-common/createcluster.conf"
	chmod 755 "$work" "$work/usr/sbin/policy-rc.d"
	{
		# A mirror that stands still serves lists that are past their date.
		printf '%s "%s";\n' Acquire::Check-Valid-Until false Acquire::Check-Date false APT::Install-Recommends false Acquire::Languages none
		echo 'Dpkg::Options { "--force-confold"; };' # of createcluster.conf
		apt-config dump | grep -E '^Acquire::[a-z]+::Proxy' || true
	} >"$work/etc/apt/apt.conf.d/99penstock"
	[[ $release != sid ]] || echo "deb $mirror experimental main" >>"$work/etc/apt/sources.list"
	mv -T "$work" "$base"
}

make_dir() {
	cp -a "$base" "$work"
	cp -L /etc/resolv.conf /etc/hosts "$work/etc"
	export DEBIAN_FRONTEND=noninteractive LC_ALL=C
	isolated=(--pid --fork --kill-child) # the scripts of packages look for servers that run, and see none of the machine's
	# shellcheck disable=SC2086 # several packages
	for step in update "install $packages" clean; do
		(enter "$work" apt-get -qq $step) </dev/null >"$log" 2>&1
	done
	mv -T "$work" "$dir"
}

unshare --mount true 2>/dev/null || {
	echo "this mounts folders, for its command alone: run it as root, in a container with --privileged" >&2
	exit 1
}
if [[ ! -d $dir ]]; then
	command -v apt-get >/dev/null || {
		echo "this makes a Debian $release with debootstrap, for which it needs a Debian" >&2
		exit 1
	}
	umask 022
	mkdir -p "$cache"
	(
		flock 9
		work=$cache/work log=$cache/log
		trap '(($? == 0)) || tail -20 "$log" >&2; rm -rf --one-file-system "$work" "$log"' EXIT
		rm -rf --one-file-system "$work" # of one that was killed
		[[ -d $base ]] || make_base
		[[ -d $dir ]] || { echo "makes a Debian $release with $packages in $dir: some minutes, up to 1 GB" >&2; make_dir; }
	) 9>"$cache/lock"
fi
enter "$dir" "$@"
