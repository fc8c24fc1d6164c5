"""Make the pictures of the service's web page in docs/images, from the demonstration.

    python docs/screenshots.py                       # docs/images/service-*.png
    python docs/screenshots.py --to /tmp --width 390 --dark --whole

Needs Chromium and playwright. The demonstration runs until it has learned enough rows.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from playwright.sync_api import Page, sync_playwright

IMAGES = Path(__file__).parent / "images"
MODEL = "payments"
MIN_ROWS = 25_000
HEIGHT = 480


@contextmanager
def demonstration() -> Iterator[str]:
    """Start the demonstration; yield its address."""
    command = [sys.executable, "-m", "steelyard", "serve", "--demo", "--port", "0"]
    running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)  # noqa: S603  our own command
    assert running.stderr is not None
    try:
        found = re.search(r"http://127\.0\.0\.1:\d+", running.stderr.readline())
        if found is None:
            raise SystemExit("the service did not start")
        yield found.group(0)
    finally:
        running.terminate()
        running.wait()


def wait_for_rows(url: str, n_rows: int) -> None:
    while httpx.get(f"{url}/v1/models/{MODEL}", timeout=60).json().get("learned", 0) < n_rows:
        time.sleep(1.0)


def take(page: Page, url: str, folder: Path, suffix: str, *, whole: bool) -> None:
    """Take the pictures of the overview, of the curves of a model, and of its cards below."""
    page.goto(f"{url}/")
    page.get_by_role("link", name=MODEL).first.wait_for()
    time.sleep(2.0)
    page.screenshot(path=folder / f"service-overview{suffix}.png", full_page=whole)
    page.goto(f"{url}/models/{MODEL}")
    page.get_by_role("heading", name="Experts").wait_for()
    time.sleep(3.0)
    cards = page.locator(".details")
    top = cards.bounding_box()
    assert top is not None
    clip = None if whole else {"x": 0, "y": 0, "width": top["width"] + 2 * top["x"], "height": top["y"]}
    page.screenshot(path=folder / f"service-model{suffix}.png", full_page=True, clip=clip)  # type: ignore[arg-type]
    if not whole:
        cards.screenshot(path=folder / f"service-ensemble{suffix}.png")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--to", type=Path, default=IMAGES, help="folder of the pictures")
    parser.add_argument("--url", help="address of a running demonstration")
    parser.add_argument("--width", type=int, default=1280, help="width of the page in pixels")
    parser.add_argument("--dark", action="store_true", help="dark colours")
    parser.add_argument("--whole", action="store_true", help="whole pages instead of one screen")
    options = parser.parse_args()
    suffix = "" if options.to == IMAGES else f"-{options.width}-{'dark' if options.dark else 'light'}"
    with sync_playwright() as play:
        chromium = shutil.which("chromium") or shutil.which("google-chrome")
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(
            viewport={"width": options.width, "height": HEIGHT},
            color_scheme="dark" if options.dark else "light",
        )
        if options.url:
            take(page, options.url, options.to, suffix, whole=options.whole)
        else:
            with demonstration() as url:
                wait_for_rows(url, MIN_ROWS)
                take(page, url, options.to, suffix, whole=options.whole)
        browser.close()


if __name__ == "__main__":
    main()
