#!/usr/bin/env python3
"""sbom.py FROM TO [image]: what cyclonedx-gomod says of a binary, as a release has it.

Two builds give the same bytes: the time is SOURCE_DATE_EPOCH, and the hashes of the tool are left out. The image has the same binary, and the
roots of TLS."""

import json
import os
import re
import sys
from datetime import datetime, timezone

bom = json.load(open(sys.argv[1]))
metadata = bom["metadata"]
metadata["timestamp"] = datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
for tool in metadata["tools"]:
    tool.pop("hashes", None)
metadata["component"]["licenses"] = [{"license": {"id": "Apache-2.0"}}]
if sys.argv[3:] == ["image"]:
    metadata["component"]["type"] = "container"
    roots = "golang.org/x/crypto/x509roots/fallback"
    version = re.search(f"{roots} (\\S+)", open(os.path.join(os.path.dirname(__file__), "go.mod")).read())[1]
    purl = f"pkg:golang/{roots}@{version}?type=module"
    bom["components"].append({"bom-ref": purl, "type": "data", "name": roots, "version": version, "scope": "required", "purl": purl, "licenses": [{"license": {"id": "BSD-3-Clause"}}]})
json.dump(bom, open(sys.argv[2], "w"), indent=1)
