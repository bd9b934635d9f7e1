# Headwater's everyday commands. `make help` lists them.

# exits with 0 under a Python that the suite runs on; a later one is refused, because nobody has tried it
SUPPORTED := import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))
ifndef PYTHON
PYTHON := $(shell for python in python3.13 python3.12 python3.11 python3; do \
    if $$python -c '$(SUPPORTED)' 2>/dev/null; then echo $$python; break; fi; done)
endif
VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed
# uv: the one on the path, else one of our own in the environment.
UV := $(shell command -v uv 2>/dev/null || echo $(VENV)/bin/uv)
export UV_HTTP_TIMEOUT ?= 300# pyspark is large
# Some images turn bytecode files off; then each of the many processes would compile everything that it imports.
export PYTHONDONTWRITEBYTECODE :=

# arguments of pytest for long runs, as tests/run.py has them for the others
SIDE_BY_SIDE := --maxprocesses 4 --no-loadscope-reorder

# what builds images, and their version
ENGINE ?= $(firstword $(foreach each,docker podman,$(shell command -v $(each))))
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
BUILD = build --file compose/Dockerfile --build-arg VERSION=$(VERSION) \
    --build-arg REVISION=$(shell git rev-parse HEAD 2>/dev/null) $(if $(BASE),--build-arg BASE=$(BASE)) $(BUILD_OPTIONS)

# the environment that builds the site of the docs: nothing of it is among the dependencies of Headwater
DOCS := build/docs/environment
LOCKING = $(UV) pip compile --universal --generate-hashes --no-emit-index-url --no-emit-find-links --no-header --python-version 3.11

# a bill of materials (CycloneDX) of every package and jar of the locks
BILL := build/sbom.cdx.json
CYCLONEDX := PYTHONWARNINGS=ignore $(UV) tool run --from cyclonedx-bom==7.5.0 cyclonedx-py
PIP_AUDIT := $(UV) tool run pip-audit==2.10.1
RELEASE = dist/$(VERSION)
refuse = { echo 'error: $(1)' >&2; exit 1; }

# the samples that `run` and `demo` are about
CHOSEN := $(if $(DOMAINS),--domains '$(DOMAINS)')

.DEFAULT_GOAL := help
.PHONY: help setup chosen spark up down run demo test test-all test-touched servers soak check bill audit bench docs lock images release clean

help: ## list these commands
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

setup: $(STAMP) ## install the locked dependencies into .venv (does nothing if they have not changed)

$(STAMP): requirements.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "error: no Python 3.11, 3.12 or 3.13; install one with: \
	sudo apt-get install -y python3 python3-venv (or dnf install python3.12, brew install python@3.12)" >&2; exit 1; }
	@$(PYTHON) -c '$(SUPPORTED)' || { echo "error: $(PYTHON) is $$($(PYTHON) --version 2>&1), and Headwater is tested with \
	Python 3.11, 3.12 and 3.13: set PYTHON to one of them" >&2; exit 1; }
	@$(PYTHON) -I projections/spark/setup/java.py
	@# an environment of another Python, or one whose making was interrupted before it had pip, is made anew
	@{ $(PY) -c '$(SUPPORTED)' 2>/dev/null && { test -x "$(UV)" || $(PY) -m pip --version >/dev/null 2>&1; }; } \
	    || $(PYTHON) -m venv --clear $(VENV)
	@test -x "$(UV)" || $(PY) -m pip install --quiet uv
	$(UV) pip install --python $(PY) --require-hashes --requirement requirements.lock
	$(UV) pip install --python $(PY) --no-deps --editable .
	@touch $@

chosen:
	@$(if $(CHOSEN),$(if $(PYTHON),$(PYTHON) -m headwater.compose.domains '$(DOMAINS)'))

spark: setup ## download the jars that Spark needs, such as its Kafka connector, and speed up its start (does nothing if done before)
	@$(PY) -m headwater.projections prepare

up: setup ## start the local stack in the background
	$(PY) -m headwater.compose up --detach

down: setup ## stop the local stack; its data is kept
	$(PY) -m headwater.compose down

run: chosen spark ## run the stack and Headwater's processes until Ctrl-C; DOMAINS=listings,orders or DOMAINS=all selects samples
	@$(PY) -m headwater.compose run $(CHOSEN)

demo: chosen spark ## load samples, check all views, rebuild them, and check again; DOMAINS selects samples, as for run
	$(PY) -m tests.demo $(CHOSEN)

test: $(if $(FAST),setup,servers) ## run the suite that decides, on servers of its own, for about half an hour; FAST=1: only tests without servers, JVM and other programs
	@$(PY) -m tests.run $(if $(FAST),fast,deciding)

test-all: servers ## run every test, which takes half an hour, and note in tests/complete.txt that they passed
	@$(PY) -m tests.run complete

test-touched: servers ## of the tests that only test-all runs, run those of folders that changed since they last passed; MINUTES=30 begins no test after that time
	@$(PY) -m tests.run touched $(if $(MINUTES),--minutes $(MINUTES))

servers: spark
	@$(PY) -m headwater.compose prepare

