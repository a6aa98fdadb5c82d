# Every target sets the machine up first; when nothing is missing that takes under a second.
.DEFAULT_GOAL := help
# The theme advertises its successor on every build.
export NO_MKDOCS_2_WARNING := 1
.PHONY: help setup demo test check bench soak conformance docs lock clean
SHELL := bash
BIN := .venv/bin

# How large fault and volume tests are: 1 is the full size, which `make soak` runs.
export GRIDPOST_SCALE ?= 0.1

# How many processes share the tests, by file. Each may start RabbitMQ, PostgreSQL and Spark.
WORKERS ?= 2

# Coverage is asked of these alone; a run of a single test file does not ask for it.
COVERED := $(wildcard src/gridpost/core src/gridpost/wire)
COVERAGE := $(addprefix --cov=,$(COVERED)) $(if $(COVERED),--cov-report=term --cov-fail-under=95)

help:
	@echo 'make setup        what a fresh Debian or Ubuntu machine needs, then the virtual environment'
	@echo 'make demo         a whole network on this machine: documents, proofs, consoles'
	@echo 'make test         all tests; GRIDPOST_SCALE (default 0.1) scales fault and volume tests'
	@echo 'make check        lint, format, types, import contracts, generated pages, documentation'
	@echo 'make bench        every bench, as figures and ratios; result in docs/bench.md'
	@echo 'make soak         fault and volume tests at full size; result in docs/soak.md'
	@echo 'make conformance  what the tests prove of the standards; ledger in docs/conformance.md'
	@echo 'make docs         generated pages, then the documentation as HTML in site/'
	@echo 'make lock         requirements.lock from pyproject.toml'
	@echo 'make clean        remove everything that is not in the repository, .venv included'

setup:
	@scripts/bootstrap.sh

demo: setup
	@$(BIN)/gridpost demo

test: setup
	@echo "scale $(GRIDPOST_SCALE)"
	@echo 'screenshots of the consoles: var/screenshots'
	@HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-ci} WORKERS=$(WORKERS) scripts/run_tests.sh $(COVERAGE) $(ARGS)

check: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python scripts/generate_docs.py --check
	$(BIN)/mkdocs build --strict

# Which benches to run; without it all of them.
BENCHES ?= $$($(BIN)/gridpost bench)
bench: setup
	@set -e; mkdir -p var/bench; for name in $(BENCHES); do \
	    echo "bench $$name"; \
	    $(BIN)/gridpost bench $$name --json > var/bench/$$name.json; \
	    $(BIN)/python scripts/bench_page.py var/bench/$$name.json docs/bench.md; \
	done; echo 'results: docs/bench.md'

# The page is written whatever the outcome: it shows what failed, and so does the exit code.
soak: setup
	@status=0; \
	GRIDPOST_SCALE=1 HYPOTHESIS_PROFILE=soak $(BIN)/pytest -m soak --timeout=7200 \
	    --soak-report=var/soak.json $(ARGS) || status=$$?; \
	$(BIN)/python tests/support/soak_page.py var/soak.json docs/soak.md; \
	exit $$status

conformance: setup
	@HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-ci} \
	    $(BIN)/pytest -q -n $(WORKERS) --dist loadfile --conformance=docs/conformance.md

docs: setup
	$(BIN)/python scripts/generate_docs.py
	$(BIN)/mkdocs build --strict
	@echo 'open site/index.html'

LOCKED_EXTRAS := bus capacity dev pipeline pkcs11 postgres
lock: setup
	env -u PIP_FIND_LINKS -u UV_FIND_LINKS $(BIN)/uv pip compile --quiet --universal --generate-hashes \
	    --no-header --python-version 3.11 $(addprefix --extra ,$(LOCKED_EXTRAS)) \
	    --output-file requirements.lock pyproject.toml

clean:
	git clean -ffdXq
