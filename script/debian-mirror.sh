#!/usr/bin/env bash
# debian-mirror.sh: prints the mirror of Debian that this machine's apt uses, or PENSTOCK_DEBIAN_MIRROR.
set -euo pipefail

mirror=${PENSTOCK_DEBIAN_MIRROR:-}
if [[ ! $mirror ]]; then
	name=$(. /etc/os-release && echo "$VERSION_CODENAME")
	mirror=$(apt-get indextargets --no-release-info --format '$(RELEASE) $(REPO_URI)' | awk -v name="$name" '$1 == name && /debian/ { print $2; exit }')
	[[ $mirror ]] || { echo "no mirror of Debian in /etc/apt: name one, PENSTOCK_DEBIAN_MIRROR=…" >&2; exit 1; }
fi
echo "$mirror"
