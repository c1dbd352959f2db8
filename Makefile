# Every command of this project. `make help` lists them. Each sets up what it needs and does so only once.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# The Python to make the virtual environment with; 3.11 or newer.
PYTHON ?= python3
BIN := .venv/bin
# Node and npm come from the virtual environment, whatever else is installed.
NODE_PATH_FIRST := PATH="$(CURDIR)/$(BIN):$$PATH"

# In how many processes tests run.
TEST_PROCESSES ?= 3

# Where `make run` listens, and with how many processes and threads.
BIND ?= 127.0.0.1:8000
WEB_PROCESSES ?= 2
WEB_THREADS ?= 4

.PHONY: help demo demo-cross-chain test chromium attack fuzz mutants prove slither bench old-blocks bench-gas lint format run docs contracts lock clean

help: ## List the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F ':.*## ' '{ printf "  make %-16s %s\n", $$1, $$2 }'

demo: .venv/ready node_modules/ready ## Prove a balance on a development chain and show it (ONCE=1: stop after that)
	@$(BIN)/python -m demo $(if $(ONCE),--once) $(if $(PORT),--port $(PORT)) $(if $(RPC_PORT),--rpc-port $(RPC_PORT))

demo-cross-chain: .venv/ready node_modules/ready ## Prove balances on two development chains by attesters (ONCE=1, DOWN=2)
	@$(BIN)/python -m demo.cross_chain $(if $(ONCE),--once) $(if $(DOWN),--down $(DOWN)) $(if $(PORT),--port $(PORT)) \
		$(if $(RPC_PORT),--rpc-port $(RPC_PORT))

