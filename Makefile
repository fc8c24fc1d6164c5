# Two commands do everything on a machine with Python 3.11+, a C++20 compiler and make:
#   make demo    sets up .venv, builds, runs the main job on built-in data
#   make test    sets up .venv, builds, runs the whole suite

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# setuptools and wheel: pyspark comes as source and is built with what is here.
BUILD_TOOLS := "scikit-build-core>=0.11" "nanobind>=2.9" "cmake>=3.26" "ninja>=1.11" "setuptools>=77" wheel
NATIVE := $(shell find src/native -type f) CMakeLists.txt pyproject.toml
CPP := $(shell find src/native -name '*.cpp' -o -name '*.hpp')

.PHONY: help demo test lint format bench papers docs sanitize stubs test-native test-lowest clean

help:
	@echo "make demo       learn from an imbalanced, drifting stream and show what happened"
	@echo "make test       the whole test suite"
	@echo "make lint       style, types, import order of the layers"
	@echo "make bench      speed against peers, side by side"
	@echo "make papers     a quick run of every experiment of the papers (DATA=folder of data sets)"
	@echo "make docs       the documentation, into docs/_build/html"
	@echo "make sanitize   the native tests under the address and undefined-behaviour sanitizers"
	@echo "make format     bring all code into its format"

# -- set-up -------------------------------------------------------------------------------------------

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "steelyard needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1). hint: make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) $(BUILD_TOOLS)
	@touch $@

# The package itself, rebuilt when native code or its description has changed.
$(VENV)/.built: $(VENV)/.created $(NATIVE)
	$(PIP) --no-build-isolation --editable ".[tables,plots]"
	@touch $@

$(VENV)/.dev: $(VENV)/.built pyproject.toml
	$(PIP) --no-build-isolation --editable ".[dev]"
	@touch $@

# -- jobs ---------------------------------------------------------------------------------------------

demo: $(VENV)/.built
	$(BIN)/steelyard stream --report build/report.html

test: $(VENV)/.dev test-native
	$(BIN)/python -m pytest -n 2 --dist loadgroup

test-native: $(VENV)/.created
	$(BIN)/cmake -S . -B build/native -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja \
	  -DSTEELYARD_PYTHON=OFF -DSTEELYARD_TESTS=ON > /dev/null
	$(BIN)/cmake --build build/native
	build/native/src/native/steelyard_native_tests

sanitize: $(VENV)/.created
	$(BIN)/cmake -S . -B build/sanitize -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja \
	  -DCMAKE_BUILD_TYPE=RelWithDebInfo -DSTEELYARD_PYTHON=OFF -DSTEELYARD_TESTS=ON -DSTEELYARD_SANITIZE=ON > /dev/null
	$(BIN)/cmake --build build/sanitize
	build/sanitize/src/native/steelyard_native_tests

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/clang-format --dry-run --Werror $(CPP)

format: $(VENV)/.dev
	$(BIN)/ruff check --fix --quiet . || true
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CPP)

stubs: $(VENV)/.built
	$(BIN)/python -m nanobind.stubgen -q -m steelyard._native -o src/steelyard/_native.pyi

bench: $(VENV)/.dev
	@for script in benchmarks/speed/bench_*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

# Minutes, and most of it needs data that is not shipped: no part of `make test`.
papers: $(VENV)/.dev
	$(BIN)/python -m papers run all --quick --output build/papers $(if $(DATA),--data-dir $(DATA))

docs: $(VENV)/.dev
	$(BIN)/python -m sphinx -E -W --keep-going -q -b html docs docs/_build/html
	@echo "open docs/_build/html/index.html"

# The oldest versions that pyproject.toml promises, in an environment of their own.
test-lowest:
	$(PYTHON) -m venv build/lowest
	build/lowest/bin/python -m pip install --quiet $(BUILD_TOOLS) -r tests/lowest-requirements.txt
	build/lowest/bin/python -m pip install --quiet --no-build-isolation --no-deps .
	build/lowest/bin/python -m pytest -n 2 -p no:cacheprovider -o testpaths=tests --ignore=tests/test_stubs.py

clean:
	rm -rf build dist docs/_build docs/gallery docs/generated $(VENV)
