"""The book builds by the literal command: strictly, offline, without MLX, again."""

import json
import re
import subprocess
import sys
from importlib import metadata

import book_project
import pytest
import yaml
from book_project import STRICT, forget_runs

from selfspec.study import book_build, pages
from selfspec.study.errors import StudyError

ROOT = book_project.ROOT


def test_settings_are_real_at_the_root_and_links_in_the_book():
    for name in ("_config.yml", "_toc.yml"):
        link, real = ROOT / "book" / name, ROOT / name
        assert real.is_file() and not real.is_symlink()
        assert link.is_symlink() and str(link.readlink()) == f"../{name}"
    assert yaml.safe_load((ROOT / "book" / "_toc.yml").read_text())["root"] == "index"


def test_literal_command_builds_a_clean_copy_with_two_models(built):
    assert built.done.returncode == 0, built.done.stdout[-2000:] + built.done.stderr
    assert "WARNING" not in built.done.stdout + built.done.stderr
    assert built.html == built.root / "book" / "_build" / "html"
    own = (built.real, built.invented, *built.rules)
    for name in ("index", "method", "naive-sweep", "auto", *own):
        assert (built.html / f"{name}.html").is_file(), name
    assert set(own) <= set(built.written.pages)


def test_building_needs_no_mlx(built, no_mlx):
    """`built` was built with this on its import path, where MLX fails to import."""
    code = "import selfspec.study.values_role\nimport mlx"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(no_mlx)},
        capture_output=True,
        text=True,
    )
    assert "no MLX here" in done.stderr
    assert built.done.returncode == 0


def test_figures_have_alt_text_captions_and_their_data(built):
    for name, least in ((built.real, 3), (built.invented, 1)):
        page = built.page(name)
        figures = re.findall(r"<figure .*?</figure>", page, re.DOTALL)
        assert len(figures) >= least
        for figure in figures:
            [alt] = re.findall(r'<img[^>]* alt="([^"]*)"', figure)
            assert " " in alt and "_images" not in alt and not alt.endswith(".svg")
            assert re.search(r'src="[^"]*\.svg"', figure)
            assert "caption-text" in figure
            [data] = re.findall(r'href="([^"]*naive-sweep\.csv)"', figure)
            place = (built.html / f"{name}.html").parent / data
            assert place.resolve().read_text().startswith("schema,run_id,size")


def test_each_run_page_has_its_own_title_and_its_origins(built):
    titles = []
    for name in built.written.pages:
        page = built.page(name)
        titles += re.findall(r"<title>(.*?)</title>", page, re.DOTALL)
        assert "Where these numbers come from" in page
        assert "Show code cell source" in page  # the folded defaults
        assert "# Parameters" in re.sub(r"<[^>]+>", "", page)
    assert len(set(titles)) == len(titles) == len(built.written.pages)


def test_answer_and_table_show_both_runs(built):
    for name in ("index", "naive-sweep"):
        assert "tiny-study" in built.page(name) and "tiny-0.5b" in built.page(name)
    assert f'href="{built.real}.html"' in built.page("naive-sweep")


def test_two_models_under_the_rule_stand_side_by_side(built):
    """Two pages of one template: own titles, labels, figures; no warning in the build."""
    assert built.done.returncode == 0 and len(set(built.rules)) == 2
    home = built.page("auto")
    for name in built.rules:
        assert f'href="{name}.html"' in home
        page = built.page(name)
        figures = re.findall(r"<figure .*?</figure>", page, re.DOTALL)
        assert len(figures) == 2
        for figure in figures:
            [alt] = re.findall(r'<img[^>]* alt="([^"]*)"', figure)
            assert " " in alt and not alt.endswith(".svg")
            [data] = re.findall(r'href="([^"]*auto\.csv)"', figure)
            place = (built.html / f"{name}.html").parent / data
            assert place.resolve().read_text().startswith("schema,run_id,size,draft")
        assert "too few prompts" in page  # two prompts give no interval, and it says so
    # the sweep of the first model timed the same skip set at a fixed length
    first, second = (built.page(name) for name in built.rules)
    assert "(2 tokens)" in first and "(2 tokens)" not in second


def test_no_page_loads_anything_from_elsewhere(built):
    for path in built.html.rglob("*.html"):
        tags = re.findall(r"<(?:script|link|img|iframe)\b[^>]*>", path.read_text())
        loaded = [
            tag for tag in tags if re.search(r'(?:src|href)="(?:https?:)?//', tag)
        ]
        assert loaded == [], path.name


