"""Report in Chromium: no errors, charts drawn, page fits a phone and a desktop."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess

import numpy as np
import pandas as pd
import pytest

from steelyard import ProximalSVC
from steelyard.evaluation import prequential
from steelyard.report import render_report
from steelyard.streams import Gaussians, demo_stream
from steelyard.tables import open_stream

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="Chromium is not installed (Debian: apt install chromium)"
)

# The report is loaded in frames of several widths; the measured sizes are written into the page.
_PAGE = """<!doctype html><body>{frames}<pre id="out"></pre><script>
const measured = {{}};
// Exercise the script of the page: tooltip, hidden curves, zoom.
function exercise(page, visible) {{
  const chart = [...page.querySelectorAll("svg.along")].find(svg => svg.getBoundingClientRect().height > 50);
  if (!chart) return {{}};
  const box = chart.getBoundingClientRect(), event = (kind, share) => chart.dispatchEvent(
    new visible.PointerEvent(kind, {{
      clientX: box.left + share * box.width, clientY: box.top + 60, pointerType: "mouse", bubbles: true,
    }}));
  event("pointermove", 0.6);
  const label = page.getElementById("tip"), tip = label.innerText;
  const tipFits = label.getBoundingClientRect().right <= page.documentElement.clientWidth;
  const key = page.querySelector(".legend.live .key[data-series]");
  key.click();
  const hidden = [...chart.querySelectorAll("path.line")]
    .filter(path => visible.getComputedStyle(path).display === "none").length;
  key.click();
  const moving = chart.querySelector(".moving"), tick = () => chart.querySelector(".xtick").textContent;
  const before = tick();
  event("pointerdown", 0.4); event("pointerup", 0.7);
  const zoomed = moving.getAttribute("transform"), zoomedTick = tick();
  chart.dispatchEvent(new visible.MouseEvent("dblclick", {{bubbles: true}}));
  const again = [moving.getAttribute("transform"), tick()];
  event("pointerleave", 0.5);
  return {{tip, tipFits, hidden, zoomed, before, zoomedTick, again}};
}}
for (const frame of document.querySelectorAll("iframe")) {{
  frame.addEventListener("load", () => {{
    const page = frame.contentDocument, root = page.documentElement;
    const drawn = [...page.querySelectorAll("svg")].filter(svg => svg.getBoundingClientRect().height > 50);
    const visible = page.defaultView;
    measured[frame.width] = {{
      overflow: root.scrollWidth - root.clientWidth,
      charts: drawn.length,
      wide: [...page.querySelectorAll("body *")]
        .filter(x => x.getBoundingClientRect().right > root.clientWidth + 1 && !x.closest(".scroll, svg"))
        .map(x => x.tagName + "." + x.className).slice(0, 5),
      beyond: drawn.filter(svg => svg.getBoundingClientRect().right > root.clientWidth + 1).length,
      smallest: Math.min(...[...page.querySelectorAll("svg text")]
        .filter(text => text.getBoundingClientRect().height > 0)
        .map(text => text.getBoundingClientRect().height)),
      heading: page.querySelector("h1").innerText,
      background: visible.getComputedStyle(page.body).backgroundColor,
      ...exercise(page, visible),
    }};
    document.getElementById("out").textContent = JSON.stringify(measured);
  }});
}}
</script>"""


def _measure(page, folder, *flags, widths=(390, 1280)):
    """Return measurements of the report in Chromium by width, and the console messages."""
    frames = "".join(
        f'<iframe width="{width}" height="900" srcdoc="{html.escape(page)}"></iframe>' for width in widths
    )
    harness = folder / "harness.html"
    harness.write_text(_PAGE.format(frames=frames), encoding="utf-8")
    command = [
        CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync",
        "--enable-logging=stderr", f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=5000",
        "--window-size=1300,1000", *flags, "--dump-dom", harness.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    measured = re.search(r'<pre id="out">(.*?)</pre>', done.stdout, re.DOTALL)
    messages = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return json.loads(html.unescape(measured.group(1))), messages


@pytest.fixture(scope="module")
def measurements(tmp_path_factory):
    result = prequential(
        {"balanced": ProximalSVC(), "plain": ProximalSVC(class_weight=None)}, demo_stream(8000)
    )
    return _measure(render_report(result), tmp_path_factory.mktemp("browser"))


def test_report_logs_no_console_errors(measurements):
    assert measurements[1] == []


@pytest.mark.parametrize("width", ["390", "1280"])
def test_charts_fit_the_page_width(measurements, width):
    seen = measurements[0][width]
    assert seen["charts"] >= 10
    assert seen["overflow"] <= 0
    assert seen["beyond"] == 0


@pytest.mark.parametrize("width", ["390", "1280"])
def test_chart_text_is_large_enough(measurements, width):
    assert measurements[0][width]["smallest"] >= 10


def test_dark_mode_has_dark_background(tmp_path):
    page = render_report(prequential(ProximalSVC(), Gaussians(3000, n_classes=3)))
    seen, messages = _measure(page, tmp_path, "--blink-settings=preferredColorScheme=0")
    assert messages == []
    assert seen["390"]["background"] == "rgb(22, 22, 21)"
    assert seen["390"]["overflow"] <= 0


@pytest.mark.parametrize("width", ["390", "1280"])
def test_script_shows_tooltip_hides_curves_and_zooms(measurements, width):
    seen = measurements[0][width]
    assert re.match(r"row [\d,]+\s+(plain|balanced) 0?\.?\d+\s+(plain|balanced) ", seen["tip"])
    assert seen["tipFits"]
    assert seen["hidden"] == 1
    assert seen["zoomed"].startswith("matrix(")
    assert seen["zoomedTick"] != seen["before"]
    assert seen["again"] == ["", seen["before"]]


LONG = "a_name_without_any_place_to_break_it_" * 8


def _named_long(n_classes):
    rng = np.random.default_rng(0)
    y = rng.integers(0, n_classes, size=3000)
    frame = pd.DataFrame(rng.normal(size=(3000, 3)) + y[:, None], columns=[f"{LONG}{k}" for k in range(3)])
    frame["y"] = [f"{LONG}class{k}" for k in y]
    models = {
        f"{LONG}{name}": ProximalSVC(C=C) for name, C in zip("abcde", (0.01, 0.1, 1, 10, 100), strict=True)
    }
    result = prequential(models, open_stream(frame, "y", chunk=200))
    result.stream_name = f"/very/long/{LONG}.csv"
    result.ended = LONG
    return render_report(result)


@pytest.mark.parametrize("n_classes", [2, 22])
def test_long_names_do_not_widen_page_on_phone(tmp_path, n_classes):
    seen, messages = _measure(_named_long(n_classes), tmp_path, widths=(390, 1280))
    assert messages == []
    assert [seen[width]["wide"] for width in ("390", "1280")] == [[], []]
    assert [seen[width]["overflow"] for width in ("390", "1280")] == [0, 0]
    assert seen["390"]["tipFits"]


def test_page_is_complete_without_script(tmp_path):
    page = render_report(prequential(ProximalSVC(), demo_stream(4000)))
    without = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)
    harness = tmp_path / "page.html"
    harness.write_text(without, encoding="utf-8")
    command = [
        CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}",
        "--dump-dom", harness.as_uri(),
    ]  # fmt: skip
    shown = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    assert shown.count('class="line') == page.count('class="line')
    assert "Finds" in shown
