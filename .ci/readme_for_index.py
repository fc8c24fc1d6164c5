"""Replace the image paths of README.md by addresses of the documentation, because PyPI stores no images."""

from pathlib import Path

readme = Path(__file__).parents[1] / "README.md"
text = readme.read_text(encoding="utf-8")
readme.write_text(
    text.replace("](docs/images/", "](https://steelyard.readthedocs.io/en/latest/_images/"), encoding="utf-8"
)
