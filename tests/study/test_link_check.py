"""Links that lead nowhere are found, others are left in peace."""

import json

import pytest

from selfspec.study import link_check


@pytest.fixture
def root(tmp_path):
    for folder in ("book/runs/m--x", "results"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "README.md").write_text("[book](book/index.md) ![](book/plane.svg)\n")
    (tmp_path / "book" / "plane.svg").write_text("<svg/>")
    (tmp_path / "book" / "index.md").write_text("# Index\n")
    return tmp_path


@pytest.mark.parametrize(
    "text",
    [
        "[page](index.md) [page](index) [place](index.md#place) [label](#label)",
        "[web](https://example.org/x) [mail](mailto:a@b.c) ![alt](plane.svg)",
        '![alt](plane.svg "a title")',
        "`[no](link.md)` in code",
        "```\n[no](link.md)\n```",
        "```{include} plane.svg\n```",
        "[with space](<plane.svg>)",
    ],
)
def test_what_is_there_is_no_fault(root, text):
    (root / "book" / "other.md").write_text(text)
    assert link_check.in_sources(root) == []


@pytest.mark.parametrize(
    "text, target",
    [
        ("[gone](gone.md)", "gone.md"),
        ("![alt](gone.svg)", "gone.svg"),
        ("```{include} _generated/gone.md\n```", "_generated/gone.md"),
        (":::{figure} gone.svg\n:::", "gone.svg"),
        ("```{note}\n[gone](../results/gone.csv)\n```", "../results/gone.csv"),
        ("```{note}\nx\n```\n[gone](gone.md)\n```\ncode\n```", "gone.md"),
        ("{download}`data <../results/gone.csv>`", "../results/gone.csv"),
    ],
)
def test_what_is_not_there_is_named_with_its_page(root, text, target):
    (root / "book" / "other.md").write_text(text)
    assert link_check.in_sources(root) == [f"book/other.md: no file {target}"]


def test_a_run_page_links_to_its_data(root):
    cell = {"cell_type": "markdown", "source": ["[CSV](../../../results/a.csv)"]}
    page = root / "book" / "runs" / "m--x" / "auto-smoke.ipynb"
    page.write_text(json.dumps({"cells": [cell]}))
    [line] = link_check.in_sources(root)
    assert line == ("book/runs/m--x/auto-smoke.ipynb: no file ../../../results/a.csv")
    (root / "results" / "a.csv").write_text("")
    assert link_check.in_sources(root) == []


@pytest.fixture
def site(tmp_path):
    html = tmp_path / "html"
    (html / "sub").mkdir(parents=True)
    (html / "index.html").write_text('<h1 id="top">x</h1><a href="sub/page.html#a">')
    (html / "sub" / "page.html").write_text(
        '<p id="a"></p><a href="../index.html"></a><a href="../index.html#top"></a>'
        '<a href="https://example.org"></a><img src="data:image/png;base64,x">'
    )
    return html


def test_a_whole_site_has_no_fault(site):
    assert link_check.in_site(site) == []


@pytest.mark.parametrize(
    "tag, says",
    [
        ('<a href="gone.html">', "no file gone.html"),
        ('<a href="index.html#gone">', "no place index.html#gone"),
        ('<a href="#gone">', "no place #gone"),
        ('<img src="gone.svg">', "no file gone.svg"),
        ('<a href="_downloads/gone.csv">', "no file _downloads/gone.csv"),
        ('<script src="https://cdn.example/x.js">', "loads https://cdn.example/x.js"),
        ('<link rel="stylesheet" href="//cdn/x.css">', "loads //cdn/x.css"),
    ],
)
def test_a_dead_link_of_the_site_is_named(site, tag, says):
    (site / "other.html").write_text(tag)
    [line] = link_check.in_site(site)
    assert line.startswith(f"other.html: {says}")
