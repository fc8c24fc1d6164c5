"""The web page in Chromium: it draws and updates without errors, in the sizes of a phone and a desktop."""

from __future__ import annotations

import re
import shutil

import numpy as np
import pytest

from steelyard.service import SQLiteStore, Writer
from steelyard.service.http import make_app
from steelyard.service.http.keys import Keys
from tests.service.data import SPEC, records
from tests.service.processes import until
from tests.service.server import serving

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
driver = pytest.importorskip("playwright.sync_api", reason="playwright drives the browser")

pytestmark = pytest.mark.skipif(
    CHROMIUM is None,
    reason="Chromium is not installed (Debian: apt install chromium)",
)


@pytest.fixture(scope="module")
def http(tmp_path_factory):
    store = SQLiteStore(tmp_path_factory.mktemp("page") / "store.db")
    with serving(make_app(Writer(store))) as client:
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


def wait_for_version(page, version):
    """Wait until the page shows a version.

    A locator is used, because the content security policy of the page forbids evaluating scripts.
    """
    page.locator("#pulse", has_text=re.compile(rf"version {version:,}$")).wait_for()


def test_page_of_ensemble_shows_experts_and_lists_many_classes(http, browser):
    http.put("/v1/models/claims", json={"target": "kind", "learner": {"class": "StreamClassifier"}})
    http.put("/v1/models/letters", json={"target": "kind"})
    rng = np.random.default_rng(0)
    for model, n_classes in (("claims", 2), ("letters", 10)):
        for _ in range(4):
            kinds = rng.integers(n_classes, size=100)
            rows = [{"a": float(k + rng.normal()), "b": float(rng.normal()), "kind": f"k{k}"} for k in kinds]
            http.post(f"/v1/models/{model}/learn", json={"rows": rows}).raise_for_status()
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(f"{http.base_url}/models/claims")
    page.get_by_role("heading", name="Experts").wait_for()
    experts = http.get("/v1/models/claims").json()["experts"]
    assert len(experts) > 2
    for expert in experts:
        page.get_by_role("cell", name=expert["name"], exact=True).wait_for()
    page.get_by_role("heading", name="Latency of recent requests").wait_for()
    page.goto(f"{http.base_url}/models/letters")
    page.get_by_text("Average recall of").wait_for()
    page.get_by_text("and 2 more classes").wait_for()
    assert page.get_by_text("AUC").count() == 0
    page.close()


def test_page_marks_drift_in_the_curve(http, browser):
    page = browser.new_page(viewport={"width": 1280, "height": 900})

    def with_drift(route):
        route.fulfill(json={**http.get("/v1/models/payments").json(), "drifts": [500, 700]})

    page.route("**/v1/models/payments", with_drift)
    page.goto(f"{http.base_url}/models/payments")
    page.get_by_text("Dashed lines: concept drift (2 in this chart).").wait_for()
    page.close()


def test_page_cards_can_be_focused_and_opened_by_keyboard(http, browser):
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(str(http.base_url))
    card = page.locator("a.card", has_text="payments")
    card.wait_for()
    for _ in range(20):
        page.keyboard.press("Tab")
        if card.evaluate("card => card === document.activeElement"):
            break
    page.keyboard.press("Enter")
    page.wait_for_url("**/models/payments")
    page.close()


def test_page_curve_zooms_by_keyboard_and_keeps_zoom_on_updates(http, browser):
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(f"{http.base_url}/models/payments")
    page.locator("canvas").first.wait_for()
    chart = page.get_by_role("group", name="Chart of G-mean")
    span = "holder => holder.chart.scales.x.max - holder.chart.scales.x.min"
    chart.focus()
    whole = chart.evaluate(span)
    page.keyboard.press("Home")
    first = chart.locator(".u-legend").inner_text()
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    assert chart.evaluate("holder => holder.at") == 4
    assert chart.locator(".u-legend").inner_text() != first
    page.keyboard.press("+")
    until(lambda: chart.evaluate(span) < whole)
    zoomed = chart.evaluate(span)
    learned = http.post("/v1/models/payments/learn", json={"rows": records(100, first=9_000)}).json()
    wait_for_version(page, learned["version"])
    assert chart.evaluate(span) == zoomed
    page.keyboard.press("Escape")
    until(lambda: chart.evaluate(span) >= whole)
    page.close()


