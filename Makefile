# `make demo` and `make test` do everything from a fresh clone: environment, dependencies, extension, then the job.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
FILE ?= docs/architecture.md
SECONDS ?= 30
SEEDS ?= 0-99
SOURCES := $(shell find kcore_ext -name '*.pyx' -o -name '*.pxd' 2>/dev/null)
STAMP := $(VENV)/.built

# Tests and examples start many processes, and each would compile its modules again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: build demo demo-cluster demo-spark demo-spark-cluster test test-long test-kafka test-public-suites differential fuzz explore simulate simulate-campaign soak sanitize bench bench-peers lint lint-types lint-rest run-tests compile-extension install-dependencies docs dist dist-test site clean

build: $(STAMP)

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit("kcore needs Python 3.11 or newer, this is " + sys.version) if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)

# The C compiler runs beside the installation of the dependencies, which uses one core and the network.
$(STAMP): pyproject.toml setup.py $(SOURCES) | $(BIN)/python
	$(PIP) install $$($(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"])')
	$(MAKE) --jobs 2 compile-extension install-dependencies
	touch $(STAMP)

compile-extension:
	$(BIN)/python setup.py -q build_ext --inplace

# KCORE_EXT=none: `compile-extension` compiles the modules. --no-compile: Python compiles the files that it imports; pip
# would compile all files of all packages.
install-dependencies:
	KCORE_EXT=none $(PIP) install --no-compile --no-build-isolation --editable '.[dev]'
	$(BIN)/python -m compileall -q kcore kcore_ext

demo: build
	$(BIN)/kcore demo --file '$(FILE)'

# Needs PostgreSQL's server programs (Debian: apt-get install postgresql), and Java for the audit at the end
demo-cluster: build
	@command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || { echo 'make demo-cluster needs PostgreSQL: on Debian, apt-get install postgresql' >&2; exit 1; }
	@command -v java >/dev/null || { echo 'make demo-cluster needs a Java runtime, version 17 or newer, for the audit' >&2; exit 1; }
	$(BIN)/kcore demo --postgresql --file '$(FILE)'

demo-spark: build
	@command -v java >/dev/null || { echo 'make demo-spark needs a Java runtime, version 17 or newer, and there is no `java` on the path' >&2; exit 1; }
	$(BIN)/kcore demo --spark

# JARS is a folder with hadoop-aws and the AWS SDK; by default Maven downloads them (700 MB) to its local repository
demo-spark-cluster: build
	@command -v java >/dev/null || { echo 'make demo-spark-cluster needs a Java runtime, version 17 or newer, and there is no `java` on the path' >&2; exit 1; }
	$(PIP) install 'moto[server]>=5'
	$(BIN)/kcore demo --spark --cluster $(if $(JARS),--jars '$(JARS)')

# One process compiles the tests, so that not each worker does it at its start. The type checker runs beside the tests.
# More workers than two cores: many tests wait for other processes.
test: build
	$(MAKE) --jobs 2 lint run-tests

run-tests: build
	$(BIN)/python -m pytest --collect-only --quiet tests >/dev/null
	$(BIN)/python -m pytest -n 4 --dist worksteal tests

test-long: build
	$(BIN)/python -m pytest -n 2 --dist worksteal -m long tests

test-kafka: build
	@command -v mvn >/dev/null || { echo 'make test-kafka needs Java 17 and Maven' >&2; exit 1; }
	KCORE_TEST_KAFKA=start $(BIN)/python -m pytest tests/node
	KCORE_TEST_KAFKA=start $(BIN)/python -m pytest -m long tests/spark/test_kafka_source.py tests/spark/test_kafka_admin.py

# PROJECTS is a folder with checkouts of projects; see tools/public_suites.py
test-public-suites: build
	@test -n "$(PROJECTS)" || { echo 'usage: make test-public-suites PROJECTS=folder' >&2; exit 1; }
	$(BIN)/python -m tools.public_suites $(PROJECTS)

differential: build
	@command -v mvn >/dev/null || { echo 'make differential needs Java 17 and Maven' >&2; exit 1; }
	$(BIN)/python -m tools.differential --seeds $(SEEDS)

fuzz: build
	$(BIN)/python -m tools.fuzz --seconds $(SECONDS)

explore: build
	$(BIN)/python -m tools.explore --seconds $(SECONDS)

simulate: build
	$(BIN)/python -m tools.simulate --seconds $(SECONDS)

simulate-campaign: build
	nice -n 19 $(BIN)/python -m tools.simulate.campaign --seconds $(SECONDS)

soak: build
	$(BIN)/python -m tools.soak --seconds $(SECONDS)

sanitize: build
	$(BIN)/python -m tools.sanitize --seconds $(SECONDS)

lint: lint-types lint-rest

lint-types: build
	$(BIN)/mypy

lint-rest: build
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/python tools/generate_docs.py --check
	$(BIN)/python tools/generate_errors.py --check
	$(BIN)/python tools/generate_sync.py --check

docs: build
	$(BIN)/python tools/generate_docs.py
	$(BIN)/python tools/generate_errors.py
	$(BIN)/python tools/generate_sync.py

bench: build
	$(BIN)/python -m bench

bench-peers: build
	$(BIN)/python -m bench.compare

# The sdist and the wheel of this machine; `cibuildwheel` builds those of other platforms.
dist:
	$(PYTHON) -m tools.distributions build

dist-test:
	test -d dist || $(PYTHON) -m tools.distributions build
	$(PYTHON) -m tools.distributions test

# The documentation as HTML pages in build/site.
site:
	$(PYTHON) -m tools.site

clean:
	rm -rf $(VENV) build dist *.egg-info
	find kcore_ext \( -name '*.so' -o -name '*.c' -o -name '*.cpp' \) -delete
