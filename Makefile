# `make demo` shows memwatch at work, `make test` runs the tests; both make their own virtual environment in .venv.
PYTHON ?= python3
BIN := .venv/bin
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: demo test fast check lint types contracts pictures wheel clean

demo: .venv/.demo
	$(BIN)/memwatch demo

test: .venv/.dev
	$(BIN)/pytest -n 2 --dist loadfile

fast: .venv/.dev  ## without the tests that run real trainers
	$(BIN)/pytest -m "not integration"

check: lint types contracts

lint: .venv/.dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: .venv/.dev
	$(BIN)/mypy

contracts: .venv/.dev
	$(BIN)/lint-imports

pictures: .venv/.dev  ## docs/images/*.svg: the same files for the same code
	PYTHONPATH=watchdog:tests $(BIN)/python docs/pictures.py

wheel: .venv/.dev
	$(BIN)/pip wheel -q --no-deps --no-build-isolation -w dist .

.venv/.demo: requirements.txt pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install -q -r requirements.txt
	$(BIN)/pip install -q --no-deps --no-build-isolation -e .
	touch $@

.venv/.dev: requirements-dev.txt .venv/.demo
	$(BIN)/pip install -q -r requirements-dev.txt
	touch $@

clean:
	rm -rf .venv dist build
