#!/usr/bin/env bash
# See clients/conformance/README.md.
set -euo pipefail
cd "$(dirname "$0")/../.."
if [[ ${1-} == --build ]]; then
	exec go build -o bin/conformance-go ./clients/go
fi
exec bin/conformance-go
