"""The built site in a real browser: no error, nothing missing, nothing from elsewhere."""

import os
import re
import shutil
from pathlib import Path

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
MAC = Path("/Applications/Google Chrome.app/Contents/MacOS/Google Chrome")


@pytest.fixture(scope="module")
def browser():
    """Headless Chromium; CI must have one, a reader's machine need not."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    found = found or (str(MAC) if MAC.exists() else None)
    if not found:
        if os.environ.get("CI"):
            pytest.fail("CI has no Chromium: install the package chromium")
        pytest.skip("no Chromium or Chrome on this machine to open the pages in")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        chromium = play.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def visit(browser, built):
    """Opens a built page; what went wrong on it is in `page.complaints`."""

    def open_page(name, **options):
        page = browser.new_page(**options)
        page.complaints = []
        page.on(
            "console",
            lambda message: (
                message.type == "error"
                and page.complaints.append(f"console: {message.text}")
            ),
        )
        page.on("pageerror", lambda error: page.complaints.append(f"script: {error}"))
        page.on("requestfailed", lambda r: page.complaints.append(f"failed: {r.url}"))
        page.on(
            "request",
            lambda request: (
                request.url.startswith(("file:", "data:"))
                or page.complaints.append(f"elsewhere: {request.url}")
            ),
        )
        page.goto((built.html / f"{name}.html").as_uri(), wait_until="load")
        return page

    return open_page


def test_pages_open_without_an_error(visit, built):
    names = sorted(
        path.relative_to(built.html).with_suffix("").as_posix()
        for path in built.html.rglob("*.html")
        if "_static" not in path.parts
    )
    assert {"index", built.real, built.invented, "search"} <= set(names)
    for name in names:
        page = visit(name)
        assert page.complaints == [], name
        page.close()


def test_every_figure_is_drawn_and_has_alt_text(visit, built):
    for name in (built.real, built.invented):
        page = visit(name)
        pictures = page.locator("article img").all()
        assert pictures
        for picture in pictures:
            assert picture.evaluate("image => image.complete && image.naturalWidth > 0")
            alt = picture.get_attribute("alt")
            assert alt and " " in alt and not re.search(r"[\w-]+\.(svg|png)$", alt)
        page.close()


def test_formulas_are_set_from_the_projects_own_file(visit):
    page = visit("index")
    page.wait_for_selector("mjx-container svg")
    assert page.locator("mjx-container").count() > 5
    assert page.locator("mjx-merror").count() == 0
    page.close()


def test_figures_stay_on_a_light_ground_in_dark_mode(visit, built):
    page = visit(built.real, color_scheme="dark")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    colours = page.locator("article figure img").evaluate_all(
        "images => images.map(image => getComputedStyle(image).backgroundColor)"
    )
    assert colours
    for colour in colours:
        red, green, blue = map(int, re.fullmatch(r"rgb\((.*)\)", colour)[1].split(","))
        assert min(red, green, blue) > 180, colour
    page.close()


def test_nothing_is_wider_than_a_phone(visit, built):
    for name in ("index", "naive-sweep", built.real):
        page = visit(name, viewport={"width": 390, "height": 800})
        width = page.evaluate("document.scrollingElement.scrollWidth")
        assert width <= 390, f"{name} is {width} wide"
        page.close()


def test_search_field_finds_the_method(visit):
    page = visit("search")
    page.goto(page.url + "?q=bootstrap")
    page.wait_for_selector("#search-results a")
    assert "method" in page.locator("#search-results a").first.get_attribute("href")
    page.close()
