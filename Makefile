# `make demo` shows memwatch at work, `make test` runs the tests; both make their own virtual environment in .venv.
# `make bench` measures it beside others, from .venv-bench; `make bench ONLY="scrape log"` a part of it.
PYTHON ?= python3
BIN := .venv/bin
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: demo test tools debian thorough fuzz machines fast check lint types contracts pictures dashboards manifests locks config-schema presets schema bench tables soak soak-watch manual pythons libraries gallery trackers site wheel packaging trust trust-endings trust-real clean

demo: .venv/.demo
	$(BIN)/memwatch demo

PYTEST = $(BIN)/pytest --durations 10
APART = not paced and not thorough and not vm and not nspawn
BY_FILE = --dist loadfile --no-loadscope-reorder
RESULTS = build/tests.jsonl
test: .venv/.dev  ## what runs real processes waits more than it works; where its pace tells, it has more room
	rm -f $(RESULTS)
	TEST_RESULTS=$(RESULTS) $(PYTEST) -n 3 $(BY_FILE) -m "not integration and $(APART)" || :
	TEST_RESULTS=$(RESULTS) $(PYTEST) -n 4 $(BY_FILE) -m "integration and $(APART)" || :
	TEST_RESULTS=$(RESULTS) $(PYTEST) -n 3 -m "paced and not thorough" tests/integration || :
	@PYTHONPATH=tests $(BIN)/python -m support.summary $(RESULTS) 3

tools:  ## what `make test` skips without: programs of Debian's (root), newer CPythons, trackers, Sphinx, types of dashboards
	$(MAKE) debian
	$(MAKE) -j 4 -O pythons schema trackers .venv/docs/.made .venv/gallery-small/.made

debian:
	tests/support/debian_programs

thorough: .venv/.dev  ## what is left out to be done in time: more pairs of leak and interpreter, what is large or measured
	$(PYTEST) -n 3 -m thorough
	$(PYTEST) -n 3 --hypothesis-profile explore -m "hypothesis and not thorough"

FUZZ ?= 10
SEED ?= 0
fuzz: .venv/fuzz/.made  ## each parser of what is foreign for FUZZ seconds, guided by coverage; what is found lies in build/fuzz
	PYTHONPATH=watchdog:tests PYTHONHASHSEED=$(SEED) .venv/fuzz/bin/python -m hostile.fuzz --seconds $(FUZZ) $(if $(RUNS),--runs $(RUNS)) --seed $(SEED) $(ONLY)

JOBS ?= 2
trust: .venv/.dev  ## docs/trust/decisions.json, unseen.json and their tables: 1,440 simulated runs; a quarter of an hour
	cd tests && PYTHONPATH=../watchdog:. ../$(BIN)/python -m trust.suite --jobs $(JOBS) --write ../docs/trust/decisions.json
	cd tests && PYTHONPATH=../watchdog:. ../$(BIN)/python -m trust.suite --first 1000 --count 40 --jobs $(JOBS) --write ../docs/trust/unseen.json
	cd tests && PYTHONPATH=../watchdog:. ../$(BIN)/python -m trust.tables

machines: .venv/.dev  ## memwatch as a service: in a container, and in the virtual machine of ../shared/vm; root, minutes
	$(PYTEST) -n 3 --dist loadfile -m "(vm or nspawn) and not thorough" tests/systemd tests/vm

fast: .venv/.dev  ## without the tests that run real trainers
	$(BIN)/pytest -m "not integration and not paced and not vm and not nspawn"

check: lint types contracts

lint: .venv/.dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: .venv/.dev
	$(BIN)/mypy
	$(BIN)/mypy --python-version 3.11 -p generator

contracts: .venv/.dev
	$(BIN)/lint-imports

pictures: .venv/.dev  ## docs/images/*.svg: the same files for the same code
	PYTHONPATH=watchdog:tests $(BIN)/python docs/pictures.py

manual: .venv/.dev  ## docs/manual: the manual page and completion for shells, from the parser of the command line
	PYTHONPATH=watchdog $(BIN)/python docs/manual.py

