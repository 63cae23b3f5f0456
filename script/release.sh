#!/usr/bin/env bash
# release.sh [SYSTEM/PROCESSOR...]: builds what a release has into bin/release, for all platforms or for those. It publishes nothing. The first
# time it fetches its tools, into bin/release-tools; from then on it needs no network. It wants Go, Python, npm and Maven.
set -euo pipefail
cd "$(dirname "$0")/.."

# Go's name of a platform, npm's, and that of wheels. A static binary runs with every C library.
platforms='
linux/amd64    linux-x64     manylinux_2_17_x86_64.manylinux2014_x86_64.musllinux_1_1_x86_64
linux/arm64    linux-arm64   manylinux_2_17_aarch64.manylinux2014_aarch64.musllinux_1_1_aarch64
darwin/amd64   darwin-x64    macosx_12_0_x86_64
darwin/arm64   darwin-arm64  macosx_12_0_arm64
windows/amd64  win32-x64     win_amd64
windows/arm64  win32-arm64   win_arm64
'
version=$(sed -n 's/^const version = "\(.*\)"$/\1/p' cmd/penstock/version.go)
out=$PWD/bin/release tools=$PWD/bin/release-tools
export GOWORK=off CGO_ENABLED=0 SOURCE_DATE_EPOCH
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

want='helm v3.22.0, nfpm v2.45.2, hatchling 1.33.0, cyclonedx-gomod v1.9.0'
if [[ $(cat "$tools/installed" 2>/dev/null) != "$want" ]]; then
	rm -rf "$tools"
	python3 -m venv "$tools"
	"$tools/bin/pip" install --quiet --disable-pip-version-check hatchling==1.33.0
	GOBIN=$tools/bin go install github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.45.2
	GOBIN=$tools/bin go install github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.9.0
	GOBIN=$tools/bin go install helm.sh/helm/v3/cmd/helm@v3.22.0
	echo "$want" > "$tools/installed"
fi
PATH=$tools/bin:$PATH
rm -rf "$out"
mkdir -p "$out"/{npm,python,maven}

# Each binary, and what carries it.
pack() { (cd "$1" && npm pack --silent --pack-destination "$out/npm" > /dev/null); }
images=()
while read -r platform npm wheel; do
	[[ $platform && (! $* || " $* " == *" $platform "*) ]] || continue
	echo "$platform"
	os=${platform%/*} arch=${platform#*/} exe=
	[[ $os != windows ]] || exe=.exe
	name=penstock_${version}_${os}_$arch
	folder=$work/$name
	GOOS=$os GOARCH=$arch go build -trimpath -ldflags '-s -w' -o "$folder/penstock$exe" ./cmd/penstock
	export PENSTOCK_BIN=$folder/penstock$exe PENSTOCK_WHEEL_TAG=$wheel

	# Its components, from the binary itself and the modules that it was built from. No network: penstock is no published module.
	GOPROXY=off GOOS=$os GOARCH=$arch cyclonedx-gomod bin -json -licenses -std -noserial -version "v$version" -output "$work/sbom.json" "$PENSTOCK_BIN" 2> "$work/sbom.log" || { cat "$work/sbom.log"; exit 1; }
	release/sbom.py "$work/sbom.json" "$out/$name.cdx.json"
	[[ $os != linux ]] || release/sbom.py "$work/sbom.json" "$out/penstock_${version}_image_$arch.cdx.json" image

	package=$work/$npm
	mkdir -p "$package/bin"
	cp LICENSE "$package"
	cp "$PENSTOCK_BIN" "$package/bin"
	sed "s/OS/${npm%-*}/; s/CPU/${npm#*-}/" release/npm/platform.json > "$package/package.json"
	pack "$package"

	cp -r release/python "$work/python"
	cp LICENSE "$work/python"
	(cd "$work/python" && hatchling build --target wheel --directory "$out/python" > /dev/null)
	rm -r "$work/python"

	if [[ $os == linux ]]; then
		images+=("$arch=$PENSTOCK_BIN")
		for format in deb rpm; do
			BINARY=$PENSTOCK_BIN ARCH=$arch VERSION=$version nfpm package --config release/nfpm.yaml --packager $format --target "$out"
		done
	fi

	cp -r LICENSE README.md CHANGELOG.md deploy "$folder"
	find "$folder" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
	if [[ $os == windows ]]; then
		(cd "$work" && TZ=UTC python3 -m zipfile -c "$out/$name.zip" "$name")
	else
		tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner -c "$name" | gzip -n > "$out/$name.tar.gz"
	fi
done <<< "$platforms"

# The image, for the processors that were built.
if ((${#images[@]})); then
	go run -C release ./image "$work/image" "$version" "$SOURCE_DATE_EPOCH" "$PWD/LICENSE" "${images[@]}"
	tar -C "$work/image" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -cf "$out/penstock_${version}_image.tar" .
fi

echo 'the chart and the clients'
helm package deploy/helm/penstock --destination "$out" > /dev/null
cp -r release/npm/server "$work/server"
cp LICENSE "$work/server"
pack "$work/server"
# The clients' builds ask the program of this machine for its schema.
export PENSTOCK_BIN=$work/penstock
go build -trimpath -o "$PENSTOCK_BIN" ./cmd/penstock
(cd clients/python && hatchling build --directory "$out/python" > /dev/null && rm src/penstock/django/schema.sql)
(cd clients/typescript && { [[ node_modules/.package-lock.json -nt package-lock.json ]] || npm ci --silent; })
pack clients/typescript
(cd clients/java && mvn -B -q -ntp -Dstyle.color=never -pl penstock,spring-boot-starter -Prelease -DskipTests -Dmaven.install.skip=true -DaltDeploymentRepository="release::file://$out/maven" deploy)

(cd "$out" && find . -type f ! -name checksums.txt -printf '%P\n' | sort | xargs sha256sum > checksums.txt)
echo "$out"
