# Two commands: `make study` measures this machine and builds the book, `make test`
# checks the project. Both set up .venv first, from requirements.txt.
SHELL := /bin/bash
.DEFAULT_GOAL := help
VENV := .venv
BIN := $(VENV)/bin
MODEL ?= smollm2-135m
SIZE ?= default

.PHONY: help study book test lint system-packages clean

help:
	@echo "make study   measure the naive sweep on this machine, then build book/_build/html"
	@echo "             (MODEL=$(MODEL) SIZE=$(SIZE); sizes: smoke, default, paper)"
	@echo "make book    build the book from the committed and your own results"
	@echo "make test    run the tests"
	@echo "make lint    ruff and mypy"

study: $(VENV)/.ready
	$(BIN)/selfspec study --model "$(MODEL)" --size $(SIZE)
	$(BIN)/selfspec book

book: $(VENV)/.ready
	$(BIN)/selfspec book

test: $(VENV)/.ready lint
	$(BIN)/python -m pytest tests -n 2 --dist loadfile --durations 10

lint: $(VENV)/.ready
	$(BIN)/ruff check selfspec tests benchmarks notebooks
	$(BIN)/ruff format --check selfspec tests benchmarks
	$(BIN)/mypy

# Python 3.11 to 3.13, whichever comes first and really runs (a pyenv shim may not).
$(VENV)/.ready: requirements.txt constraints.txt pyproject.toml | system-packages
	@python=""; for candidate in $(PYTHON) python3.13 python3.12 python3.11 python3 python; do \
	  if $$candidate -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' >/dev/null 2>&1; \
	  then python=$$candidate; break; fi; done; \
	if [ -z "$$python" ]; then \
	  echo "selfspec needs Python 3.11, 3.12 or 3.13 with venv, and found none." >&2; \
	  echo "  macOS: brew install python@3.13    Debian/Ubuntu: apt install python3 python3-venv" >&2; \
	  echo "  or name one: make PYTHON=/path/to/python3 ..." >&2; exit 1; fi; \
	if [ -x $(BIN)/python ] && ! $(BIN)/python -c '' >/dev/null 2>&1; then rm -rf $(VENV); fi; \
	[ -x $(BIN)/python ] || { echo "creating $(VENV) with $$($$python --version)"; $$python -m venv $(VENV); }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt -c constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

# MLX on Linux calls whatever BLAS is loaded first; OpenBLAS makes it several times
# faster (book: method). Never fatal: without apt or root the study carries on.
system-packages:
	@if [ "$$(uname -s)" = Linux ] && ! ldconfig -p 2>/dev/null | grep -q libopenblas; then \
	  if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
	    echo "installing libopenblas0-pthread"; \
	    (apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq libopenblas0-pthread) >/dev/null 2>&1 \
	      || echo "could not install libopenblas0-pthread; carrying on without it"; \
	  else echo "hint: apt install libopenblas0-pthread makes MLX on this CPU several times faster"; fi; fi

clean:
	rm -rf book/_build
