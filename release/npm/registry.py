#!/usr/bin/env python3
"""registry.py FOLDER: serves npm packages from files, for script/test-release.sh. Prints its URL first."""

import base64, hashlib, http.server, json, pathlib, sys, tarfile

packages = {}
for file in pathlib.Path(sys.argv[1]).glob("*.tgz"):
    with tarfile.open(file) as tar:
        package = json.load(tar.extractfile("package/package.json"))
    packages[package["name"]] = package, file


class Registry(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        name = self.path.lstrip("/").replace("%2f", "/").replace("%2F", "/")
        tarball = name.endswith(".tgz")
        package, file = packages.get(name.removesuffix(".tgz"), (None, None))
        body = b"{}"
        if package and tarball:
            body = file.read_bytes()
        elif package:
            digest = base64.b64encode(hashlib.sha512(file.read_bytes()).digest()).decode()
            dist = {"tarball": f"{url}/{name}.tgz", "integrity": f"sha512-{digest}"}
            body = json.dumps({"name": name, "dist-tags": {"latest": package["version"]}, "versions": {package["version"]: package | {"dist": dist}}}).encode()
        self.send_response(200 if package else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Registry)
url = f"http://127.0.0.1:{server.server_port}"
print(url, flush=True)
server.serve_forever()
