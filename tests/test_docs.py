"""The code blocks of README and documentation run and print the output shown below them.

The Python blocks of a page are one program, run in an empty folder. Doctest blocks, and text blocks directly
below a code block, are compared with the output. A comment ``<!-- not run: why -->`` skips the next block.
Tutorials run on generated rows, so their outputs, which come from real data (docs/outputs.py), are not
compared.
"""

from __future__ import annotations

import contextlib
import doctest
import importlib
import io
import json
import pkgutil
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import steelyard
from steelyard.ensemble.experts import EXPERTS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(
    [ROOT / "README.md", *DOCS.glob("*.md"), *(DOCS / "learners").glob("*.md")]
    + [page for page in (DOCS / "tutorials").glob("*.md") if page.stem != "index"]
)
BLOCK = re.compile(
    r"(?P<skip><!-- not run: [^\n]+ -->\n\n?)?^```python\n(?P<code>.*?)^```$"
    r"(\n\n```text\n(?P<said>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)
NUMBER = re.compile(r"-?\d[\d,]*\.?\d*(?:e-?\d+)?%?")


def folder_module(folder, name):
    """Import a module of the documentation folder."""
    sys.path.insert(0, str(folder))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(folder))


def code_blocks(page):
    """Yield line number, code and shown output of every block to run."""
    text = page.read_text(encoding="utf-8")
    for match in BLOCK.finditer(text):
        if match["skip"] is None:
            yield text.count("\n", 0, match.start("code")), match["code"], match["said"]


def run_block(code, line, names, page):
    """Run a code block and return its output; for a doctest block, compare the output and return ''."""
    said = io.StringIO()
    if not code.startswith(">>> "):
        with contextlib.redirect_stdout(said):
            exec(compile("\n" * line + code, page.name, "exec"), names)
        return said.getvalue()
    test = doctest.DocTestParser().get_doctest(code, {}, page.name, page.name, line)
    test.globs = names
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    runner.run(test, out=said.write, clear_globs=False)
    assert not runner.failures, said.getvalue()
    return ""


