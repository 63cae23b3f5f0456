#!/usr/bin/env python3
"""check.py FOLDER VERSION: whether the files of a release fit together, for all platforms, also those that do not run here.

Each archive has one binary, in the format of its platform. The wheel and the npm package of the platform have the same one, and say so. The
list of its components (SBOM) names this binary."""

import hashlib
import io
import json
import os
import stat
import sys
import tarfile
import zipfile

folder, version = sys.argv[1:]
# Go's platform, npm's, the tags of wheels, and how its binaries begin: the format, and the processor's number at its place.
PLATFORMS = {
    "linux_amd64": ("linux", "x64", {"manylinux_2_17_x86_64", "manylinux2014_x86_64", "musllinux_1_1_x86_64"}, b"\x7fELF", 18, 0x3E),
    "linux_arm64": ("linux", "arm64", {"manylinux_2_17_aarch64", "manylinux2014_aarch64", "musllinux_1_1_aarch64"}, b"\x7fELF", 18, 0xB7),
    "darwin_amd64": ("darwin", "x64", {"macosx_12_0_x86_64"}, b"\xcf\xfa\xed\xfe", 4, 0x07),
    "darwin_arm64": ("darwin", "arm64", {"macosx_12_0_arm64"}, b"\xcf\xfa\xed\xfe", 4, 0x0C),
    "windows_amd64": ("win32", "x64", {"win_amd64"}, b"MZ", None, 0x8664),
    "windows_arm64": ("win32", "arm64", {"win_arm64"}, b"MZ", None, 0xAA64),
}


def open_archive(name: str) -> dict[str, tuple[int, bytes]]:
    """Its files, with their permissions."""
    path = os.path.join(folder, name)
    if name.endswith((".zip", ".whl")):
        with zipfile.ZipFile(path) as z:
            return {i.filename: (i.external_attr >> 16, z.read(i)) for i in z.infolist() if not i.is_dir()}
    with tarfile.open(path) as t:
        return {m.name: (m.mode, t.extractfile(m).read()) for m in t if m.isfile()}  # type: ignore[union-attr]


def only(names: list[str], what: str) -> str:
    assert len(names) == 1, f"{what}: {names}"
    return names[0]


def check(platform: str) -> None:
    npm_os, cpu, tags, magic, at, machine = PLATFORMS[platform]
    name, exe = f"penstock_{version}_{platform}", ".exe" if npm_os == "win32" else ""
    files = open_archive(name + (".zip" if exe else ".tar.gz"))
    mode, binary = files[f"{name}/penstock{exe}"]
    assert {f"{name}/LICENSE", f"{name}/README.md", f"{name}/CHANGELOG.md"} < files.keys(), f"{name} lacks files"
    assert binary.startswith(magic), f"{name} has another format"
    at = int.from_bytes(binary[0x3C:0x40], "little") + 4 if at is None else at
    assert int.from_bytes(binary[at : at + 2], "little") == machine, f"{name} is for another processor"
    assert exe or mode & stat.S_IXUSR, f"{name} cannot be executed"
    digest = hashlib.sha256(binary).hexdigest()

    package = open_archive(f"npm/penstock-server-{npm_os}-{cpu}-{version}.tgz")
    manifest = json.loads(package["package/package.json"][1])
    assert (manifest["name"], manifest["version"], manifest["os"], manifest["cpu"]) == (f"@penstock/server-{npm_os}-{cpu}", version, [npm_os], [cpu]), manifest
    mode, packed = package[f"package/bin/penstock{exe}"]
    assert hashlib.sha256(packed).hexdigest() == digest and mode & stat.S_IXUSR, f"npm's {npm_os}-{cpu} has another binary"
    server = json.loads(open_archive(f"npm/penstock-server-{version}.tgz")["package/package.json"][1])
    assert server["optionalDependencies"][manifest["name"]] == version, server

    wheels = [f for f in os.listdir(os.path.join(folder, "python")) if f.startswith(f"penstock_server-{version}-py3-none-") and set(f[:-4].split("-")[-1].split(".")) == tags]
    wheel = open_archive("python/" + only(wheels, f"wheels of {platform}"))
    info = f"penstock_server-{version}.dist-info"
    said = {line[5:] for line in wheel[f"{info}/WHEEL"][1].decode().splitlines() if line.startswith("Tag: ")}
    assert said == {f"py3-none-{tag}" for tag in tags}, f"the wheel of {platform} says {said}"
    assert f"\nVersion: {version}\n" in wheel[f"{info}/METADATA"][1].decode()
    assert hashlib.sha256(wheel[f"penstock_server-{version}.data/scripts/penstock{exe}"][1]).hexdigest() == digest, f"the wheel of {platform} has another binary"

    for bom_name in [name] + ([f"penstock_{version}_image_{platform[6:]}"] if npm_os == "linux" else []):
        bom = json.load(io.open(os.path.join(folder, f"{bom_name}.cdx.json")))
        properties = {p["name"]: p["value"] for p in bom["metadata"]["properties"]}
        said = properties["cdx:gomod:build:env:GOOS"] + "_" + properties["cdx:gomod:build:env:GOARCH"]
        assert (properties["cdx:gomod:binary:hash:SHA-256"], said, bom["metadata"]["component"]["version"]) == (digest, platform, "v" + version), f"{bom_name}: {properties}"
        components = {c["name"] for c in bom["components"]}
        wanted = {"std", "github.com/jackc/pgx/v5", "github.com/spf13/cobra"} | ({"golang.org/x/crypto/x509roots/fallback"} if "image" in bom_name else set())
        assert wanted <= components, f"{bom_name} lacks {wanted - components}"


there = sorted(p for p in PLATFORMS if any(f.startswith(f"penstock_{version}_{p}.") and not f.endswith(".json") for f in os.listdir(folder)))
assert there, "there are no archives"
for one in there:
    check(one)
listed = {line.split(None, 1)[1].strip() for line in open(os.path.join(folder, "checksums.txt"))}
files = {os.path.relpath(os.path.join(at, f), folder) for at, _, names in os.walk(folder) for f in names}
missing = files - {"checksums.txt"} - listed
assert not missing, f"checksums.txt lacks {missing}"
print("archives, packages and lists of components: ok for", ", ".join(there))