soak: spark ## run clients for 15 minutes while processes and servers fail, check the history and all views, then run all property tests with thirty times the examples, and the long form of tests that kill servers
	$(PY) -m tests.simulation
	HYPOTHESIS_PROFILE=long $(PY) -m pytest $(SIDE_BY_SIDE) -n logical tests/unit tests/contracts -m "not servers and not jvm"
	HYPOTHESIS_PROFILE=long $(PY) -m pytest $(SIDE_BY_SIDE) -n auto tests -m soak

check: setup ## check lint, formatting, types, imports and names
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	@# exit code 2: its processes did not start in time, as on a machine that is very busy
	$(VENV)/bin/mypy --num-workers auto || { test $$? = 2 && $(VENV)/bin/mypy; }
	$(VENV)/bin/lint-imports
	$(PY) -m tests.names

bill: setup ## write a bill of all packages and jars, as CycloneDX has it, to build/sbom.cdx.json; BILL=... writes another file
	@mkdir -p $(dir $(BILL))
	@$(CYCLONEDX) requirements requirements.lock --pyproject pyproject.toml --output-reproducible --output-file $(BILL)
	@$(PY) -m headwater.compose.publishing.bill $(BILL)

audit: bill ## look for known vulnerabilities in packages, by pip-audit, and in packages and jars, by osv-scanner
	@# both fail, too, if something could not be asked about
	@failed=0; \
	$(PIP_AUDIT) --strict --disable-pip --require-hashes --vulnerability-service osv --requirement requirements.lock || failed=1; \
	if command -v osv-scanner >/dev/null; then osv-scanner scan source --lockfile $(BILL) || failed=1; \
	else echo "jars: NOT CHECKED: install osv-scanner" >&2; failed=1; fi; exit $$failed

bench: spark ## run benchmarks, on the running servers or on its own; NAME=... selects some
	@$(PY) -m tests.bench $(NAME)

docs: $(DOCS)/.installed ## build the site of docs/ in build/docs/site; broken links are errors, and so is what a page loads from elsewhere
	@$(DOCS)/bin/python -m headwater.compose.publishing.site

$(DOCS)/.installed: docs/requirements.lock | setup
	$(PY) -m venv --clear --without-pip $(DOCS)
	$(UV) pip install --python $(DOCS)/bin/python --require-hashes --requirement docs/requirements.lock
	@touch $@

lock: setup ## resolve and lock the Python dependencies again
	$(LOCKING) --all-extras pyproject.toml -o requirements.lock
	@# with setuptools, for what the lock has as source only, and what installs it in images
	{ sed -n 's/^requires = \["\(.*\)"\]/\1/p' pyproject.toml; echo 'setuptools>=80'; echo uv; } | $(LOCKING) - -o compose/containers/build.lock
	$(LOCKING) docs/requirements.in -o docs/requirements.lock

images: ## build the container images headwater:VERSION and headwater:VERSION-api with docker or podman (ENGINE, BASE, BUILD_OPTIONS)
	@test -n "$(ENGINE)" || { echo "error: no docker and no podman; install one of them, or set ENGINE to its path" >&2; exit 1; }
	@# podman's own format of images has no health checks
	BUILDAH_FORMAT=docker $(ENGINE) $(BUILD) --target api --tag headwater:$(VERSION)-api .
	BUILDAH_FORMAT=docker $(ENGINE) $(BUILD) --target headwater --tag headwater:$(VERSION) .

release: setup ## build wheel, sdist, bill of materials and images of one version into dist/VERSION; refuses a tree that is not committed, a version that CHANGELOG.md lacks, and one that is tagged
	@changed=$$(git status --porcelain) && test -z "$$changed" || $(call refuse,the tree has changes that are not committed)
	@grep -q '^## \[$(subst .,\.,$(VERSION))\] - 20' CHANGELOG.md || $(call refuse,CHANGELOG.md has no entry "## [$(VERSION)] - <date>")
	@test -z "$$(git tag --list v$(VERSION))" || $(call refuse,the tag "v$(VERSION)" exists: raise the version in pyproject.toml)
	rm -rf $(RELEASE)
	@# the sdist, and the wheel from it, with the time of the commit: two builds of one commit are the same bytes
	export SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) && $(MAKE) --no-print-directory bill BILL=$(RELEASE)/headwater-$(VERSION).cdx.json \
	    && $(UV) build --quiet --build-constraints compose/containers/build.lock --require-hashes --out-dir $(RELEASE)
	rm -f $(RELEASE)/.gitignore # uv writes one
	@if test -n "$(ENGINE)" && $(ENGINE) info >/dev/null 2>&1; then \
	    $(MAKE) images || exit; \
	    for tag in headwater:$(VERSION) headwater:$(VERSION)-api; do \
	        echo "$$tag $$($(ENGINE) image inspect --format '{{.Id}}' $$tag)"; done >$(RELEASE)/images.txt; \
	else echo "no container engine answers, so there are no images: make images builds them elsewhere"; fi
	cd $(RELEASE) && sha256sum * >SHA256SUMS
	@echo "if all is well: git tag --annotate v$(VERSION) --message 'Headwater $(VERSION)'"

clean: ## stop the local stack and remove its data, the environment and all caches
	@if test -x $(PY); then $(PY) -m headwater.compose down || true; fi
	@# root's PostgreSQL has its data where its user can reach it
	@test ! -L .headwater/postgres || rm -rf "$$(readlink .headwater/postgres)"
	rm -rf .headwater $(VENV) build/docs .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache spark-warehouse
