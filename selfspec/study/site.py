"""What a published site needs beside its pages: descriptions, a card, a map, a 404 page.

A Sphinx extension, so that the literal build command makes them too. Where the site will
stand is known only when it is published: SELFSPEC_SITE_URL says so, and without it
addresses are relative and the pages work from a folder. Knows neither MLX nor results.

    SELFSPEC_SITE_URL=https://owner.github.io/name/ jupyter-book build book
"""

import os
import re
from html import escape, unescape
from pathlib import Path

from docutils import nodes

ADDRESS = "SELFSPEC_SITE_URL"
CARD = "_static/social-card.png"
LONGEST = 160  # letters of a description that search engines show
NOT_FOUND = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
<title>Not found - {title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 1.1rem/1.6 system-ui, sans-serif; max-width: 34rem; margin: 15vh auto;
  padding: 0 1.5rem; }}
</style>
</head>
<body>
<main>
<h1>There is no such page</h1>
<p>It may have belonged to a run that has been removed.</p>
<p><a href="{home}index.html">{title}</a></p>
</main>
</body>
</html>
"""


def address() -> str:
    """Where the site will stand, with a slash at the end; '' where nobody said."""
    given = os.environ.get(ADDRESS, "").strip()
    return given.rstrip("/") + "/" if given else ""


def describe(doctree: nodes.document | None) -> str:
    """The page's first sentences, at most LONGEST letters, cut between words."""
    if doctree is None:
        return ""
    for paragraph in doctree.findall(nodes.paragraph):
        text = " ".join(paragraph.astext().split())
        if len(text) < 20:
            continue
        if len(text) > LONGEST:
            text = text[: LONGEST - 1].rsplit(" ", 1)[0] + "\N{HORIZONTAL ELLIPSIS}"
        return text
    return ""


def add_metatags(app, pagename, templatename, context, doctree) -> None:
    """Description and social card of a page; Sphinx calls it before each is written."""
    text = describe(doctree)
    if not text:
        return
    site = app.config.html_title or app.config.project
    title = unescape(re.sub("<[^>]+>", "", context.get("title") or site))
    here = "" if address() else context["pathto"](CARD, resource=True)
    tags = {
        "og:type": "website",
        "og:site_name": site,
        "og:title": title,
        "og:description": text,
        "og:image": here or f"{address()}{CARD}",
        "og:image:alt": "The acceptance-cost plane: a draft pays above the diagonal",
    }
    if address():
        tags["og:url"] = f"{address()}{pagename}.html"
    lines = [f'<meta name="description" content="{escape(text)}">']
    lines += [
        f'<meta property="{name}" content="{escape(value)}">'
        for name, value in tags.items()
    ]
    lines.append('<meta name="twitter:card" content="summary_large_image">')
    context["metatags"] = context.get("metatags", "") + "\n".join(lines)


def finish(app, error) -> None:
    """Write 404.html, sitemap.xml and .nojekyll beside the pages."""
    if error or app.builder.format != "html":
        return
    folder = Path(app.outdir)
    title = app.config.html_title or app.config.project
    page = NOT_FOUND.format(title=escape(title), home=escape(address()))
    (folder / "404.html").write_text(page, encoding="utf-8")
    (
        folder / ".nojekyll"
    ).touch()  # or GitHub leaves out every folder that begins with _
    (folder / "sitemap.xml").write_text(sitemap(app.env.found_docs), encoding="utf-8")


def sitemap(pages) -> str:
    """The map of these pages; relative addresses where nobody said where the site is."""
    lines = [
        f"  <url><loc>{escape(address() + name)}.html</loc></url>"
        for name in sorted(pages)
    ]
    return "\n".join(
        [
            '<?xml version="1.0" encoding="utf-8"?>',
            '<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">',
            *lines,
            "</urlset>",
            "",
        ]
    )


def setup(app):
    """Called by Sphinx."""
    app.connect("html-page-context", add_metatags)
    app.connect("build-finished", finish)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
