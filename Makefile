# Everything a contributor types. `make demo` and `make test` work on a machine that has only
# Python 3.11+, make and git: each sets up .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ENGINE ?= $(shell command -v docker || echo podman)
IMAGE ?= nightjar
READY := $(VENV)/.ready
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check
DEVELOPMENT = --constraint constraints.txt --editable '.[dev]'
ORIGINAL := .venv-verifiers
CORES := $(shell nproc 2>/dev/null || echo 2)
# A file of tests runs in one process, files on all cores; at most 8 at a time, so that time limits hold.
TESTS_ON = $(BIN)/python -m pytest --maxprocesses 8 --dist loadfile --no-loadscope-reorder --numprocesses
# One process more than cores, because many tests wait for servers and other processes.
PYTEST = $(TESTS_ON) $(shell expr $(CORES) + 1)

# Without bytecode every process would compile every library anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo docs wheel test test-all quick fuzz mutants check fmt lint types bench bench-endpoints bench-warehouse scale many-workers month simulation side-by-side screenshots image clean

help: ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-15s %s\n", $$1, $$2}'

setup: $(READY) ## make .venv and install Nightjar with its development tools

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(None if v >= (3, 11) else "Nightjar needs Python 3.11 or newer, found %d.%d: run make PYTHON=python3.12" % v[:2])'
	$(PYTHON) -m venv $(VENV)
	$(PIP) --no-compile --constraint constraints.txt uv
	@# uv takes 20 s where pip takes two minutes; pip may reach an index that uv does not know of
	$(BIN)/uv pip install --quiet --python $(BIN)/python $(DEVELOPMENT) || $(PIP) --no-compile $(DEVELOPMENT)
	@touch $@

demo: $(READY) ## run the main job on a local model server: no key, no network
	@$(BIN)/nightjar demo

docs: $(READY) ## build the documentation site into nightjar/site; 'nightjar docs' opens it
	$(BIN)/python docs/site/build.py

wheel: docs ## build the wheel into dist/, with the pages of the documentation
	$(BIN)/python -m hatchling build -t wheel

test: $(READY) ## run the tests but those marked 'long' (ARGS="tests/warehouse -k views" for some)
	$(PYTEST) -m "not long" $(ARGS)

test-all: $(READY) ## run all tests, as CI does: before a release
	$(PYTEST) $(ARGS)

quick: $(READY) ## run the tests that a change breaks first
	$(TESTS_ON) $(CORES) -m "not slow and not long" tests/core tests/repo

fuzz: $(READY) ## run the tests that draw their cases with thousands of cases (CASES=2000)
	NIGHTJAR_FUZZ_CASES=$(or $(CASES),2000) NIGHTJAR_EVERY_CASE=1 $(PYTEST) $$(grep -rlE 'drawn\(|FUZZ_CASES' tests --include='test_*.py') $(ARGS)

mutants: $(READY) ## change 200 places of the library, one at a time, and count how many changes the tests notice (an hour; FILE=mutants.json)
	$(BIN)/python tests/mutation/mutants.py map $(or $(FILE),mutants.json) --pytest '$(wordlist 4,99,$(PYTEST))'
	$(BIN)/python tests/mutation/mutants.py run $(or $(FILE),mutants.json)

check: $(READY) lint types test-all ## run all that CI runs

fmt: $(READY) ## format the code
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

lint: $(READY) ## style and layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports

types: $(READY) ## mypy, strict
	$(BIN)/mypy --num-workers $(CORES)

bench: $(READY) ## print the performance table (several minutes)
	$(BIN)/python tests/performance/benchmark.py

bench-endpoints: $(READY) ## print how long runs take with endpoints that refuse, limit, queue, die and recover (half an hour; ARGS="--repeats 1")
	$(BIN)/python tests/performance/endpoints.py $(ARGS)

bench-warehouse: $(READY) ## print what the warehouse and the pages of the view take with 1 and 10 million rollouts (half an hour, 10 GB; ARGS="--rollouts 20000")
	$(BIN)/python tests/performance/warehouse.py $(ARGS)

scale: $(READY) ## print what grows with a team: segments, publishers, runs of a night, task runs (twenty minutes, 1 GB)
	$(BIN)/python tests/performance/scale.py $(ARGS)

many-workers: $(READY) ## run eight evaluations on four workers, with SQLite and with PostgreSQL (four minutes)
	NIGHTJAR_MANY_WORKERS=1 $(PYTEST) tests/flows/test_many_workers.py

month: $(READY) ## run thirty nights with planted faults, and compare the verdicts (ten minutes)
	$(BIN)/python tests/performance/month.py

simulation: $(READY) ## count how often intervals, tests, gates and trends err on runs whose truth is known (ten minutes)
	$(BIN)/python tests/performance/simulation.py $(ARGS)
	$(BIN)/python tests/performance/trends.py $(ARGS)

side-by-side: $(READY) $(ORIGINAL)/.ready ## run environments with verifiers 0.1.14 and with Nightjar, and compare (RECORD=1 keeps the former)
	$(BIN)/python tests/side_by_side/side_by_side.py --original $(ORIGINAL)/bin/python $(if $(RECORD),--record)

$(ORIGINAL)/.ready:
	$(PYTHON) -m venv $(ORIGINAL)
	$(ORIGINAL)/bin/python -m pip install --quiet --disable-pip-version-check 'verifiers==0.1.14' 'openai<3' 'anthropic<1'
	@touch $@

screenshots: $(READY) ## take the pictures of the README and docs/guides/screenshots.md: four minutes, and a Chromium (ARGS="--chromium PATH")
	$(PIP) --constraint constraints.txt --editable '.[screenshots]'
	$(BIN)/python tests/screenshots/take.py $(ARGS)
	$(BIN)/python tests/screenshots/view.py $(ARGS)
	$(BIN)/python tests/screenshots/overview.py

image: ## build the image of Nightjar for servers, workers and runs (IMAGE=NAME:TAG, ENGINE=podman)
	$(ENGINE) build --file deployments/Dockerfile --tag $(IMAGE) $(ARGS) .

clean: ## remove .venv and caches
	rm -rf $(VENV) $(ORIGINAL) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache dist
