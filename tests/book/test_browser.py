"""The built site in a real browser: no error, nothing missing, nothing from elsewhere."""

import functools
import os
import re
import shutil
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
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


def test_every_page_opens_without_an_error_fits_a_phone_and_describes_its_pictures(
    visit, built
):
    names = sorted(
        path.relative_to(built.html).with_suffix("").as_posix()
        for path in built.html.rglob("*.html")
        if "_static" not in path.parts
    )
    assert {"index", "verdict", "claims", "api", "404", built.real} <= set(names)
    pictures = 0
    for name in names:
        page = visit(name)
        assert page.complaints == [], name
        for picture in page.locator("article img").all():
            drawn = "image => image.complete && image.naturalWidth > 0"
            assert picture.evaluate(drawn), name
            alt = picture.get_attribute("alt")
            assert alt and " " in alt and not re.search(r"[\w-]+\.(svg|png)$", alt), (
                name
            )
            pictures += 1
        page.set_viewport_size({"width": 390, "height": 800})
        width = page.evaluate("document.scrollingElement.scrollWidth")
        assert width <= 390, f"{name} is {width} wide"
        page.close()
    assert pictures > 10


def test_formulas_are_set_from_the_projects_own_file(visit):
    page = visit("index")
    page.wait_for_selector("mjx-container svg")
    assert page.locator("mjx-container").count() > 5
    assert page.locator("mjx-merror").count() == 0
    page.close()


def test_figures_stay_on_a_light_ground_in_dark_mode(visit, built):
    for name in ("index", built.real):
        page = visit(name, color_scheme="dark")
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"
        colours = page.locator("article figure img").evaluate_all(
            "images => images.map(image => getComputedStyle(image).backgroundColor)"
        )
        assert colours
        for colour in colours:
            light = re.fullmatch(r"rgb\((.*)\)", colour)
            assert light and min(map(int, light[1].split(","))) > 180, (name, colour)
        page.close()


@pytest.mark.parametrize(
    ("word", "expected"),
    [("bootstrap", "method"), ("knapsack", "knapsack"), ("stream_generate", "api")],
)
def test_search_field_finds(visit, word, expected):
    page = visit("search")
    page.goto(page.url + f"?q={word}")
    page.wait_for_selector("#search-results a")
    found = page.locator("#search-results a").evaluate_all(
        "links => links.map(link => link.getAttribute('href'))"
    )
    assert any(Path(link.partition("?")[0]).stem == expected for link in found), found
    page.close()


def test_the_keyboard_reaches_the_content_first(visit):
    """The first stop is a link that jumps over the side bar, and it arrives."""
    page = visit("index")
    page.keyboard.press("Tab")
    first = page.evaluate("document.activeElement.textContent.trim()")
    assert "Skip to main content" in first
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    inside = "document.querySelector('#main-content, main').contains"
    assert page.evaluate(f"{inside}(document.activeElement)")
    page.close()


@pytest.fixture(scope="module")
def served(built):
    """The site over HTTP, as it is published; a file:// page may not download."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *words):
            pass

    handler = functools.partial(Quiet, directory=str(built.html))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize(
    ("name", "beginning"),
    [("verdict", "schema,run_id"), ("index", "model,method"), ("run", "schema,run_id")],
)
def test_data_links_download(browser, served, built, name, beginning):
    page = browser.new_page(accept_downloads=True)
    page.goto(f"{served}/{built.real if name == 'run' else name}.html")
    links = page.locator("article a.download")
    assert links.count()
    link = links.last if name == "run" else links.first
    with page.expect_download() as waiting:
        link.click()
    assert Path(waiting.value.path()).read_text("utf-8").startswith(beginning)
    page.close()
