# make run    start a broker with its dashboard from this checkout
# make run DATA=/tmp/mq LISTEN=tcp:7810:interface=127.0.0.1 HTTP=tcp:7811:interface=127.0.0.1
#             the same, elsewhere
# make test   every test, on every Python of this machine, then the linters
#
# Both do all their own set-up: .venv holds the Python that runs the broker and
# the full suite, .venvs/ those that run the suite once more.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.SUFFIXES:
ifndef SIDE_BY_SIDE
.NOTPARALLEL:
endif

# Where the broker of `make run` keeps its data and listens.
DATA ?= ./data
LISTEN ?= tcp:7800:interface=127.0.0.1
HTTP ?= tcp:7801:interface=127.0.0.1

# Seconds of each random run that `make long` lets go on, seed by seed.
export TINYMQ_LONG_SECONDS ?= 600

# The Python to use; the first fitting one of the machine when not given.
PYTHON ?=
# Which tests every interpreter runs, side by side: the slow ones do not depend on the
# version, and have the machine for themselves.
UNITS ?= not browser and not process and not long
ALONE ?= (browser or process) and not long
# About half of them, so that few wait for one another.
HALF = tests/broker tests/storage tests/cluster tests/client tests/aio tests/sync tests/testing
# More arguments for pytest, such as ARGS="-k batch" or ARGS=--hypothesis-seed=1.
ARGS ?=
# What ARGS choose may be in one part of the tests alone.
or_none = $(if $(ARGS),|| [ $$? = 5 ])

bin := .venv/bin
pip := -m pip --disable-pip-version-check --quiet install
sources := pyproject.toml setup.py

.PHONY: help run test check format bench long clean units first second browser redis postgres

help:
	@sed -n 's/^# make/make/p; s/^#  / /p' Makefile
	@echo "make check  the linters and the type checker"
	@echo "make format put the code into its form"
	@echo "make bench  the benchmarks"
	@echo "make long   the long form of the checks: hours of kills and random input"
	@echo "make clean  remove all that was built, not the data"

run: .venv/installed
	@exec $(bin)/twistd --nodaemon --pidfile= tinymq \
	    --data '$(DATA)' --listen '$(LISTEN)' --http '$(HTTP)'

test: .venv/installed-test browser redis postgres units
	@echo "== tests with browsers and processes on $$($(bin)/python -V)"
	@$(bin)/python -m pytest -q -m '$(ALONE)' $(ARGS) $(or_none)

check: .venv/installed-test
	@echo "== ruff and mypy"
	@$(bin)/ruff check --quiet
	@$(bin)/ruff format --quiet --check
	@$(bin)/mypy tinymq tests benches twisted/plugins/tinymq_plugin.py

format: .venv/installed-test
	@$(bin)/ruff check --quiet --fix
	@$(bin)/ruff format

bench: .venv/installed-test
	@$(bin)/python -m benches $(ARGS)

long: export TINYMQ_LONG = 1
long: .venv/installed-test browser redis postgres
	$(bin)/tinymq verify-crash --kills 200 --power-loss 50
	$(bin)/tinymq verify-cluster --rounds 5
	$(bin)/tinymq verify-history --seconds $(TINYMQ_LONG_SECONDS)
	$(bin)/python -m pytest -q -m 'long or not long' $(ARGS)

clean:
	rm -rf .venv .venvs build dist *.egg-info .hypothesis .coverage htmlcov
	rm -rf .mypy_cache .pytest_cache .ruff_cache twisted/plugins/dropin.cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

browser:
	@.ci/browser

redis:
	@.ci/redis

postgres:
	@.ci/postgres

# One environment for each further Python. Their tests run side by side (by make,
# for what a shell starts in the background ignores Ctrl-C); a failure fails the whole.
units: .venv/installed-test
	@main=$$($(bin)/python -c 'import sys; print("%d.%d" % sys.version_info[:2])'); goals=; \
	for python in $$(.ci/pythons); do \
	    version=$$($$python -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
	    [ $$version = $$main ] && continue; \
	    $(MAKE) --no-print-directory .venvs/$$version/installed python=$$python || exit 1; \
	    goals="$$goals first-$$version second-$$version"; \
	done; \
	$(MAKE) --no-print-directory -j2 -Otarget SIDE_BY_SIDE=1 first second $$goals check

unit = -m pytest -q -p no:cacheprovider -m '$(UNITS)'
others = $(foreach part,$(HALF),--ignore=$(part))

first:
	@echo "== tests on $$($(bin)/python -V), first half"
	@$(bin)/python $(unit) $(HALF) $(ARGS) $(or_none)

second:
	@echo "== tests on $$($(bin)/python -V), second half"
	@$(bin)/python $(unit) $(others) $(ARGS) $(or_none)

first-%: .venvs/%/installed
	@echo "== tests on $$(.venvs/$*/bin/python -V), first half"
	@.venvs/$*/bin/python $(unit) --hypothesis-profile=few $(HALF) $(ARGS) $(or_none)

second-%: .venvs/%/installed
	@echo "== tests on $$(.venvs/$*/bin/python -V), second half"
	@.venvs/$*/bin/python $(unit) --hypothesis-profile=few $(others) $(ARGS) $(or_none)

.venvs/%/installed: $(sources)
	@echo "== making .venvs/$*"
	@$(python) -m venv --clear .venvs/$*
	@.venvs/$*/bin/python $(pip) --editable '.[test]'
	@touch $@

.venv/bin/python:
	@python='$(PYTHON)'; [ -n "$$python" ] || python=$$(.ci/pythons first) || exit 1; \
	echo "== making .venv with $$python"; \
	$$python -m venv --clear .venv

.venv/installed: $(sources) | .venv/bin/python
	@echo "== installing tinymq into .venv"
	@$(bin)/python $(pip) --editable .
	@touch $@

.venv/installed-test: $(sources) | .venv/bin/python
	@echo "== installing tinymq and its test and development tools into .venv"
	@$(bin)/python $(pip) --editable '.[test,dev]'
	@touch $@ .venv/installed
.PRECIOUS: .venvs/%/installed
