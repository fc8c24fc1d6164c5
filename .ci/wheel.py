"""Reproducible wheels: the same commit gives the same bytes.

    python .ci/wheel.py build [--out dist]     build a wheel of the current commit
    python .ci/wheel.py find [--out dist]      print the wheel of this commit that this Python can install
    python .ci/wheel.py compare                build twice in two folders and compare the bytes

A wheel is built from an export of the commit, so files that are not in the commit cannot get into it. All
files in the wheel have the time of the commit. A file next to the wheel, with the suffix ``.commit``, names
its commit.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OF_THE_PACKAGE = ("src", "CMakeLists.txt", "pyproject.toml", "README.md", "LICENSE")


def git(*words: str, project: Path = ROOT) -> str:
    """Return the output of git, which is empty if the folder is not in a repository."""
    done = subprocess.run(["git", "-C", str(project), *words], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def commit_of(project: Path = ROOT) -> str:
    """Return the current commit, or "" if files of the package have uncommitted changes."""
    if git("status", "--porcelain", "--", *OF_THE_PACKAGE, project=project):
        return ""
    return git("rev-parse", "HEAD", project=project)


def export(project: Path, commit: str, folder: Path) -> None:
    """Write the files of a commit into a folder."""
    archive = subprocess.run(
        ["git", "-C", str(project), "archive", commit], capture_output=True, check=True
    ).stdout
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive, check=True)


def build(project: Path, out: Path, commit: str | None = None) -> Path:
    """Build a wheel of a commit, by default of the current commit, and return its path."""
    commit = commit_of(project) if commit is None else commit
    if not commit:
        raise SystemExit(
            "no wheel was built: files of the package are not committed.\nhint: commit them first"
        )
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder) / "source", Path(folder) / "wheel"
        source.mkdir()
        export(project, commit, source)
        time = git("log", "-1", "--format=%ct", commit, project=project)
        # The compiler may write the path of a source file into the object, so every build maps it to ".".
        flags = f"{os.environ.get('CXXFLAGS', '')} -ffile-prefix-map={source}=."
        environment = {**os.environ, "SOURCE_DATE_EPOCH": time, "CXXFLAGS": flags, "PYTHONHASHSEED": "0"}
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check"]
        command += ["--no-build-isolation", "--no-deps", "--no-cache-dir", "-w", str(made), str(source)]
        os.umask(0o022)  # permissions of files are part of a wheel
        subprocess.run(command, check=True, env=environment)
        (wheel,) = made.glob("*.whl")
        out.mkdir(parents=True, exist_ok=True)
        target = out / wheel.name
        target.write_bytes(wheel.read_bytes())
    target.with_suffix(".whl.commit").write_text(commit + "\n")
    return target


def tags_of_this_python() -> tuple[str, str]:
    """Return how the tags of a wheel begin and end that this interpreter can install."""
    major, minor = sys.version_info[:2]
    start = "cp311-cp311" if (major, minor) == (3, 11) else "cp312-abi3"
    return start, sysconfig.get_platform().rpartition("-")[2]


def find(project: Path, out: Path) -> Path | None:
    """Return the wheel of the current commit for this interpreter and processor, or None."""
    commit, (start, machine) = commit_of(project), tags_of_this_python()
    for wheel in sorted(out.glob("*.whl")):
        tags = wheel.stem.split("-", 2)[2]
        marker = wheel.with_suffix(".whl.commit")
        fits = tags == "py3-none-any" or (tags.startswith(start) and tags.endswith(machine))
        if commit and fits and marker.exists() and marker.read_text().strip() == commit:
            return wheel
    return None


def main() -> None:
    """Run one of the three commands."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("command", choices=["build", "find", "compare"])
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    options = parser.parse_args()
    if options.command == "find":
        print(find(ROOT, options.out) or "")
    elif options.command == "build":
        print(build(ROOT, options.out))
    else:
        with tempfile.TemporaryDirectory() as folder:
            commit = commit_of()
            wheels = [build(ROOT, Path(folder) / name, commit).read_bytes() for name in ("one", "two")]
        digests = [hashlib.sha256(wheel).hexdigest() for wheel in wheels]
        print(*digests, sep="\n")
        if wheels[0] != wheels[1]:
            raise SystemExit("two builds of one commit differ")


if __name__ == "__main__":
    main()
