"""Configuration of Sphinx. The documentation is built offline, and the reference from docstrings."""

import re
import sys
from importlib.metadata import version as installed_version
from importlib.resources import files
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

import api_reference  # noqa: E402 - found only now

project = "steelyard"
author = "the steelyard developers"
copyright = author
version = release = installed_version("steelyard")

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "myst_parser",
    "sphinx_design",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
    "sphinx.ext.mathjax",
    "api_reference",
]
templates_path = ["_templates"]
exclude_patterns = ["_build"]

# One line for each module that has a page.
api_modules = [
    "steelyard",
    "steelyard.ensemble",
    "steelyard.proximal",
    "steelyard.svm",
    "steelyard.online",
    "steelyard.alignment",
    "steelyard.enclosing",
    "steelyard.explanation",
    "steelyard.tables",
    "steelyard.streams",
    "steelyard.windowing",
    "steelyard.keyed",
    "steelyard.brokers",
    "steelyard.evaluation",
    "steelyard.report",
    "steelyard.distributed",
    "steelyard.distributed.dask",
    "steelyard.distributed.spark",
    "steelyard.distributed.files",
    "steelyard.sql",
    "steelyard.federated",
    "steelyard.compat.river",
    "steelyard.compat.c_header",
    "steelyard.compat.onnx",
    "steelyard.compat.skl2onnx",
    "steelyard.compat.mlflow",
    "steelyard.mlflow",
    "steelyard.compat.skops",
    "steelyard.compat.capymoa",
    "steelyard.service",
    "steelyard.service.http",
    "steelyard.datasets",
    "steelyard.features",
    "steelyard.kernels",
    "steelyard.kernels.sequences",
    "steelyard.metrics",
    "steelyard.thresholds",
    "steelyard.persistence",
    "steelyard.base",
    "steelyard.checks",
    "steelyard.exceptions",
]
api_reference.write_pages(HERE / "generated" / "api", api_modules)

autosummary_generate = True
autodoc_typehints = "none"  # the docstrings describe the types
toc_object_entries_show_parents = "hide"
numpydoc_show_class_members = False  # the template of a class lists them

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

# The copy button omits prompts and outputs.
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
copybutton_selector = "div:not(.highlight-text) > div.highlight > pre"

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "ignore_pattern": r"(^|/)(?!plot_)[^/]*\.py$",
    "backreferences_dir": "generated/backreferences",
    "doc_module": ("steelyard",),
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "capture_repr": (),
    "write_computation_times": False,  # the page of computation times loads scripts from the network
    "image_scrapers": ("matplotlib",),
    "plot_gallery": "True",
}

html_theme = "pydata_sphinx_theme"
html_title = "steelyard"
# A MathJax script that contains its glyphs, so pages render formulas without a network.
mathjax_path = "tex-svg.js"
html_static_path = ["_static", str(files("sphinx-mathjax-offline") / "static" / "mathjax" / mathjax_path)]
html_css_files = ["steelyard.css"]
html_show_sourcelink = False
html_theme_options = {
    "show_prev_next": False,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "navigation_with_keys": False,
    "header_links_before_dropdown": 5,
}
html_sidebars = {"index": [], "quickstart": [], "dependencies": [], "contributing": [], "changelog": []}


def keep_pages_that_exist(app, _docname, source):
    """Remove lines ``page?`` from tables of contents if the page does not exist."""
    source[0] = re.sub(
        r"^(\w+)\?\n",
        lambda line: f"{line[1]}\n" if (Path(app.srcdir) / f"{line[1]}.md").exists() else "",
        source[0],
        flags=re.MULTILINE,
    )


def keep_numbers_whole(_app, _docname, source):
    """Prevent line breaks between a number and its standard deviation in table cells."""
    source[0] = re.sub(
        r"^\|.*", lambda row: row[0].replace(" ± ", "\u00a0±\u00a0"), source[0], flags=re.MULTILINE
    )


def setup(app):
    app.connect("source-read", keep_pages_that_exist)
    app.connect("source-read", keep_numbers_whole)
