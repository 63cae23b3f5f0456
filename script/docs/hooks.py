"""Adds pages of other folders to the site, and leads links that leave docs/ to them or to the repository."""

import posixpath
import re
from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[2]
MODULES = ROOT / "bin/docs-tools/node_modules"
SCRIPTS = {
    "assets/mermaid.js": MODULES / "@mermaid-js/tiny/dist/mermaid.tiny.js",  # pictures
    "assets/iframe-worker.js": MODULES / "iframe-worker/shim/index.js",  # search in files, which have no workers
}

# Pages that stand next to what they explain, and where the site has them.
ELSEWHERE = {
    "CONTRIBUTING.md": "internals/contributing.md",
    "CHANGELOG.md": "reference/changelog.md",
    "clients/python/README.md": "guides/python.md",
    "clients/typescript/README.md": "guides/typescript.md",
    "clients/java/README.md": "guides/java.md",
} | {
    path.relative_to(ROOT).as_posix(): "internals/" + "-".join(path.relative_to(ROOT).parts[:-1]) + ".md"
    for folder in ("relay", "work", "writer", "store", "sink")
    for path in sorted(ROOT.glob(f"{folder}/**/DESIGN.md"))
}
ORIGIN = {page: path for path, page in ELSEWHERE.items()}

LINK = re.compile(r"(\]\()([^()\s]+)(\))")
FENCE = re.compile(r"^\s*(```|~~~)")


def on_config(config):
    config.nav = expand(config.nav, listed(config.nav), Path(config.docs_dir))
    return config


def listed(nav):
    """The pages that the navigation names."""
    for item in nav:
        if isinstance(item, dict):
            for value in item.values():
                yield from listed(value if isinstance(value, list) else [value])
        else:
            yield item


def expand(nav, named, docs):
    """Puts the pages of a folder in the place of FOLDER/*, and leaves out what has none."""
    named, out = set(named), []
    for item in nav:
        if isinstance(item, dict):
            (title, value), *_ = item.items()
            if isinstance(value, str) and value.endswith("/*"):
                value = [value]
            if isinstance(value, list):
                value = expand(value, named, docs)
            if value:
                out.append({title: value})
        elif item.endswith("/*"):
            folder = item.removesuffix("/*")
            pages = {f"{folder}/{page.name}" for page in (docs / folder).glob("*.md")}
            pages |= {page for page in ORIGIN if posixpath.dirname(page) == folder}
            first = folder + "/README.md"
            out += sorted(pages - named, key=lambda page: (page != first, page))
        else:
            out.append(item)
    return out


def on_files(files, config):
    for path, page in ELSEWHERE.items():
        files.append(File.generated(config, page, content=(ROOT / path).read_text()))
    for uri, path in SCRIPTS.items():
        files.append(File.generated(config, uri, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown, page, config, files):
    source = ORIGIN.get(page.file.src_uri, "docs/" + page.file.src_uri)
    out, code = [], False
    for line in markdown.split("\n"):
        if FENCE.match(line):
            code = not code
        elif not code:
            line = "".join(part if i % 2 else LINK.sub(lambda m: m[1] + lead(m[2], source, page, config) + m[3], part) for i, part in enumerate(re.split(r"(`[^`]*`)", line)))
        out.append(line)
    return "\n".join(out)


def lead(link, source, page, config):
    """The link as the site has it."""
    ours = re.match(re.escape(config.repo_url.rstrip("/")) + r"/(?:blob|tree)/main/", link)  # of a page that registries show as well
    if not ours and re.match(r"[a-z]+:|#", link):
        return link
    path, hash_, anchor = link[ours.end() if ours else 0 :].partition("#")
    path = posixpath.normpath(posixpath.join("" if ours else posixpath.dirname(source), path))
    target = ROOT / path
    if path.startswith("docs/") and target.is_dir() and (target / "README.md").exists():
        path += "/README.md"
    if path in ELSEWHERE:
        uri = ELSEWHERE[path]
    elif path.startswith("docs/") and not target.is_dir():
        uri = path.removeprefix("docs/")
    else:
        return f"{config.repo_url.rstrip('/')}/{'tree' if target.is_dir() else 'blob'}/main/{path}{hash_}{anchor}"
    return posixpath.relpath(uri, posixpath.dirname(page.file.src_uri) or ".") + hash_ + anchor


SHIM = "https://unpkg.com/iframe-worker/shim"


def on_post_template(output, template_name, config):
    return output.replace(SHIM, "/assets/iframe-worker.js")


def on_post_page(output, page, config):
    output = output.replace(SHIM, posixpath.relpath("assets/iframe-worker.js", posixpath.dirname(page.url) or "."))
    if 'class="mermaid"' in output:
        return output
    return re.sub(r'<script src="[^"]*assets/mermaid\.js"></script>', "", output)
