"""What a published site has beside its pages, and that it asks nothing of elsewhere."""

import re
from datetime import date
from xml.etree import ElementTree

import book_project
import pytest
import yaml
from docutils import nodes
from docutils.utils import new_document

from selfspec.study import site, social_card

ROOT = book_project.ROOT
META = r'<meta (?:name|property)="{}" content="([^"]*)">'


def test_every_page_has_a_description_and_a_card(built):
    seen = set()
    for name in ("index", "verdict", "claims", "mathematics", built.real):
        page = built.page(name)
        [text] = re.findall(META.format("description"), page)
        assert 20 <= len(text.replace("&#x27;", "'")) <= site.LONGEST + 20
        [card] = re.findall(META.format("og:image"), page)
        assert ((built.html / f"{name}.html").parent / card).resolve().is_file()
        [title] = re.findall(META.format("og:title"), page)
        seen.add((title, text))
    assert len(seen) == 5


def test_there_is_a_404_page_that_stands_alone(built):
    page = built.page("404")
    assert "There is no such page" in page and 'href="index.html"' in page
    assert not re.search(r"<(script|link|img)\b", page)
    assert (built.html / ".nojekyll").exists()


def test_the_map_names_every_page(built):
    tree = ElementTree.parse(built.html / "sitemap.xml")
    space = "{http://www.sitemaps.org/schemas/sitemap/0.9}"
    places = {node.text for node in tree.iter(f"{space}loc")}
    assert {"index.html", "claims.html", f"{built.real}.html"} <= places
    assert all((built.html / place).is_file() for place in places)


def test_a_published_site_knows_its_address(monkeypatch):
    monkeypatch.setenv(site.ADDRESS, "https://owner.example/name")
    assert "<loc>https://owner.example/name/index.html</loc>" in site.sitemap(["index"])
    monkeypatch.setenv(site.ADDRESS, "  ")
    assert "<loc>index.html</loc>" in site.sitemap(["index"])


def test_a_description_is_cut_between_words():
    page = new_document("page")
    page += nodes.paragraph(text="Short.")
    page += nodes.paragraph(text="word " * 60)
    text = site.describe(page)
    assert len(text) <= site.LONGEST and text.endswith("word\N{HORIZONTAL ELLIPSIS}")
    assert site.describe(None) == ""


def test_style_sheets_ask_nothing_of_elsewhere(built):
    sheets = [*built.html.rglob("*.css"), *built.html.rglob("*.html")]
    assert len(sheets) > 20
    for path in sheets:
        text = path.read_text("utf-8", errors="replace")
        assert not re.search(r"""(@import\s+["']|url\(\s*["']?)(https?:)?//""", text), (
            path
        )


def test_the_card_has_the_size_that_previews_expect(tmp_path):
    card = ROOT / "book" / "assets" / "social-card.png"
    head = card.read_bytes()[:24]
    assert head.startswith(b"\x89PNG")
    assert (int.from_bytes(head[16:20]), int.from_bytes(head[20:24])) == (1200, 630)
    social_card.draw(tmp_path / "card.png")
    assert (tmp_path / "card.png").stat().st_size > 10_000


def test_the_publishing_workflow_needs_only_what_the_book_needs():
    text = (ROOT / ".github" / "workflows" / "pages.yml").read_text()
    workflow = yaml.safe_load(text)
    steps = workflow["jobs"]["build"]["steps"]
    commands = [step["run"] for step in steps if "run" in step]
    assert "jupyter-book build book -W -n --keep-going" in commands
    assert any("-r requirements-book.txt" in command for command in commands)
    own = set(pins("requirements-book.txt"))
    assert own <= set(pins("requirements.txt")) and "mlx" not in {n for n, _ in own}


def pins(name):
    lines = (ROOT / name).read_text().splitlines()
    return [tuple(line.split("==")) for line in lines if re.match(r"[\w-]+==", line)]


def test_the_citation_file_keeps_to_its_schema():
    """Of the Citation File Format 1.2.0: what must be there, and nothing unknown."""
    found = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert found["cff-version"] == "1.2.0" and found["type"] in ("software", "dataset")
    assert {"message", "title", "authors"} <= set(found)
    known = "abstract authors cff-version commit contact date-released doi identifiers"
    known += " keywords license license-url message preferred-citation references"
    known += " repository repository-artifact repository-code title type url version"
    assert set(found) <= set(known.split())
    assert isinstance(found["date-released"], date)
    assert found["license"] == "MIT" and "MIT" in (ROOT / "LICENSE").read_text()
    assert len(found["keywords"]) == len(set(found["keywords"]))
    for work in [found, *found["references"]]:
        for author in work["authors"]:
            person = {"family-names", "given-names", "name-particle", "orcid"}
            assert set(author) == {"name"} or set(author) <= person, author
    for work in found["references"]:
        assert {"type", "title", "authors"} <= set(work)


@pytest.mark.parametrize("page", ["mathematics", "losslessness", "glossary", "verdict"])
def test_the_pages_of_the_back_and_front_are_built(built, page):
    assert (built.html / f"{page}.html").is_file()
