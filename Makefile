# Deedbox. Needs Python >= 3.11 and make; `make` alone lists the targets.
# Extra words go through ARGS: make test ARGS="-k crash -x", make demo ARGS=--json.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
MAKEFLAGS += --no-builtin-rules

PYTHON ?= python3
ARGS ?=
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input
DISTS := producer debezium consumers
PACKAGES := deedbox deedbox_debezium deedbox_consumers
# Folders that come later are checked as soon as they exist.
CODE := $(wildcard $(DISTS:%=%/src) tests tools benchmarks examples docs/model)
CHECKS := style lint types public imports lengths sql locks

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[.a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' Makefile

# --- the environment ---------------------------------------------------------------------------------------------
# Two stamps: the demo needs no linters. Both locks pin the same versions, so the second only adds.

.PHONY: .venv
.venv: .venv/dev.stamp ## the virtual environment with everything (PYTHON=python3.13 chooses the interpreter)

.venv/bin/python:
	@command -v $(PYTHON) >/dev/null || { echo "There is no '$(PYTHON)' here. Deedbox needs Python 3.11 or newer; name it: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Deedbox needs Python 3.11 or newer, and $(PYTHON) is $$($(PYTHON) -V 2>&1). Name a newer one: make PYTHON=python3.13" >&2; exit 1; }
	$(PYTHON) -m venv --clear .venv

.venv/demo.stamp: requirements/demo.txt $(DISTS:%=%/pyproject.toml) .venv/bin/python
	$(call install,demo)
	@touch $@

.venv/dev.stamp: requirements/dev.txt $(DISTS:%=%/pyproject.toml) .venv/bin/python
	$(call install,dev)
	@touch .venv/demo.stamp $@

define install
	@echo "Installing requirements/$(1).txt into .venv"
	@set -o pipefail; $(PIP) install --require-hashes -r requirements/$(1).txt | \
	  awk '!/already satisfied|^(Ignoring|Looking in|Collecting|  Using cached)/ { print; fflush() }'
	@$(PIP) install --quiet --no-deps --no-build-isolation $(DISTS:%=-e ./%)
endef

# --- for everybody -----------------------------------------------------------------------------------------------

.PHONY: demo
demo: .venv/demo.stamp ## the double-charge story on real Postgres, Kafka and Debezium (ARGS=--json)
	@$(BIN)/deedbox demo $(ARGS)

.PHONY: test
test: .venv/dev.stamp ## every test; starts the services it needs (ARGS="-k name")
	$(BIN)/python -m pytest $(ARGS)

.PHONY: clean
clean: ## stop the local stacks; remove all they hold, .deedbox/ and the tools' caches
	@if [ -x $(BIN)/deedbox ]; then for folder in $$(ls -d .deedbox .deedbox/tests-*/ .deedbox/bench .deedbox/chaos 2>/dev/null); do $(BIN)/deedbox stack reset --all --folder $$folder; done; fi
	rm -rf .deedbox .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .loq_cache .coverage*

# --- for who changes it ------------------------------------------------------------------------------------------

.PHONY: test-unit
test-unit: .venv/dev.stamp ## the tests that need no service
	$(BIN)/python -m pytest tests/unit $(ARGS)

.PHONY: coverage
coverage: .venv/dev.stamp ## the tests under coverage, worker processes too (ARGS=tests/unit)
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest $(ARGS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

.PHONY: check
check: .venv/dev.stamp ## the gate: every check below (ARGS="lint types" runs some)
	@$(MAKE) --no-print-directory --keep-going $(or $(ARGS),$(CHECKS)) ARGS=
	@echo "The gate holds: $(or $(ARGS),$(CHECKS))"

.PHONY: format
format: .venv/dev.stamp ## write the code in our format, with the lint fixes that are safe
	$(BIN)/ruff check --fix-only $(or $(ARGS),$(CODE))
	$(BIN)/ruff format $(or $(ARGS),$(CODE))

.PHONY: style
style: .venv/dev.stamp ## · format
	$(BIN)/ruff format --check $(or $(ARGS),$(CODE))

.PHONY: lint
lint: .venv/dev.stamp ## · ruff
	$(BIN)/ruff check $(or $(ARGS),$(CODE))

.PHONY: types
types: mypy pyright ## · mypy strict and pyright

.PHONY: mypy
mypy: .venv/dev.stamp
	$(BIN)/mypy $(or $(ARGS),$(CODE))

.PHONY: pyright
pyright: .venv/dev.stamp
	$(BIN)/pyright --pythonpath $(BIN)/python $(or $(ARGS),$(CODE))

.PHONY: public
public: .venv/dev.stamp ## · every public name is typed, by pyright's own measure
	@$(BIN)/python -m tools.public $(or $(ARGS),$(PACKAGES))

.PHONY: imports
imports: .venv/dev.stamp ## · arrows between and inside the packages
	$(BIN)/lint-imports --no-logo $(ARGS)

.PHONY: lengths
lengths: .venv/dev.stamp ## · file lengths
	$(BIN)/loq check --no-cache $(ARGS)

.PHONY: sql
sql: .venv/dev.stamp ## · SQL only in .sql files
	@$(BIN)/python -m tools.sql_only_in_sql $(or $(ARGS),$(DISTS:%=%/src))

.PHONY: locks
locks: .venv/dev.stamp ## · locks hold hashes and no addresses, and agree
	@$(BIN)/python -m tools.locks $(ARGS)

.PHONY: invariants
invariants: .venv/dev.stamp ## I1-I16 and the tests that cite them
	@$(BIN)/python -m tools.invariants $(ARGS)

.PHONY: model
model: .venv/bin/python ## the protocol, checked in all its states (ARGS="--trace no-fence")
	@$(BIN)/python -m docs.model $(ARGS)

.PHONY: chaos
chaos: .venv/dev.stamp ## faults at random on the real stack, by a printed seed (ARGS="--minutes 5 --seed 7 --json")
	@$(BIN)/python -m tests.chaos $(ARGS)

.PHONY: bench
bench: .venv/dev.stamp ## the benchmark on the real stack (ARGS=--json)
	@$(BIN)/python -m benchmarks $(ARGS)

# Universal: one lock for Python 3.11 and later on Linux and macOS. Keeps what is locked; ARGS=--upgrade moves it.
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" \
	$(PACKAGES:%=--no-emit-package %)

.PHONY: lock
lock: .venv/dev.stamp ## resolve the locks again (ARGS=--upgrade, ARGS="-P ruff")
	$(COMPILE) consumers/pyproject.toml --extra demo --group pyproject.toml:build -o requirements/demo.txt $(ARGS)
	$(COMPILE) consumers/pyproject.toml --extra demo --group pyproject.toml:dev -c requirements/demo.txt -o requirements/dev.txt $(ARGS)
	@$(BIN)/python -m tools.locks
