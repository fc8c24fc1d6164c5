"""Give the pictures of README.md an address of the documentation: an index of packages has no folders."""

from pathlib import Path

readme = Path(__file__).parents[1] / "README.md"
text = readme.read_text(encoding="utf-8")
readme.write_text(
    text.replace("](docs/images/", "](https://steelyard.readthedocs.io/en/latest/_images/"), encoding="utf-8"
)
