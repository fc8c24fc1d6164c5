"""The live page in a real Chromium: drawn, following the stream, without errors, on a phone and on a desk."""

from __future__ import annotations

import shutil

import pytest

from steelyard.service import Scribe, SQLiteStore
from steelyard.service.http import make_app
from tests.service.data import SPEC, records
from tests.service.server import serving

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
driver = pytest.importorskip("playwright.sync_api", reason="playwright drives the browser")

pytestmark = pytest.mark.skipif(
    CHROMIUM is None,
    reason="no Chromium is installed, so no browser looks at the page (Debian: apt install chromium)",
)


@pytest.fixture(scope="module")
def http(tmp_path_factory):
    store = SQLiteStore(tmp_path_factory.mktemp("page") / "store.db")
    with serving(make_app(Scribe(store))) as client:
        client.put("/v1/models/payments", json=SPEC)
        for begin in range(0, 1_000, 100):
            rows = records(100, seed=begin, first=begin)
            client.post("/v1/models/payments/learn", json={"rows": rows})
        yield client


@pytest.fixture(scope="module")
def browser():
    with driver.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_draws_and_follows_without_errors(http, browser, width, scheme):
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    wrong, elsewhere = [], []
    page.on("console", lambda said: wrong.append(said.text) if said.type in {"error", "warning"} else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on(
        "request",
        lambda sent: None if sent.url.startswith(str(http.base_url)) else elsewhere.append(sent.url),
    )
    page.goto(str(http.base_url))
    page.get_by_text("payments").first.wait_for()
    overview = page.evaluate("document.documentElement.scrollWidth")
    page.goto(f"{http.base_url}/models/payments")
    page.locator("canvas").first.wait_for()
    first = 2_000 + 1_000 * (width == 390) + 500 * (scheme == "dark")
    learned = http.post("/v1/models/payments/learn", json={"rows": records(100, first=first)}).json()
    http.post("/v1/models/payments/learn", json={"rows": records(1, first=first + 400)})
    page.wait_for_function(
        "version => document.getElementById('pulse').textContent.endsWith(version)",
        arg=f"version {learned['version'] + 1}",
    )
    digest = http.get("/v1/models/payments").json()["digest"]
    page.get_by_text(digest).wait_for()  # the last change is drawn, also when it came soon after another
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    widest = page.evaluate("document.documentElement.scrollWidth")
    page.close()
    assert wrong == elsewhere == []
    assert max(overview, widest) <= width
    lightness = sum(int(part) for part in ground.strip("rgba()").split(",")[:3])
    assert (lightness > 3 * 128) == (scheme == "light")
