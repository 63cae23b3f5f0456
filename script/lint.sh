#!/usr/bin/env bash
# lint.sh: formatting, go vet, staticcheck. Changes nothing.
set -euo pipefail
cd "$(dirname "$0")/.."

unformatted=$(gofmt -l .)
if [[ $unformatted ]]; then
	printf 'not formatted; run `make fmt`:\n%s\n' "$unformatted" >&2
	exit 1
fi
go vet ./... ./lab/...
# A separate module, with dependencies that a developer without a network may do without.
if (cd examples/orms && go mod download) >/dev/null 2>&1 || [[ ${CI:-} ]]; then
	(cd examples/orms && go generate ./... && go vet ./...)
fi
# The systems that are released for, of which this is one; the rest of the code is the same on both processors.
if [[ ${CI:-} ]]; then
	for os in windows darwin; do GOOS=$os GOARCH=arm64 go build -o /dev/null ./cmd/penstock; done
fi
# Of that version wherever it runs; built from the module proxy, then cached.
go run honnef.co/go/tools/cmd/staticcheck@v0.8.2 ./... ./lab/...
# The workspace chooses one version of each dependency for the lab and the program: what the lab needs must not change the program's.
modules=(go list -deps -f '{{with .Module}}{{.}}{{end}}' ./cmd/penstock)
diff <(GOWORK=off "${modules[@]}" | sort -u) <("${modules[@]}" | sort -u)
# Asks for more modules than a build does.
if [[ ${CI:-} ]]; then
	for module in . lab; do (cd "$module" && GOWORK=off go mod tidy -diff); done
	(cd release && GOWORK=off go vet ./...)
fi
for script in script/*.sh .ci/run; do bash -n "$script"; done