# Tests mostly wait for nodes and clocks. The tests of a file share what is slow to make.
test: lint chromium ## Run all checks and tests (TEST_PROCESSES=3)
	$(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist loadfile $(ARGS)

# Browser tests need the system's Chromium. Where it can't be installed they fail, each with a sentence that says so.
chromium:
	@command -v chromium >/dev/null || { echo "Installing Chromium for the browser tests ..."; \
		{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium; } >/dev/null 2>&1; } \
		|| echo "Chromium is missing and could not be installed; as root: apt-get install chromium"

bench: .venv/ready node_modules/ready ## Measure times, SQL statements, blocks and gas of the service
	$(BIN)/python -m pytest benchmarks -q -p no:cacheprovider

old-blocks: .venv/ready node_modules/ready ## Prove a block 20,000 blocks back (minutes, gigabytes)
	$(BIN)/python -m pytest benchmarks/old_blocks.py -q -p no:cacheprovider

bench-gas: .venv/ready node_modules/ready ## Measure the gas of proving (JSON=path, FIXTURES='path/*.json')
	@$(BIN)/python -m benchmarks.gas $(if $(JSON),--json '$(JSON)') $(if $(FIXTURES),--fixtures '$(FIXTURES)')

attack: .venv/ready .venv-attack/ready node_modules/ready ## Attack a running service: clients, nodes, disks, clocks (ONLY=name SEED=1)
	@$(BIN)/python -m tests.attacks $(if $(ONLY),--only '$(ONLY)') $(if $(SEED),--seed $(SEED))

# What is set on the command line goes through, as it is.
fuzz: .venv/ready node_modules/ready ## Look for what the registry takes and isn't so (STEPS=10000000 SEED=1 JOBS=2 ...)
	@$(BIN)/python -m tests.contracts.fuzzing $(filter-out PYTHON=%,$(MAKEOVERRIDES))

mutants: .venv/ready node_modules/ready ## Take out each check of the contracts: tests must fail (ONLY=text ONLY_SURVIVORS=1 ...)
	@$(BIN)/python -m tests.contracts.mutants $(if $(ONLY),--only '$(ONLY)') $(if $(SHARD),--shard $(SHARD)) \
		$(if $(JOBS),--jobs $(JOBS)) $(if $(ONLY_SURVIVORS),--only-survivors)

prove: .venv/ready .venv-verify/ready node_modules/ready ## Prove properties of the contracts with halmos (minutes; ONLY=regex)
	@$(BIN)/python -m contracts.prove $(if $(ONLY),--only '$(ONLY)')

slither: .venv/ready .venv-verify/ready node_modules/ready ## Look for usual mistakes in the contracts
	@$(NODE_PATH_FIRST) .venv-verify/bin/python -m contracts.lint

lint: .venv/ready node_modules/ready ## Check formatting, style, types, settings and migrations
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy .
	BASE_URL=https://example.org STATE_DIR="$$(mktemp -d)" $(BIN)/python manage.py check --deploy --fail-level WARNING
	STATE_DIR="$$(mktemp -d)" $(BIN)/python manage.py makemigrations --check --dry-run

format: .venv/ready ## Format the Python code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

run: .venv/ready node_modules/ready ## Run web server and worker against the chains in chains.toml
	@$(BIN)/python manage.py migrate --no-input -v 0
	@$(BIN)/python manage.py collectstatic --no-input -v 0
	@$(BIN)/python manage.py runworker & worker=$$!; \
	$(BIN)/gunicorn --config config/gunicorn.py --bind $(BIND) --workers $(WEB_PROCESSES) --threads $(WEB_THREADS) config.wsgi & web=$$!; \
	trap 'kill $$worker $$web 2>/dev/null' INT TERM; \
	while kill -0 $$worker 2>/dev/null && kill -0 $$web 2>/dev/null; do sleep 1; done; \
	kill $$worker $$web 2>/dev/null; wait $$worker $$web; true

docs: .venv-docs/ready ## Build the documentation site into build/docs; a broken link or anchor fails
	@.venv-docs/bin/python -m sphinx --quiet --fail-on-warning --keep-going --fresh-env --builder html docs build/docs
	@echo "The documentation is in build/docs/index.html"

contracts: .venv/ready node_modules/ready ## Compile the contracts into contracts/artifacts
	$(NODE_PATH_FIRST) $(BIN)/python -m contracts.build

lock: ## Pin the Python dependencies anew, from pyproject.toml
	$(PYTHON) -m venv .venv-lock
	.venv-lock/bin/pip install --quiet uv
	.venv-lock/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
		pyproject.toml -o requirements.txt
	.venv-lock/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
		-c requirements.txt pyproject.toml --extra dev -o requirements-dev.txt
	.venv-lock/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
		--group verify -o requirements-verify.txt
	.venv-lock/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
		--group attack -o requirements-attack.txt
	rm -r .venv-lock

clean: ## Remove what the commands above have made
	rm -rf .venv .venv-verify .venv-attack node_modules .demo .demo-cross-chain .mutants .mypy_cache .ruff_cache .pytest_cache .hypothesis

# --- Set-up -----------------------------------------------------------------------------------------------------------

.venv/ready: requirements-dev.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "This needs Python 3.11 or newer; name one with make PYTHON=/path/to/python3."; exit 1; }
	@$(PYTHON) -m venv .venv >/dev/null 2>&1 \
		|| { echo "Python's venv module is missing; on Debian: apt-get install python3-venv"; exit 1; }
	@echo "Installing the Python dependencies (about a minute) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.txt 2>.venv/pip.log \
		|| { echo "The Python dependencies could not be installed. Is there a network? .venv/pip.log says more."; exit 1; }
	@touch $@

.venv-verify/ready: requirements-verify.txt .venv/ready
	@$(PYTHON) -m venv .venv-verify
	@echo "Installing the tools that verify the contracts ..."
	@.venv-verify/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-verify.txt \
		2>.venv-verify/pip.log \
		|| { echo "The tools could not be installed. Is there a network? .venv-verify/pip.log says more."; exit 1; }
	@touch $@

.venv-attack/ready: requirements-attack.txt
	@$(PYTHON) -m venv .venv-attack
	@echo "Installing the tools that attack the service ..."
	@.venv-attack/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-attack.txt \
		2>.venv-attack/pip.log \
		|| { echo "The tools could not be installed. Is there a network? .venv-attack/pip.log says more."; exit 1; }
	@touch $@

.venv-docs/ready: requirements-docs.txt
	@$(PYTHON) -m venv .venv-docs
	@echo "Installing the tools that build the documentation ..."
	@.venv-docs/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-docs.txt \
		2>.venv-docs/pip.log \
		|| { echo "The tools could not be installed. Is there a network? .venv-docs/pip.log says more."; exit 1; }
	@touch $@

node_modules/ready: package-lock.json .venv/ready
	@echo "Installing the development chain and the other npm packages ..."
	@$(NODE_PATH_FIRST) npm ci --silent --ignore-scripts --no-audit --no-fund \
		|| { echo "The npm packages could not be installed. Is there a network? $(BIN)/npm ci says more."; exit 1; }
	@touch $@