def test_math_comes_from_the_project(built):
    assert re.search(r'src="_static/mathjax/tex-svg\.js[^"]*"', built.page("index"))
    assert (
        built.html / "_static" / "mathjax" / "tex-svg.js"
    ).stat().st_size > 1_000_000


def test_no_run_builds_and_an_ordinary_rebuild_shows_the_new_figure(changing):
    """MyST-NB 299: a page kept its old number when what it depends on had changed."""
    index = book_build.build_book(changing)
    assert index == changing / "book" / "_build" / "html" / "index.html"
    assert "Not yet measured" in index.read_text()
    assert "reaches: <span" in book_project.html(changing, "naive-sweep")

    for speedup, verify in ((0.9, 1.31), (0.4, 1.62)):
        forget_runs(changing)
        costs = {"verify_ratio": {"3": verify}, "blas_threads": 0}
        book_project.add_results(changing, speedup=speedup, costs=costs)
        pages.write(changing)
        done = book_project.build(changing, *STRICT)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr
        number = re.search(
            r'reaches: <span class="result">([\d.]+)</span>',
            book_project.html(changing, "naive-sweep"),
        ).group(1)
        assert abs(float(number) - speedup) < 0.02
        assert f"at {number} times" in re.sub(r"\s+", " ", index.read_text())
        # a page that includes nothing: only the role ties it to the results
        shown = f'<span class="result">{verify}</span>'
        assert shown in book_project.html(changing, "method")
    forget_runs(changing)
    book_build.build_book(changing)
    assert "Not yet measured" in index.read_text()


def test_unknown_key_fails_every_build_until_it_is_mended(changing):
    """Sphinx does not repeat the warning of a page that it need not read again."""
    page = changing / "book" / "references.md"
    text = page.read_text()
    page.write_text(text + "\n{result}`no.such.key:.2f`\n")
    try:
        for _ in range(2):
            with pytest.raises(StudyError, match="no value named 'no.such.key'"):
                book_build.build_book(changing)
    finally:
        page.write_text(text)
    assert book_build.build_book(changing).is_file()


def test_pages_that_left_the_book_leave_the_site_and_are_named(changing, built):
    """A page whose results are gone: not built, and the reader is told."""
    page = changing / "book" / f"{built.invented}.ipynb"
    page.parent.mkdir(parents=True)
    page.write_bytes((built.root / "book" / f"{built.invented}.ipynb").read_bytes())
    orphan = changing / "book" / "_build" / "html" / "runs" / "m--x" / "old.html"
    orphan.parent.mkdir(parents=True, exist_ok=True)
    orphan.write_text("old")
    said = []
    book_build.build_book(changing, say=said.append)
    assert not orphan.exists()
    [line] = said
    assert (
        line.startswith(f"book/{built.invented}.ipynb is left out")
        and "Way out" in line
    )
    forget_runs(changing)


@pytest.mark.parametrize("found", ["2.1.7", "0.6.5", None])
def test_another_jupyter_book_is_refused(changing, monkeypatch, found):
    """the-turing-way 3958: version 2 given a folder builds nothing and exits 0."""

    def version(name):
        if found is None:
            raise metadata.PackageNotFoundError(name)
        return found

    monkeypatch.setattr(book_build, "version", version)
    with pytest.raises(
        StudyError, match=f"found {found or 'none'}. Way out: pip install"
    ):
        book_build.build_book(changing)


@pytest.mark.parametrize(
    "line, share",
    [
        ("reading sources... [ 12%] method", 12),
        ("reading sources... [100%] references", 100),
        ("writing output... [ 50%] index", 150),
        ("copying images... [ 10%] x.svg", 0),
        ("build succeeded.", 0),
    ],
)
def test_progress_is_read_from_the_builders_log(line, share):
    assert book_build.how_far(line) == share


def test_links_that_a_checkout_turned_into_text_are_named(changing):
    link = changing / "book" / "_config.yml"
    link.unlink()
    link.write_text("../_config.yml")
    try:
        with pytest.raises(StudyError, match="is not a link.*ln -sf ../_config.yml"):
            book_build.build_book(changing)
    finally:
        link.unlink()
        link.symlink_to("../_config.yml")


def test_pinned_versions_are_the_ones_in_use():
    text = (ROOT / "requirements.txt").read_text()
    for name in ("jupyter-book", "sphinx", "docutils", "sphinxcontrib-bibtex"):
        assert f"{name}=={metadata.version(name)}" in text


def test_values_file_lists_what_prose_may_quote(built):
    values = json.loads((built.root / "book/_generated/values.json").read_text())
    for path in (built.root / "book").glob("*.md"):
        for key in re.findall(r"\{result\}`([^`:]+)", path.read_text()):
            assert key in values, f"{path.name}: {key}"