def assert_same_output(shown, printed, page="PAGE"):
    """Compare the words exactly and the numbers within 3 %."""
    advice = f"the output changed; if it should, run: python docs/outputs.py {page}"
    assert NUMBER.sub("#", shown).split() == NUMBER.sub("#", printed).split(), advice
    for expected, actual in zip(NUMBER.findall(shown), NUMBER.findall(printed), strict=True):
        a, b = (float(text.replace(",", "").rstrip("%")) for text in (expected, actual))
        assert a == pytest.approx(b, rel=0.03, abs=1e-12), advice


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, id=str(page.relative_to(ROOT))) for page in PAGES if any(code_blocks(page))],
)
def test_code_blocks_of_documentation_page_print_the_shown_output(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tutorial = page.parent.name == "tutorials"
    if tutorial:
        pytest.importorskip("pandas", reason="the tutorials read tables with pandas")
        folder_module(page.parent, "standins").STANDINS[page.stem](tmp_path)
    names = {"__name__": "page"}
    for line, code, shown in code_blocks(page):
        printed = run_block(code, line, names, page)
        if shown is not None and not tutorial:
            assert_same_output(shown, printed, page.relative_to(ROOT))
        assert not (tutorial and printed and shown is None), f"{page.name}:{line} prints, but shows nothing"


def test_not_run_comment_skips_only_the_next_code_block(tmp_path):
    block = "```python\nprint({})\n```\n\n"
    skipped = "<!-- not run: a reason -->\n" + block
    page = tmp_path / "page.md"
    page.write_text(skipped.format(1) + block.format(2) + skipped.format(3) + block.format(4))
    assert [code for _, code, _ in code_blocks(page)] == ["print(2)\n", "print(4)\n"]


def test_code_block_with_wrong_output_fails_the_comparison():
    assert_same_output("G-mean 0.868\n", "G-mean 0.869\n")
    with pytest.raises(AssertionError, match=r"run: python docs/outputs\.py PAGE"):
        assert_same_output("G-mean 0.868\n", "G-mean 0.768\n")
    with pytest.raises(AssertionError, match=r"run: python docs/outputs\.py PAGE"):
        assert_same_output("True True\n", "True False\n")


def test_images_of_tutorials_exist():
    for page in (DOCS / "tutorials").glob("*.md"):
        for picture in re.findall(r"```\{image\} (\S+)", page.read_text(encoding="utf-8")):
            assert (page.parent / picture).is_file(), f"{page.name}: {picture}"


# -- the reference lists every public name ----------------------------------------------------------------


def api_modules():
    text = (DOCS / "conf.py").read_text(encoding="utf-8")
    return re.findall(r'"(steelyard[\w.]*)",', text.split("api_modules = [")[1].split("]")[0])


# The command line has a guide, the modules of compat have pages, and the last two modules are private.
WITHOUT_PAGE = {"steelyard.cli", "steelyard.compat", "steelyard.feature_maps", "steelyard.params"}


def test_every_public_module_has_a_page():
    public = {
        info.name
        for info in pkgutil.iter_modules(steelyard.__path__, "steelyard.")
        if not info.name.split(".")[1].startswith("_")
    }
    compat = importlib.import_module("steelyard.compat")
    public |= {
        info.name
        for info in pkgutil.iter_modules(compat.__path__, "steelyard.compat.")
        if "._" not in info.name
    }
    assert public - WITHOUT_PAGE <= set(api_modules())


def _can_be_imported(module):
    try:
        importlib.import_module(module)
    except ImportError:
        return False
    return True


def test_reference_lists_every_public_name():
    reference = folder_module(DOCS / "_ext", "api_reference")
    modules = [module for module in api_modules() if _can_be_imported(module)]
    assert len(modules) > 20  # modules of extras that are not installed are skipped
    homes = reference.homes(modules)
    for module in modules:
        text = reference.page(module, homes)
        for name in importlib.import_module(module).__all__:
            assert re.search(rf"(?<![\w]){re.escape(name)}(?![\w])", text), f"{module}.{name}"
    assert "   ProximalSVC\n" in reference.page("steelyard", homes)


def _names_in_table(page, header):
    """Return the names in the first column of the table with the given first column header."""
    table = (DOCS / page).read_text(encoding="utf-8").partition(f"\n| {header} |")[2].partition("\n\n")[0]
    cells = [line.split(" | ")[0].removeprefix("| ") for line in table.splitlines()[2:]]
    return {name.rpartition(".")[2].rstrip("`") for cell in cells for name in cell.split(", ")}


def test_table_of_streams_page_has_every_window_wrapper():
    missing = set(steelyard.windowing.__all__) - _names_in_table("streams.md", "wrapper")
    assert not missing, f"add to the table of wrappers in docs/streams.md: {sorted(missing)}"


def test_table_of_stream_classifier_page_has_every_expert():
    missing = {config.name for config in EXPERTS} - _names_in_table("learners/stream_classifier.md", "expert")
    assert not missing, (
        f"add to the table of experts in docs/learners/stream_classifier.md: {sorted(missing)}"
    )


# -- search in the documentation -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def search_index(tmp_path_factory):
    """Return the search index of a build of the pages without gallery and reference."""
    pytest.importorskip("sphinx_design", reason="the documentation is built with the extra docs")
    source, built = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("built")
    for page in [*DOCS.glob("*.md"), *DOCS.glob("learners/*.md"), *DOCS.glob("tutorials/*.md")]:
        place = source / page.relative_to(DOCS)
        place.parent.mkdir(exist_ok=True)
        shutil.copy(page, place)
    settings = {
        "extensions": "myst_parser,sphinx_design",
        "myst_enable_extensions": "colon_fence,deflist,dollarmath",
    }
    options = [word for name, value in settings.items() for word in ("-D", f"{name}={value}")]
    command = [sys.executable, "-m", "sphinx", "-C", "-Q", "-b", "html", *options, str(source), str(built)]
    subprocess.run(command, check=True, capture_output=True)
    text = (built / "searchindex.js").read_text(encoding="utf-8")
    return json.loads(text.removeprefix("Search.setIndex(").removesuffix(")"))


@pytest.mark.parametrize(
    ("query", "page"),
    [
        ("unlearning", "tutorials/deletion"),
        ("GDPR", "tutorials/deletion"),
        ("class imbalance", "glossary"),
        ("class imbalance", "index"),
        ("federated", "tutorials/hospitals"),
        ("federated", "federated"),
        ("missing values", "faq"),
        ("categorical columns", "faq"),
        ("delayed labels", "faq"),
        ("probabilities", "faq"),
        ("class weights", "faq"),
        ("save load", "persistence"),
        ("deploy", "faq"),
        ("LightGBM", "faq"),
        ("TF-IDF", "faq"),
        ("feature importance", "faq"),
        ("Kafka", "faq"),
        ("Spark streaming", "faq"),
        ("Docker", "faq"),
        ("multilabel", "faq"),
        ("regression", "faq"),
        ("LPSVM", "faq"),
        ("IncSVM", "faq"),
        ("KOIL RS++", "faq"),
        ("KBA", "faq"),
        ("MHE-CIL", "faq"),
    ],
)
def test_documentation_search_finds_expected_page(search_index, query, page):
    from sphinx.search.en import SearchEnglish

    language = SearchEnglish({})
    found = None
    for word in re.findall(r"\w+", query.lower()):
        stem = language.stem(word)
        places = [search_index[part].get(stem, []) for part in ("terms", "titleterms")]
        pages = {place for some in places for place in (some if isinstance(some, list) else [some])}
        found = pages if found is None else found & pages
    assert page in {search_index["docnames"][place] for place in found}


# -- published numbers ----------------------------------------------------------------------------------


def figures():
    with (DOCS / "figures.toml").open("rb") as file:
        return tomllib.load(file)


def text_of(page):
    return " ".join((ROOT / page).read_text(encoding="utf-8").split())


@pytest.mark.parametrize("name", figures())
def test_published_number_has_the_same_value_on_every_page(name):
    """Every page that matches the pattern of docs/figures.toml has its value."""
    figure = figures()[name]
    pattern = figure["pattern"].replace("{}", r"(?P<value>[\d.,]*\d)")
    for page in figure["pages"]:
        assert re.search(pattern, text_of(page)), f"{page} does not contain {pattern}"
    for page in ["README.md", "CHANGELOG.md", *(str(path.relative_to(ROOT)) for path in DOCS.rglob("*.md"))]:
        for match in re.finditer(pattern, text_of(page)):
            assert match["value"] == figure["value"], f"{page}: {match[0]}"


def test_benchmarks_page_lists_every_script_and_every_command_exists():
    text, speed = (DOCS / "benchmarks.md").read_text(encoding="utf-8"), ROOT / "benchmarks" / "speed"
    listed = re.findall(r"^\| `(bench_\w+\.py)` \|", text, re.MULTILINE)
    assert sorted(listed) == sorted(path.name for path in speed.glob("bench_*.py"))
    table = text.partition("### Typical tasks")[2].partition("\n\n### ")[0]
    rows = [line.split(" | ") for line in table.splitlines() if line.startswith("| ")][1:]
    assert len(rows) >= 14
    for row in rows:
        script = re.fullmatch(r"`(\w+\.py)[^`]*` \|", row[-1])
        assert len(row) == 6, row
        assert script, row
        assert (speed / script[1]).is_file(), row


# -- the README ---------------------------------------------------------------------------------------------

SITE = "https://steelyard.readthedocs.io/en/latest/"


def test_install_commands_in_documentation_use_clone_and_existing_extras():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    lines = {
        (page.name, line)
        for page in [ROOT / "README.md", *PAGES]
        for line in re.findall(r"pip install\s+(\"?[\w.]*\[[^\]]*\])", page.read_text(encoding="utf-8"))
    }
    assert len(lines) >= 8
    for page, line in lines:
        name, _, given = line.strip('"').partition("[")
        assert name == ".", f"{page}: the package index has no steelyard, so `pip install {line}` fails"
        assert given == "name]" or set(given.rstrip("]").split(",")) <= set(extras), page


def test_readme_links_are_absolute_and_point_to_pages():
    links = re.findall(r"(?<!!)\[[^]!]+\]\(([^)]+)\)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert links
    for link in links:
        assert link.startswith(SITE), link
        assert (DOCS / link.removeprefix(SITE)).with_suffix(".md").is_file(), link


def test_readme_images_are_absolute_for_the_package_index(tmp_path):
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "readme_for_index.py", tmp_path / ".ci")
    shutil.copy(ROOT / "README.md", tmp_path)
    subprocess.run([sys.executable, str(tmp_path / ".ci" / "readme_for_index.py")], check=True)
    pictures = re.findall(r"!\[[^]]*\]\(([^)]+)\)", (tmp_path / "README.md").read_text(encoding="utf-8"))
    for picture in pictures:
        assert picture.startswith("https://")
        if picture.startswith(SITE):
            assert (DOCS / "images" / Path(picture).name).is_file(), picture


def test_readme_badges_agree_with_pyproject():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert f"badge/license-{project['license'].replace('-', '--')}-" in text
    assert f"badge/python-{project['requires-python'].removeprefix('>=')}%2B-" in text


def test_architecture_page_has_current_call_path_counts():
    """A deviation above a tenth is a structural change, which the page should mention."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "call_trace.py")], capture_output=True, text=True, check=True
    )
    traced = {name: list(map(int, counts)) for name, *counts in _counts(done.stdout)}
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    documented = {name: list(map(int, counts)) for name, *counts in _counts(text)}
    advice = "run: make call-trace, and copy the counts to docs/architecture.md"
    assert documented.keys() == traced.keys(), advice
    for name, counts in documented.items():
        assert traced[name] == pytest.approx(counts, rel=0.1), f"{name}: {advice}"


def _counts(text):
    return re.findall(r"^\| (.*?) \| (\d+) \| (\d+) \| (\d+) \|$", text, re.MULTILINE)
