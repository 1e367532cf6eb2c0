"""Hooks of mkdocs.yml: pages of files outside of docs/, so that links need no repository.

README, CONTRIBUTING and CHANGELOG become pages. Any other file of the project that a page links to
becomes a page that shows its text.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
PAGES = {
    "README.md": "five-minutes.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
LINK = re.compile(r"(?<=\]\()([^)#\s]+)")
UNSEARCHED = "---\nsearch: {exclude: true}\n---\n\n"
LANGUAGES = {".py": "python", ".yaml": "yaml"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each file outside of docs/ that the site has."""
    for name, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / name).read_text("utf-8")))
    linked = set(PAGES)
    for file in [f for f in files if f.is_documentation_page()]:
        for link in LINK.findall(file.content_string):
            target = _in_project(link, file.src_uri)
            if target and target not in linked:
                linked.add(target)
                text = _shown(target)
                files.append(File.generated(config, f"files/{target}.md", content=text))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Let the links of a page lead to the pages of the site."""
    here = posixpath.dirname(page.file.src_uri)
    source = {v: k for k, v in PAGES.items()}.get(page.file.src_uri)

    def moved(match: re.Match[str]) -> str:
        link = match[1]
        if target := _in_project(link, page.file.src_uri):
            return posixpath.relpath(PAGES.get(target, f"files/{target}.md"), here or ".")
        return link.removeprefix("docs/") if source else link

    return LINK.sub(moved, markdown)


def on_post_page(output: str, page: Page, **_: object) -> str:
    """Take the script for searching in a page that is a file from the site, not from a server."""
    script = posixpath.relpath("assets/iframe-worker.js", posixpath.dirname(page.url) or ".")
    return output.replace("https://unpkg.com/iframe-worker/shim", script)


def _in_project(link: str, page: str) -> str | None:
    """The path of a linked file from the project's root, unless docs/ has it."""
    if ":" in link:
        return None
    folder = "" if page in PAGES.values() else posixpath.join("docs", posixpath.dirname(page))
    path = posixpath.normpath(posixpath.join(folder, link))
    return path if not path.startswith("docs/") and (ROOT / path).exists() else None


def _shown(path: str) -> str:
    """The page of a file, or of the names in a folder."""
    at = ROOT / path
    if at.is_dir():
        names = "\n".join(f"- `{f.name}`" for f in sorted(at.iterdir()) if f.is_file())
        return f"{UNSEARCHED}# {path}\n\n{names}\n"
    fence = f"```{LANGUAGES.get(at.suffix, 'text')}\n{at.read_text('utf-8').rstrip()}\n```"
    return f"{UNSEARCHED}# {path}\n\n{fence}\n"