@pytest.mark.parametrize("width", [390, 1280, 1920])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_draws_and_updates_without_errors(http, browser, width, scheme):
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
    first = 20_000 + 1_000 * (width % 7) + 500 * (scheme == "dark")
    learned = http.post("/v1/models/payments/learn", json={"rows": records(100, first=first)}).json()
    http.post("/v1/models/payments/learn", json={"rows": records(1, first=first + 400)})
    wait_for_version(page, learned["version"] + 1)
    digest = http.get("/v1/models/payments").json()["digest"]
    page.get_by_text(digest).wait_for()  # the last of two quick changes is drawn
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    widest = page.evaluate("document.documentElement.scrollWidth")
    page.close()
    assert wrong == elsewhere == []
    assert max(overview, widest) <= width
    lightness = sum(int(part) for part in ground.strip("rgba()").split(",")[:3])
    assert (lightness > 3 * 128) == (scheme == "light")


def test_overview_searches_and_sorts_worst_model_first(http, browser):
    for name, noise in (("bad-model", 9.0), ("good-model", 0.1)):
        http.put(f"/v1/models/{name}", json={"target": "y"})
        rng = np.random.default_rng(0)
        for _ in range(3):
            labels = rng.integers(2, size=100)
            rows = [{"a": float(2 * y + noise * rng.normal()), "y": int(y)} for y in labels]
            http.post(f"/v1/models/{name}/learn", json={"rows": rows}).raise_for_status()
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(str(http.base_url))
    page.locator("a.card").first.wait_for()
    names = [text.strip() for text in page.locator("a.card h2").all_inner_texts()]
    assert names.index("bad-model") < names.index("good-model")
    page.get_by_label("Order of the models").select_option("name")
    page.locator("a.card h2").first.filter(has_text="bad-model").wait_for()
    page.get_by_label("Search models").fill("GOOD")
    page.get_by_text("bad-model").wait_for(state="detached")
    assert page.locator("a.card").count() == 1
    page.get_by_label("Search models").fill("nothing like this")
    page.get_by_text("No model has this name.").wait_for()
    page.close()


def test_page_shows_columns_challenger_versions_and_time_range(http, browser):
    http.put("/v1/models/payments/challenger", json={"learner": {"class": "ProximalSVC", "C": 0.1}})
    http.post("/v1/models/payments/learn", json={"rows": records(100, first=70_000)}).raise_for_status()
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(f"{http.base_url}/models/payments")
    for title in ("Columns", "Challenger", "Versions", "Requests", "Errors", "Delay of labels"):
        page.get_by_role("heading", name=title, exact=True).wait_for()
    page.get_by_role("cell", name="country", exact=True).first.wait_for()
    page.get_by_role("button", name="compare").first.click()
    page.get_by_role("cell", name=re.compile(r"^\d+ %$")).first.wait_for()
    with page.expect_response(lambda r: "/activity?since=" in r.url):
        page.get_by_label("Time range of the curves").select_option("1 hour")
    page.close()
    http.delete("/v1/models/payments/challenger").raise_for_status()


def test_page_reports_wrong_key_and_shows_metrics_to_admin_key(browser, tmp_path):
    path = tmp_path / "keys.toml"
    some, token = Keys.add(path, ["predict"], ["payments"]), Keys.add(path, ["admin"])[1]
    with serving(make_app(Writer(SQLiteStore(tmp_path / "s.db")), keys=Keys(path))) as http:
        http.put("/v1/models/payments", json=SPEC, headers={"authorization": f"Bearer {token}"})
        page = browser.new_page()
        page.goto(str(http.base_url))
        for key, answer in (("sy_wrong_key", "The key was refused"), (some[1], "payments")):
            page.get_by_label("Key").fill(key)
            page.get_by_role("button", name="Open").click()
            page.get_by_text(answer).first.wait_for()
        page.get_by_role("link", name="Metrics").click()
        page.get_by_text("metrics contain all models").wait_for()
        page.evaluate("token => sessionStorage.setItem('key', token)", token)
        page.get_by_role("link", name="Metrics").click()
        page.get_by_text("steelyard_commit_seconds_count").wait_for()
        page.close()
