# Two commands do everything on a machine with Python 3.11+, a C++20 compiler and make:
#   make demo    sets up .venv, builds, runs the main job on built-in data
#   make test    sets up .venv, builds, runs the whole suite

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Modules are compiled when they are first imported: most of those that come along never are. What was compiled is
# written down, also where the environment forbids it, or every start would compile it all again.
unexport PYTHONDONTWRITEBYTECODE
# One compiler a core: more of them only get in each other's way.
export CMAKE_BUILD_PARALLEL_LEVEL ?= $(shell getconf _NPROCESSORS_ONLN)
PIP := $(BIN)/python -m pip install --no-compile --quiet --disable-pip-version-check
# An installation that talks while it works: what is fetched, and how far the compiler is. The rest is in the log.
SHELL := bash
.SHELLFLAGS := -o pipefail -c
INSTALL := $(BIN)/python -m pip install --no-compile --verbose --disable-pip-version-check --no-build-isolation --editable
PROGRESS = 2>&1 | tee $(VENV)/install.log | \
  grep --line-buffered -oE '^ *(Collecting [^ ]+|\[[0-9]+/[0-9]+\] (Building|Linking) .*|Successfully .*)' || \
  { tail -n 40 $(VENV)/install.log; exit 1; }
BUILD_TOOLS := "scikit-build-core>=0.11" "nanobind>=2.9" "cmake>=3.26" "ninja>=1.11"
# pyspark comes as source and is built with what is here.
OLD_BUILD_TOOLS := "setuptools>=77" wheel
NATIVE := $(shell find src/native -type f) CMakeLists.txt pyproject.toml
comma := ,
CPP := $(shell find src/native -name '*.cpp' -o -name '*.hpp')

.PHONY: torture torture-service torture-sites help demo test lint format bench bench-table bench-levels papers call-trace docs serve sites sanitize sanitize-threads sanitize-python sanitize-python-threads stubs test-native \
  test-clang test-aarch64 test-lowest clean

help:
	@echo "make demo       learn from an imbalanced, drifting stream and show what happened"
	@echo "make test       the whole test suite"
	@echo "make lint       style, types, import order of the layers"
	@echo "make bench      speed against peers, side by side; bench-table: the table of docs/benchmarks.md; bench-levels: AVX-512, AVX2, baseline"
	@echo "make papers     a quick run of every experiment of the papers (DATA=folder of data sets)"
	@echo "make call-trace      files and functions that typical calls enter"
	@echo "make docs       the documentation, into docs/_build/html"
	@echo "make serve      the learning service with a demonstration model; prints the address of its page"
	@echo "make sites      four hospitals as four processes, one hub, one message each (DATA=folder: four real ones)"
	@echo "make sanitize   the native tests under the address and undefined-behaviour sanitizers; sanitize-threads: under"
	@echo "                the one for threads; sanitize-python: Python tests on an extension with the first two;"
	@echo "                sanitize-python-threads: those of threads on one with the last"
	@echo "make test-clang, make test-aarch64   the native tests with the other compiler, on the other processor"
	@echo "make torture    threads, signals, and fuzzed files, tables, calls, commands and requests (SIZE=inputs of each kind, SEED=)"
	@echo "make torture-sites     sites that crash, rejoin, change and leave, messages that are lost, late or doubled (HISTORIES=, SEED=)"
	@echo "make torture-service   a real service, killed under load (KILLS=how often, SEED=)"
	@echo "make release-check   wheels for every Python here, clang, aarch64; a table (STEPS= some of them)"
	@echo "make format     bring all code into its format"

# -- set-up -------------------------------------------------------------------------------------------

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "steelyard needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1). hint: make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

# What the learners and commands need, without extras, as pyproject.toml has it. A first import compiles modules.
NEEDED := import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"], sep="\n")
FIRST_IMPORT := import jinja2, rich.live, rich.table, scipy.stats, sklearn.linear_model, sklearn.svm

$(VENV)/.tools: $(VENV)/.created
	$(PIP) $(BUILD_TOOLS)
	@touch $@

