# The menu. `make demo` and `make test` need Python 3.11+, make and a package index, and nothing else.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
override DEMO_RUN := runs/demo
# Processes that share the default tests. Those of the other tiers are about what a whole machine has, and run in one.
WORKERS ?= 2

# Tests start hundreds of interpreters: compiled modules are kept, whatever the environment says.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test test-all test-sandboxes test-docker test-mcp test-vllm check format bench coverage clean bubblewrap model

help:  ## Say what there is.
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 16

$(VENV)/pip:
	$(PYTHON) -c 'import sys; sys.exit(0 if (3, 11) <= sys.version_info < (3, 14) else f"agentenv needs Python 3.11 to 3.13, {sys.executable} is {sys.version.split()[0]}: make PYTHON=python3.12 …")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	@touch $@

$(VENV)/user: $(VENV)/pip pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[local,parquet]'
	@touch $@

# What is installed for development is compiled when it is first imported: most of it never is.
$(VENV)/dev: $(VENV)/pip pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --editable '.[docker,local,mcp,parquet,tiktoken]' --group dev
	@touch $@ $(VENV)/user

bubblewrap:
	@command -v bwrap >/dev/null || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends bubblewrap; \
	  else echo "bubblewrap is missing: install it (Debian, Ubuntu: sudo apt-get install bubblewrap)"; exit 1; fi; }

model: $(VENV)/user
	@$(BIN)/python -m agentenv.local

demo: model  ## Collect real rollouts with a small model on the CPU, and look at one.
	@! test -e $(DEMO_RUN) || { test -f $(DEMO_RUN)/manifest.json && rm -rf $(DEMO_RUN); } || { \
	  echo "$(DEMO_RUN) is no run folder: move it away"; exit 1; }
	$(BIN)/agentenv collect arithmetic --policy smollm2 --tasks 8 --shots 5 --temperature 1 --max-tokens 96 \
	  --slots 2 --concurrency 2 --out $(DEMO_RUN)
	$(BIN)/agentenv show $(DEMO_RUN) first

test: bubblewrap $(VENV)/dev model  ## Everything a contributor needs, then lint, types, layers and the default tests.
	$(MAKE) --no-print-directory check
	$(BIN)/pytest -q -n $(WORKERS) --dist worksteal

test-all: bubblewrap $(VENV)/dev model  ## The slow tests too.
	HYPOTHESIS_PROFILE=broad $(BIN)/pytest -q -m 'not vllm and not docker and not mcp'

test-sandboxes: bubblewrap $(VENV)/dev  ## The kinds of sandboxes that need no daemon: conformance, the weak ones, a campaign of faults.
	$(BIN)/pytest -q -m 'sandboxes and not slow' tests/sandboxes tests/campaign tests/cli

test-docker: $(VENV)/dev model  ## On a Docker Engine of its own (as root): the sandbox tests, and the stacks of compose/.
	$(BIN)/pytest -q -m docker tests/docker

test-mcp: bubblewrap $(VENV)/dev  ## Install MCP servers published by others, and let them drive episodes inside the sandbox.
	$(BIN)/pytest -q -m mcp tests/mcp

test-vllm: $(VENV)/dev  ## Install a real vLLM for CPU in a venv of its own, serve a tiny model, run the contract tests.
	$(PYTHON) tests/vllm/engine/install.py
	$(BIN)/pytest -q -m vllm tests/vllm

check: $(VENV)/dev  ## Lint, types, layers: the types beside the others, and shown after them.
	@$(BIN)/pyright --pythonpath $(BIN)/python >$(VENV)/types 2>&1 & types=$$!; bad=0; \
	$(BIN)/ruff check . || bad=1; \
	$(BIN)/ruff format --check . || bad=1; \
	$(BIN)/lint-imports || bad=1; \
	wait $$types || bad=1; \
	cat $(VENV)/types; exit $$bad

format: $(VENV)/dev
	$(BIN)/ruff check --fix . ; $(BIN)/ruff format .

coverage: bubblewrap $(VENV)/dev model  ## Coverage by branch.
	$(BIN)/coverage run -m pytest -q && $(BIN)/coverage report

bench: $(VENV)/dev  ## Ratios of section "Speed", against a stub engine on loopback.
	$(BIN)/python -m tests.bench

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis build dist
