"""Files of all classes of this package load, independent of the modules imported before."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import steelyard
from steelyard.cli import main
from steelyard.persistence import objects
from tests.runner import cli_runner


def test_list_of_registering_modules_is_complete():
    package = Path(steelyard.__file__).parent
    modules = {
        ".".join(path.relative_to(package).with_suffix("").parts)
        for path in package.rglob("*.py")
        if re.search(r"^@storable\(", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    unknown = {name for name in modules if not name.startswith(tuple(objects._REGISTERING_MODULES))}
    assert unknown == set()


def test_table_model_can_be_loaded_if_only_load_was_imported(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.csv").write_text("a,y\n1,no\n2,yes\n", encoding="utf-8")
    words = ["fit", "rows.csv", "--target", "y", "-o", "m"]
    assert cli_runner().invoke(main, words).exit_code == 0
    program = "from steelyard import load; print(type(load('m').estimator).__name__)"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == "StreamClassifier\n"
