"""The report in a real Chromium: no errors, charts drawn, nothing wider than a phone or a desk."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess

import pytest

from steelyard import ProximalSVC
from steelyard.evaluation import prequential
from steelyard.report import render_report
from steelyard.streams import Gaussians, demo_stream

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

pytestmark = pytest.mark.skipif(
    CHROMIUM is None,
    reason="no Chromium is installed, so no browser looks at the report (Debian: apt install chromium)",
)

# The report stands in frames of several widths; what their content measures is written into the page.
_PAGE = """<!doctype html><body>{frames}<pre id="out"></pre><script>
const measured = {{}};
for (const frame of document.querySelectorAll("iframe")) {{
  frame.addEventListener("load", () => {{
    const page = frame.contentDocument, root = page.documentElement;
    const drawn = [...page.querySelectorAll("svg")].filter(svg => svg.getBoundingClientRect().height > 50);
    const visible = page.defaultView;
    measured[frame.width] = {{
      overflow: root.scrollWidth - root.clientWidth,
      charts: drawn.length,
      beyond: drawn.filter(svg => svg.getBoundingClientRect().right > root.clientWidth + 1).length,
      smallest: Math.min(...[...page.querySelectorAll("svg text")]
        .filter(text => text.getBoundingClientRect().height > 0)
        .map(text => text.getBoundingClientRect().height)),
      heading: page.querySelector("h1").innerText,
      background: visible.getComputedStyle(page.body).backgroundColor,
    }};
    document.getElementById("out").textContent = JSON.stringify(measured);
  }});
}}
</script>"""


def _look(page, folder, *flags):
    """What Chromium says about the report at the width of a phone and of a desk, and its complaints."""
    frames = "".join(
        f'<iframe width="{width}" height="900" srcdoc="{html.escape(page)}"></iframe>'
        for width in (360, 1200)
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
    complaints = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return json.loads(html.unescape(measured.group(1))), complaints


@pytest.fixture(scope="module")
def looked_at(tmp_path_factory):
    result = prequential(
        {"balanced": ProximalSVC(), "plain": ProximalSVC(class_weight=None)}, demo_stream(8000)
    )
    return _look(render_report(result), tmp_path_factory.mktemp("browser"))


def test_chromium_has_nothing_to_complain_about(looked_at):
    assert looked_at[1] == []


@pytest.mark.parametrize("width", ["360", "1200"])
def test_charts_are_drawn_and_fit_the_width(looked_at, width):
    seen = looked_at[0][width]
    assert seen["charts"] >= 10
    assert seen["overflow"] <= 0
    assert seen["beyond"] == 0


@pytest.mark.parametrize("width", ["360", "1200"])
def test_words_in_charts_are_large_enough_to_read(looked_at, width):
    assert looked_at[0][width]["smallest"] >= 10


def test_a_dark_screen_gets_a_dark_page(tmp_path):
    page = render_report(prequential(ProximalSVC(), Gaussians(3000, n_classes=3)))
    seen, complaints = _look(page, tmp_path, "--blink-settings=preferredColorScheme=0")
    assert complaints == []
    assert seen["360"]["background"] == "rgb(22, 22, 21)"
    assert seen["360"]["overflow"] <= 0