# The package itself, rebuilt when native code or its description has changed. What it needs is fetched while the tools
# come and the compiler works.
$(VENV)/.built: $(VENV)/.created $(NATIVE)
	@$(BIN)/python -c '$(NEEDED)' > $(VENV)/needed.txt
	@{ $(PIP) --requirement $(VENV)/needed.txt && $(BIN)/python -c '$(FIRST_IMPORT)'; } & needed=$$!; \
	  $(MAKE) --no-print-directory $(VENV)/.tools && { $(INSTALL) . --no-deps $(PROGRESS); } && wait $$needed
	@touch $@

$(VENV)/.dev: $(VENV)/.built pyproject.toml
	$(PIP) $(OLD_BUILD_TOOLS)
	@$(INSTALL) ".[dev]" $(PROGRESS)
	@touch $@

# -- jobs ---------------------------------------------------------------------------------------------

demo: $(VENV)/.built
	$(BIN)/steelyard stream --report build/report.html

$(VENV)/.service: $(VENV)/.built pyproject.toml
	$(PIP) --no-build-isolation --editable ".[tables,plots,service]"
	@touch $@

serve: $(VENV)/.service
	$(BIN)/steelyard serve --demo || test $$? = 130  # Ctrl-C is how it is stopped

$(VENV)/.sites: $(VENV)/.built pyproject.toml
	$(PIP) --no-build-isolation --editable ".[tables,plots,service,sites]"
	@touch $@

sites: $(VENV)/.sites
	$(BIN)/python examples/sites.py $(if $(DATA),--data $(DATA))

test: $(VENV)/.dev test-native
	$(BIN)/python -m pytest -n 2 --dist loadgroup

# $(call native_tests,FOLDER,OPTIONS): the native tests, which need no interpreter, built in build/FOLDER.
define native_tests
	$(BIN)/cmake -S . -B build/$(1) -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja \
	  -DSTEELYARD_PYTHON=OFF -DSTEELYARD_TESTS=ON $(2) > /dev/null
	$(BIN)/cmake --build build/$(1)
endef
NATIVE_TESTS = build/$(1)/src/native/steelyard_native_tests

test-native: $(VENV)/.tools
	$(call native_tests,native,-DSTEELYARD_WERROR=ON)
	$(call NATIVE_TESTS,native)

# The other compiler and the other processor family. Debian: clang, g++-aarch64-linux-gnu, qemu-user.
test-clang: $(VENV)/.tools
	$(call native_tests,clang,-DSTEELYARD_WERROR=ON -DCMAKE_CXX_COMPILER=clang++)
	$(call NATIVE_TESTS,clang)

test-aarch64: $(VENV)/.tools
	$(call native_tests,aarch64,-DSTEELYARD_WERROR=ON -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
	  -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++)
	qemu-aarch64 -L /usr/aarch64-linux-gnu $(call NATIVE_TESTS,aarch64)

sanitize: $(VENV)/.tools
	$(call native_tests,sanitize,-DCMAKE_BUILD_TYPE=RelWithDebInfo -DSTEELYARD_SANITIZE=address$(comma)undefined)
	$(call NATIVE_TESTS,sanitize)

sanitize-threads: $(VENV)/.tools
	$(call native_tests,sanitize-threads,-DCMAKE_BUILD_TYPE=RelWithDebInfo -DSTEELYARD_SANITIZE=thread)
	$(call NATIVE_TESTS,sanitize-threads)

# Python tests on an extension with sanitizers. It lives in an environment of its own that borrows the packages of the
# first: a path in a .pth file brings them without the first one's own extension. The interpreter leaks on purpose, so
# leaks are not looked for; its locks are seen by the sanitizer for threads, which stands before the system's.
# $(call sanitized_python,folder,sanitizers,library,options of the sanitizer,tests)
define sanitized_python
$(BIN)/python -m venv --without-pip build/$1/venv
$(BIN)/python -c 'import site; print(site.getsitepackages()[0])' > build/$1/packages
cp build/$1/packages $$(build/$1/venv/bin/python -c 'import site; print(site.getsitepackages()[0])')/borrowed.pth
build/$1/venv/bin/python -m pip install --disable-pip-version-check --no-build-isolation --no-deps \
  --force-reinstall --prefix build/$1/venv -C build-dir=build/$1/build -C cmake.build-type=RelWithDebInfo \
  -C install.strip=false -C cmake.define.STEELYARD_SANITIZE=$2 .
