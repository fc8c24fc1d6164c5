"""Take the pictures of the report for README and documentation.

    steelyard stream --report build/report.html
    python docs/report_pictures.py build/report.html [--browser chromium]

Each picture shows some parts of the report. Speeds are hidden, because they depend on the machine. Needs a
Chromium browser and Pillow.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from pathlib import Path

from PIL import Image, ImageChops

_FOLDER = Path(__file__).parent / "images"
_SIZE_PIXELS = (1000, 5000)
_COLOURS = 128
# For each picture the beginnings of the headings of its sections, and a selector of elements to hide. The
# header of the page has no heading.
PICTURES = {
    "report": (("header", "Models", "The last alarms"), ".ranking, .alarms > li:nth-child(n + 3)"),
    "report_head": (("header", "Models"), ""),
    "report_alarms": (("The last alarms",), ""),
    "report_over_time": (("Measures over time",), ".grid2"),
    "report_events": (("Events", "What changed lately"), ""),
    "report_model": (("Details of each model",), "section > details ~ details"),
}
_HIDE = """<script>
const shown = {shown};
for (const part of document.querySelectorAll("main > *")) {{
  const heading = part.tagName === "HEADER" ? "header" : (part.querySelector("h2") || {{}}).textContent || "";
  if (!shown.some(name => heading.startsWith(name))) part.style.display = "none";
}}
document.querySelectorAll(".tile:nth-child(4)").forEach(part => part.remove());
document.querySelectorAll("th").forEach(head => {{
  if (!head.textContent.startsWith("Rows/s")) return;
  const column = [...head.parentNode.children].indexOf(head);
  head.closest("table").querySelectorAll("tr").forEach(row => row.children[column].remove());
}});
if ("{hidden}") document.querySelectorAll("{hidden}").forEach(part => part.remove());
</script>"""


def picture(page: str, shown: tuple[str, ...], hidden: str, browser: str) -> Image.Image:
    """Return a picture of some parts of the page, without the empty space below."""
    with tempfile.TemporaryDirectory() as folder:
        html, png = Path(folder, "page.html"), Path(folder, "page.png")
        hide = _HIDE.format(shown=list(shown), hidden=hidden)
        html.write_text(page.replace("</body>", f"{hide}</body>"), encoding="utf-8")
        size = ",".join(map(str, _SIZE_PIXELS))
        options = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            f"--window-size={size}",
        ]
        subprocess.run(  # noqa: S603  the browser is chosen by the caller
            [browser, *options, f"--screenshot={png}", html.as_uri()], check=True, capture_output=True
        )
        image = Image.open(png).convert("RGB")
    background = Image.new("RGB", image.size, image.getpixel((0, image.height - 1)))
    box = ImageChops.difference(image, background).getbbox()
    bottom = image.height if box is None else min(image.height, box[3] + 16)
    return image.crop((0, 0, image.width, bottom)).quantize(_COLOURS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("report", type=Path)
    parser.add_argument("--browser", default="chromium")
    options = parser.parse_args()
    page = options.report.read_text(encoding="utf-8")
    for name, (shown, hidden) in PICTURES.items():
        image = picture(page, shown, hidden, options.browser)
        image.save(_FOLDER / f"{name}.png", optimize=True)
        print(f"{name}.png: {image.width} x {image.height} pixels")


if __name__ == "__main__":
    main()
