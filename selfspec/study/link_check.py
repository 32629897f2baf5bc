"""Links that lead nowhere: in the book's sources, and in the built site.

Looks at files only, never at the network; needs no MLX. A fault is one line.

    in_sources(Path("."))                      # README.md: no file book/plane.svg
    in_site(Path("book/_build/html"))          # machine.html: no page x.html
"""

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# [words](target) and ![words](target); a directive that names a file.
_LINK = re.compile(r"!?\[[^\]]*\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)")
_DIRECTIVE = re.compile(
    r"^[`:]{3,}\{(?:include|figure|image|literalinclude)\} *(\S+)", re.M
)
_ROLE = re.compile(r"\{download\}`(?:[^`<]*<)?([^`>]+)>?`")
_FENCE = re.compile(r" *(`{3,}|~{3,})(.*)")
_CODE = re.compile(r"`[^`\n]+`")
_ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:|//", re.I)
_ASSETS = {"script": "src", "img": "src", "iframe": "src", "source": "src"}
_LINKED_ASSETS = {"stylesheet", "icon", "preload", "manifest"}
PAGES = (".md", ".ipynb")  # a page may be named without its ending


def in_sources(root: Path) -> list[str]:
    """Dead links of README.md, of the pages in book/ and of the run pages."""
    found = []
    pages = [root / "README.md", *sorted((root / "book").glob("*.md"))]
    pages += sorted((root / "book" / "runs").glob("*/*.ipynb"))
    for page in filter(Path.is_file, pages):
        name = page.relative_to(root).as_posix()
        found += [
            f"{name}: no file {target}"
            for target in dict.fromkeys(_targets(_markdown(page)))
            if not _is_there(page.parent, target)
        ]
    return found


def _markdown(page: Path) -> str:
    if page.suffix != ".ipynb":
        return page.read_text(encoding="utf-8")
    try:
        cells = json.loads(page.read_text(encoding="utf-8"))["cells"]
        return "\n\n".join(
            "".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"
        )
    except (ValueError, KeyError, TypeError):
        return ""  # no page at all, which is told elsewhere


def _targets(text: str) -> Iterator[str]:
    prose = _prose(text)
    yield from _DIRECTIVE.findall(text)
    yield from _ROLE.findall(prose)
    yield from _LINK.findall(_CODE.sub("", prose))


def _prose(text: str) -> str:
    """The text without blocks of code; what a directive holds is prose."""
    kept, fence, is_code = [], "", False
    for line in text.splitlines():
        found = _FENCE.match(line)
        if found and not fence:
            fence, is_code = found[1], not found[2].startswith("{")
        elif found and found[1].startswith(fence) and not found[2].strip():
            fence, is_code = "", False
        elif not is_code:
            kept.append(line)
    return "\n".join(kept)


def _is_there(folder: Path, target: str) -> bool:
    """Whether a link has a file; labels and addresses elsewhere are not its business."""
    if target.startswith("#") or _ELSEWHERE.match(target):
        return True
    path = folder / unquote(urlsplit(target).path)
    return path.exists() or any(
        path.with_name(path.name + ending).exists() for ending in PAGES
    )


class _Page(HTMLParser):
    """What a page links to, loads and can be jumped to in."""

    def __init__(self):
        super().__init__()
        self.links: list[str] = []
        self.assets: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.anchors |= {value for key in ("id", "name") if (value := given.get(key))}
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        if tag in _ASSETS and given.get(_ASSETS[tag]):
            self.assets.append(given[_ASSETS[tag]])
        if tag == "link" and _LINKED_ASSETS & set((given.get("rel") or "").split()):
            self.assets.append(given.get("href") or "")


def in_site(html: Path) -> list[str]:
    """Dead links and assets of a built site, and assets that are not its own."""
    pages = {path.resolve(): _read(path) for path in _pages(html)}
    found = []
    for path, page in pages.items():
        name = path.relative_to(html.resolve()).as_posix()
        for asset in dict.fromkeys(page.assets):
            if _ELSEWHERE.match(asset) and not asset.startswith("data:"):
                found.append(f"{name}: loads {asset}, which is not the site's own")
            elif not asset.startswith("data:") and not _file(path, asset).is_file():
                found.append(f"{name}: no file {asset}")
        for link in dict.fromkeys(page.links):
            if not _ELSEWHERE.match(link) and (why := _dead(path, link, pages)):
                found.append(f"{name}: {why}")
    return found


def _pages(html: Path) -> list[Path]:
    return [p for p in sorted(html.rglob("*.html")) if "_static" not in p.parts]


def _read(path: Path) -> _Page:
    page = _Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def _file(page: Path, target: str) -> Path:
    path = unquote(urlsplit(target).path)
    return (page.parent / path).resolve() if path else page


def _dead(page: Path, link: str, pages: dict[Path, _Page]) -> str:
    """Why a link leads nowhere; "" where it leads somewhere."""
    file, anchor = _file(page, link), unquote(urlsplit(link).fragment)
    if file.is_dir():
        file /= "index.html"
    if not file.is_file():
        return f"no file {link}"
    if anchor and file in pages and anchor not in pages[file].anchors:
        return f"no place {link}"
    return ""