LD_PRELOAD="$$($(CXX) -print-file-name=$3) $$($(CXX) -print-file-name=libstdc++.so)" $4 \
  build/$1/venv/bin/python -m pytest -q -p no:cacheprovider $5
endef

SANITIZED_TESTS ?= tests/online tests/svm tests/enclosing tests/proximal
sanitize-python: $(VENV)/.dev
	$(call sanitized_python,sanitize-python,address$(comma)undefined,libasan.so,ASAN_OPTIONS=detect_leaks=0,$(SANITIZED_TESTS))

sanitize-python-threads: $(VENV)/.dev
	$(call sanitized_python,sanitize-python-threads,thread,libtsan.so,OPENBLAS_NUM_THREADS=1,tests/safety/test_threads.py)

SIZE ?= 20000
SEED ?= 0
torture: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.safety.torture --size $(SIZE) --seed $(SEED)

KILLS ?= 300
torture-service: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.service.torture --kills $(KILLS) --seed $(SEED)

HISTORIES ?= 10000
torture-sites: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.federated.torture --histories $(HISTORIES) --seed $(SEED)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python .ci/plain_words.py
	$(BIN)/clang-format --dry-run --Werror $(CPP)

format: $(VENV)/.dev
	$(BIN)/ruff check --fix --quiet . || true
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CPP)

stubs: $(VENV)/.built
	$(BIN)/python -m nanobind.stubgen -q -m steelyard._native -o src/steelyard/_native.pyi

bench: $(VENV)/.dev
	@for script in benchmarks/speed/bench_*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

# The table of docs/benchmarks.md, measured anew; some minutes on a quiet machine.
bench-table: $(VENV)/.dev
	$(BIN)/python benchmarks/speed/table.py

# The same paths at every instruction level of this processor, side by side.
bench-levels: $(VENV)/.dev
	$(BIN)/python benchmarks/speed/table.py --levels

# Minutes, and most of it needs data that is not shipped: no part of `make test`.
papers: $(VENV)/.dev
	$(BIN)/python -m papers run all --quick --output build/papers $(if $(DATA),--data-dir $(DATA))

call-trace: $(VENV)/.dev
	$(BIN)/python docs/call_trace.py

docs: $(VENV)/.dev
	$(BIN)/python -m sphinx -E -W --keep-going -q -b html docs docs/_build/html
	@echo "open docs/_build/html/index.html"

# The oldest versions that pyproject.toml promises, in an environment of their own.
test-lowest:
	$(PYTHON) -m venv build/lowest
	build/lowest/bin/python -m pip install --quiet $(BUILD_TOOLS) $(OLD_BUILD_TOOLS) -r tests/lowest-requirements.txt
	build/lowest/bin/python -m pip install --quiet --no-build-isolation --no-deps .
	build/lowest/bin/python -m pytest -n 2 --dist loadgroup -p no:cacheprovider -o testpaths=tests \
	  --ignore=tests/test_stubs.py

# Wheels, clean environments of every Python here, both compilers, both processors: a table at the end.
.PHONY: release-check lock
release-check: $(VENV)/.dev
	$(BIN)/python .ci/release_check.py $(STEPS)

# Exact versions and hashes for CI, beside the open bounds of pyproject.toml; no address of an index is written.
lock: $(VENV)/.dev
	$(PIP) "uv>=0.5"
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	  --no-emit-find-links --no-header --no-annotate --extra dev --no-emit-package steelyard \
	  pyproject.toml -o .ci/requirements.lock

clean:
	rm -rf build dist docs/_build docs/gallery docs/generated $(VENV)