dashboards: .venv/.dev  ## configs/grafana/dashboards/*.json, from the registry of metrics; Python 3.11 or newer
	PYTHONPATH=watchdog:configs/grafana $(BIN)/python -m generator

config-schema: .venv/.dev  ## configs/memwatch.schema.json, from the records of the configuration; Python 3.11 or newer
	PYTHONPATH=watchdog $(BIN)/python -m memwatch config schema > configs/memwatch.schema.json

presets: .venv/.dev  ## configs/markers/presets.json, from the YAML files beside it
	$(BIN)/python -c '$(PRESETS)' configs/markers/*.yaml > configs/markers/presets.json
PRESETS = import json, pathlib, sys, yaml; \
  print(json.dumps({name.stem: yaml.safe_load(name.read_text()) for name in map(pathlib.Path, sys.argv[1:])}, indent=1))

RULE = configs/kubernetes/monitoring/prometheusrule.yaml
RUNBOOKS = docs/runbooks.md
ONE_FILE = configs/kubernetes/trainer-with-memwatch.yaml
manifests: .venv/.dev  ## the rules as a manifest, and the example job with its sidecar in one file
	sed -i 's|runbook_url: .*#|runbook_url: $(RUNBOOKS)#|' configs/prometheus/memwatch.rules.yml
	sed -i '/^spec:/q' $(RULE)
	sed -n '/^groups:/,$$p' configs/prometheus/memwatch.rules.yml | sed 's/^./  &/' >> $(RULE)
	sed -i '/^[^#]/,$$d' $(ONE_FILE)
	$(BIN)/kubectl kustomize configs/kubernetes/job >> $(ONE_FILE)

LOCK = $(BIN)/uv pip compile -q --no-config --generate-hashes --no-annotate --python-version 3.13 \
  --custom-compile-command 'make locks' -c requirements-dev.txt
locks: .venv/.dev  ## requirements-image.txt and requirements-build.txt: what the image installs, with hashes
	$(LOCK) --extra auth -o requirements-image.txt pyproject.toml
	printf '%s\n' hatchling hatch-fancy-pypi-readme | $(LOCK) -o requirements-build.txt -

schema:  ## the types of Grafana's dashboards and the Prometheus operator's objects in .venv/schema, for tests; needs npm
	mkdir -p .venv/schema
	cp tests/configs/package.json .venv/schema
	npm install --prefix .venv/schema --no-package-lock --no-audit --no-fund --silent

trust-endings: .venv/.dev  ## 500 real endings, and what memwatch says of them: docs/trust/endings.json; root, a memory cgroup of version 1, half an hour
	PYTHONPATH=watchdog:tests $(BIN)/python -m trust.endings -o docs/trust/endings.json
	cd tests && PYTHONPATH=../watchdog:. ../$(BIN)/python -m trust.tables

trust-real: .venv/.dev  ## 100 small real trainers, leaking and healthy: docs/trust/real.json; as above
	PYTHONPATH=watchdog:tests $(BIN)/python -m trust.real -o docs/trust/real.json
	cd tests && PYTHONPATH=../watchdog:. ../$(BIN)/python -m trust.tables

bench: .venv-bench/.made  ## docs/performance/*.json and the tables of results.md beside them; an hour, root for some of it
	PYTHONPATH=tests .venv-bench/bin/python tests/bench/run.py $(if $(ONLY),--only $(ONLY)) $(BENCH)
	PYTHONPATH=tests .venv-bench/bin/python tests/bench/tables.py

tables: .venv/.dev  ## docs/performance/results.md anew from docs/performance/*.json
	PYTHONPATH=tests $(BIN)/python tests/bench/tables.py

soak: trust trust-endings trust-real soak-watch  ## all of docs/trust/results.md: three hours; root, a memory cgroup of version 1

soak-watch: .venv/.dev  ## an hour, and a month by a clock that is moved by hand: docs/trust/soak_*.json; fails where a bar is missed
	PYTHONPATH=tests $(BIN)/python tests/soak/run.py $(if $(ONLY),--only $(ONLY))

pythons: .venv/.dev  ## newer CPythons in .venv/newer, and numpy for each that tests find: they are counted from outside
	PYTHONPATH=tests $(BIN)/python -m support.pythons

libraries: .venv/.dev  ## stable-baselines3 and torch in .venv/libraries, 1.5 GB, for the tests that watch them
	$(PYTHON) -m venv .venv/libraries
	.venv/libraries/bin/pip install -q stable-baselines3 matplotlib

CHECKOUTS ?= build/checkouts
gallery: .venv/.dev .venv/gallery/.made .venv/gallery-small/.made .venv/gallery-vision/.made  ## real trainers under memwatch, healthy and failing: hours; docs/gallery.md says where $(CHECKOUTS) comes from
	PYTHONPATH=watchdog:tests $(BIN)/python -m gallery.run --checkouts $(CHECKOUTS) --busy no,yes $(if $(ONLY),--only "$(ONLY)") $(GALLERY)
	PYTHONPATH=watchdog:tests $(BIN)/python -m gallery.table build/gallery/runs.jsonl

.venv/gallery/.made: tests/gallery/requirements.txt
	$(PYTHON) -m venv .venv/gallery
	.venv/gallery/bin/pip install -q -r $<
	touch $@

.venv/gallery-small/.made: tests/gallery/requirements-small.txt
	$(PYTHON) -m venv .venv/gallery-small
	.venv/gallery-small/bin/pip install -q -r $<
	touch $@

.venv/gallery-vision/.made: tests/gallery/requirements-vision.txt
	$(PYTHON) -m venv .venv/gallery-vision
	.venv/gallery-vision/bin/pip install -q -r $<
	touch $@

trackers: .venv/trackers/.made  ## wandb, mlflow, tensorboard and apprise, and pyarrow, in .venv/trackers, 580 MB, for the tests that use them

site: .venv/docs/.made  ## docs/ as a site in site/, every warning an error: a dead link, a page that docs/conf.py does not place
	rm -rf site
	.venv/docs/bin/sphinx-build -q -E -W --keep-going -c docs -d .venv/docs/doctrees . site

wheel: .venv/.dev  ## dist: sdist and wheel, the same bytes for the same commit
	rm -rf dist
	$(BIN)/python -m build --no-isolation
	$(BIN)/twine check --strict dist/*
	$(BIN)/check-wheel-contents dist

packaging: .venv/.dev trackers  ## the wheel in use, with each extra; with the lowest and highest dependencies of an index, on the oldest and newest CPython
	$(PYTEST) -n 2 tests/packaging

.venv/.demo: requirements.txt pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install -q -r requirements.txt
	$(BIN)/pip install -q --no-deps --no-build-isolation -e .
	touch $@

.venv/.dev: requirements-dev.txt .venv/.demo
	$(BIN)/pip install -q -r requirements-dev.txt
	touch $@

.venv/trackers/.made: requirements-trackers.txt requirements.txt
	$(PYTHON) -m venv .venv/trackers
	.venv/trackers/bin/pip install -q -r requirements-trackers.txt
	touch $@

.venv/fuzz/.made: requirements-fuzz.txt requirements.txt
	$(PYTHON) -m venv .venv/fuzz
	.venv/fuzz/bin/pip install -q -r requirements-fuzz.txt
	touch $@

.venv/docs/.made: requirements-docs.txt
	$(PYTHON) -m venv .venv/docs
	.venv/docs/bin/pip install -q -r requirements-docs.txt
	touch $@

.venv-bench/.made: requirements-bench.txt requirements.txt pyproject.toml
	$(PYTHON) -m venv .venv-bench
	.venv-bench/bin/pip install -q -r requirements-bench.txt
	.venv-bench/bin/pip install -q --no-deps --no-build-isolation -e .
	touch $@

clean:
	rm -rf .venv .venv-bench dist build site
