# Every command of this project; `make help ALL=1` lists them. Each command installs its own needs, and only once.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# Set-ups would get into each other's way.
.NOTPARALLEL:

# The Python to make the virtual environment with; 3.11 or newer.
PYTHON ?= python3
BIN := .venv/bin
# Node and npm come from the virtual environment, even if others are installed.
NODE_PATH_FIRST := PATH="$(CURDIR)/$(BIN):$$PATH"
# Installs a lock file into a virtual environment, or npm's lock file beside it.
INSTALL = $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	|| { echo "This needs Python 3.11 or newer; name one with make PYTHON=/path/to/python3."; exit 1; }; \
	echo "Installing the packages of $< ..."; $(PYTHON) dev/tools/install.py

# Compiled modules are kept, even if the shell says otherwise: hundreds of processes would compile each of them anew.
unexport PYTHONDONTWRITEBYTECODE
# Files are read as UTF-8, even where the shell's locale has another encoding.
export PYTHONUTF8 := 1

# In how many processes tests run. They mostly wait for nodes and clocks: four on two cores.
TEST_PROCESSES ?= 4

# Address, processes and threads of `make run`.
BIND ?= 127.0.0.1:8000
WEB_PROCESSES ?= 2
WEB_THREADS ?= 8

.PHONY: help demo demo-cross-chain demo-rollup demo-any-block demo-cluster testnet secrets test test-long test-release test-postgres test-postgres-first test-outside test-fast geth test-geth test-geth-long op-stack test-op-stack test-op-stack-long chromium screenshots picture attack incidents chaos fuzz mutants weakened prove slither bench bench-scale bench-gas bench-estimates bench-receipts lint sentences format run docs contracts release lock locks-by-pip examples clean

## Run it

# A port in use is told before anything is installed, by any Python.
PORTS = $(if $(PORT),'PORT=$(PORT)') $(if $(RPC_PORT),'RPC_PORT=$(RPC_PORT)')
run: PORTS = $(if $(filter unix:% fd:%,$(BIND)),,'BIND=$(BIND)')
.PHONY: chosen-ports
chosen-ports:
	@! $(PYTHON) -V >/dev/null 2>&1 || $(PYTHON) dev/devnet/ports.py $(PORTS)

run: chosen-ports .venv/ready-to-run ## Run web server and worker against the chains in chains.toml
	@$(BIN)/python manage.py migrate --no-input -v 0
	@$(BIN)/python manage.py collectstatic --no-input -v 0
	@$(BIN)/python dev/tools/run.py --bind $(BIND) --processes $(WEB_PROCESSES) --threads $(WEB_THREADS)

# With ONCE=1 a demo ends after it has read the facts. PORT and RPC_PORT choose other ports.
DEMO_OPTIONS = $(if $(ONCE),--once) $(if $(PORT),--port='$(PORT)') $(if $(RPC_PORT),--rpc-port='$(RPC_PORT)')

demo: chosen-ports .venv/ready-for-demo node_modules/ready-for-demo ## Prove a balance on a development chain and show it (ONCE=1: stop after that; PORT=8100)
	@$(BIN)/python -m demo $(DEMO_OPTIONS)

demo-cross-chain: chosen-ports .venv/ready-for-demo node_modules/ready-for-demo ## Prove balances on two development chains by attesters (ONCE=1; DOWN=2 lets it wait)
	@$(BIN)/python -m demo.cross_chain $(DEMO_OPTIONS) $(if $(DOWN),--down='$(DOWN)')

demo-rollup: chosen-ports .venv/ready-for-demo node_modules/ready ## Prove a rollup's balance on the chain below it and on a third, by its own Outbox (ONCE=1)
	@$(BIN)/python -m demo.rollup $(DEMO_OPTIONS)

demo-any-block: chosen-ports .venv/ready-for-demo .venv-beacon/ready node_modules/ready ## Prove an old block by a jump through a beacon chain (ONCE=1)
	@$(BIN)/python -m demo.any_block $(DEMO_OPTIONS)

demo-cluster: chosen-ports .venv/ready-for-cluster node_modules/ready-for-demo ## Prove 200 values with PostgreSQL, Redis and 3 Celery workers, one killed (ONCE=1)
	@$(BIN)/python -m demo.cluster $(DEMO_OPTIONS)

examples: .venv/ready-for-demo node_modules/ready-for-examples ## Install what examples of docs/using need beside the demo: cast, and the Solidity compiler

testnet: chosen-ports .venv/ready-for-demo ## Run the service on Sepolia and OP Sepolia: asks for what is missing, and does the rest
	@$(BIN)/python -m tools.testnet $(if $(PORT),--port $(PORT)) $(ARGS)

secrets: .venv/ready-to-run ## Make the secrets of deploy/compose.yml: none is replaced or shown
	@PYTHONPATH=. $(BIN)/python dev/tools/compose_secrets.py

## Check a change

# Others' types of beacon blocks and states. Tests compare ours with them.
LODESTAR := tests/beacon_oracles/npm/node_modules
# Others' EVM. Tests compare our gas prices with it.
OTHER_EVM := tests/price_oracle/npm/node_modules

# Each process gets consecutive tests, because these share slow fixtures. A process that is done takes half of another's
# remaining tests.
TESTS = $(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist worksteal
# Tests of programs that Go builds.
NO_GO := not geth and not op_stack
NEEDED_BY_TESTS := .venv/ready node_modules/ready .venv-generators/ready .venv-beacon/ready $(LODESTAR)/ready $(OTHER_EVM)/ready

# Where Chromium can't be had, the browser tests fail, each with a sentence that says so. The others go on.
test: $(NEEDED_BY_TESTS) ## Run all tests but the long ones; installs Chromium if it is missing and that may be (TEST_PROCESSES=4)
	@$(MAKE) --no-print-directory chromium || echo "Going on without; the browser tests will fail."
	@$(TESTS) -m "not long and not release and $(NO_GO)" $(ARGS)

test-long: $(NEEDED_BY_TESTS) .venv-docs/ready ## Run the long tests: each story in detail, demos, kills, real nodes
	@$(TESTS) -m "long and not release and $(NO_GO)" $(ARGS)

test-release: $(NEEDED_BY_TESTS) ## Run the tests that take longest: kills at every step, moves between databases, most demos
	@$(TESTS) -m "release and $(NO_GO)" $(ARGS)

test-geth: .venv/ready node_modules/ready ## Run the tests that need geth, which `make geth` builds
	@$(TESTS) -m "geth and not long and not release" $(ARGS)

test-geth-long: .venv/ready node_modules/ready ## Run the long tests that need geth
	@$(TESTS) -m "geth and (long or release)" $(ARGS)

test-op-stack: .venv/ready node_modules/ready .venv-beacon/ready ## Run the tests that need a rollup of the OP Stack, which `make geth op-stack` builds
	@$(TESTS) -m "op_stack and not long and not release" $(ARGS)

test-op-stack-long: .venv/ready node_modules/ready ## Run the long tests that need a rollup of the OP Stack
	@$(TESTS) -m "op_stack and (long or release)" $(ARGS)

# Tests that run on PostgreSQL each time, because it is most likely to differ there: parallel transactions, bulk writes.
STORING := $(addprefix tests/queries/database/test_,idempotency.py own_batches.py storage.py submission.py uint256.py)
POSTGRESQL_FIRST := tests/database/database/test_side_by_side.py tests/inside/database/test_side_by_side.py \
	tests/inside/chain/test_shared_transactions.py tests/database/database/test_retried_reads.py \
	tests/upgrades/database/test_expansions.py $(STORING)
# Outside tests that may find faults of locks, kills and money on PostgreSQL only.
LOCKS_KILLS_MONEY := tests/proving/system/test_kills.py tests/proving/system/test_frozen_workers.py tests/proving/chain/test_money.py \
	tests/proving/chain/test_transactions.py tests/proving/chain/test_registries.py tests/proving/budget $(STORING)

# The folders and files whose tests use a database.
DATABASE_TESTS := tests/accounts tests/attesting tests/browser tests/cluster tests/database tests/docs/database/test_monitoring.py \
	tests/explorer tests/inside tests/proving tests/queries tests/serving tests/upgrades

test-postgres: .venv/ready node_modules/ready ## Run the tests that touch the database on PostgreSQL, which it starts
	$(TESTS) --database postgresql $(or $(ARGS),$(DATABASE_TESTS))

test-postgres-first: .venv/ready node_modules/ready ## Run the tests that are most likely to differ on PostgreSQL
	@$(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist worksteal --database postgresql $(POSTGRESQL_FIRST)

test-outside: .venv/ready node_modules/ready .venv-generators/ready .venv-beacon/ready ## Run the tests that know only HTTP, commands, chains and models; of locks, kills and money on PostgreSQL too
	$(TESTS) -q -m "outside and not long and not release and $(NO_GO)"
	$(TESTS) -q -m "outside and $(NO_GO)" --database postgresql $(LOCKS_KILLS_MONEY)

# They wait for nothing, so more processes than cores would only import and collect more often.
test-fast: .venv/ready node_modules/ready ## Run the tests that start no chain, browser or service, and some that prove a batch
	$(BIN)/python -m pytest -m "not long and not release and $(NO_GO)" -n auto --dist worksteal -q -r fE $(or $(ARGS),$(FAST))
# Without the last one, no fast test would prove a batch, which a quarter of the service's lines are for.
FAST := $(wildcard tests/*/no_database tests/*/database) tests/proving/chain/test_reorgs.py

lint: .venv/ready node_modules/ready sentences ## Check formatting, style, types, spelling, sentences, settings and migrations
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy .
	$(BIN)/codespell
	export BASE_URL=https://example.org STATE_DIR="$$(mktemp -d)" && $(BIN)/python manage.py migrate --no-input -v 0 \
		&& $(BIN)/python manage.py collectstatic --no-input -v 0 \
		&& $(BIN)/python manage.py check --deploy --fail-level WARNING
	STATE_DIR="$$(mktemp -d)" SQLITE_FILE=:memory: $(BIN)/python -W ignore::RuntimeWarning manage.py makemigrations --check --dry-run

# A comment, docstring or heading is plain where its subject comes first. These words put it last, or leave it out.
sentences: ## Refuse comments, docstrings and headings that hide their subject
	@git grep --no-index --exclude-standard -nE '^[[:space:]]*(#+|r?"""|//+|/?\*+|\{#|<!--|.*[^[:space:]]  (#|//))[^[:alnum:]]*(What|Of|By|Those|Who|So many|Whether)\>' -- . ':!static/vendor'; \
	case $$? in \
		0) echo "Each of these lines begins a comment, docstring or heading with a word that hides its subject: begin with the subject."; exit 1 ;; \
		1) ;; \
		*) echo "The sentences could not be searched, which needs git."; exit 1 ;; \
	esac

format: .venv/ready ## Format the Python code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Debian has a package of the browser without windows. Other systems have only the whole browser. Playwright's own node
# needs libatomic, which a small system lacks.
chromium: .venv/ready ## Install a Chromium for the browser tests, if none is there (apt-get, as root)
	@if { command -v chromium-headless-shell || command -v chromium; } && $(BIN)/python -m playwright --version; then exit 0; \
	fi >/dev/null 2>&1; \
	if [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then \
		echo "Chromium or libatomic is missing, and only root can install it: apt-get install chromium libatomic1"; exit 1; fi; \
	echo "Chromium or libatomic is missing; installing it on this system by apt-get ..."; \
	( apt-get update -qq; for package in chromium-headless-shell chromium; do \
		DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$package libatomic1 && exit 0; \
	done; exit 1 ) >/dev/null 2>&1 \
		|| { echo "Chromium could not be installed; apt-get install chromium libatomic1 says more."; exit 1; }

# Folders of dev with the pinned modules, and the hashes, of the newest geth and of one that other chains were made from.
geth: .geth/geth .geth/geth-1.16 ## Build the geth that `make test-geth` needs, once; needs Go

# An old Go would download a newer one, so this tells it not to. The rollup's programs need the newer Go.
GO = GOTOOLCHAIN=local go
FITTING_GO = (cd dev/$(1) && $(GO) list -m) >/dev/null 2>&1 \
	|| { echo "$(1) can't be built: it needs Go $$(sed -n 's/^go \([0-9]*\.[0-9]*\).*/\1/p' dev/$(1)/go.mod) or newer."; exit 1; }
FITTING := fitting-go-geth fitting-go-op-stack
.PHONY: $(FITTING)
$(FITTING): fitting-go-%:
	@$(call FITTING_GO,$*)

.geth/%: dev/%/go.mod dev/%/go.sum
	@$(call FITTING_GO,$*); echo "Building $@, which takes minutes ..."; mkdir -p .geth
	@cd dev/$* && $(GO) build -o ../../$@ github.com/ethereum/go-ethereum/cmd/geth && touch ../../$@

op-stack: .op-stack/ready ## Build the rollup that `make test-op-stack` needs, once; needs Go

.op-stack/ready: dev/op-stack/go.mod dev/op-stack/go.sum dev/tools/build_op_stack.py
	@$(call FITTING_GO,op-stack); $(PYTHON) dev/tools/build_op_stack.py .op-stack && touch $@

screenshots: .venv/ready node_modules/ready chromium ## Take pictures of every page in every state into build/screenshots, and check each (ONLY=text)
	@SCREENSHOTS=build/screenshots $(BIN)/python -m pytest tests/browser/system/test_pages_in_states.py -n 2 -q -p no:cacheprovider $(if $(ONLY),-k '$(ONLY)')
	@echo "The pictures are in build/screenshots"

picture: .venv/ready node_modules/ready chromium ## Take the README's picture, docs/explorer.png, from a demo
	@$(BIN)/python -m demo --once $(DEMO_OPTIONS) --picture docs/explorer.png

## Measure

bench: .venv/ready node_modules/ready ## Measure the speed gates, beside another checkout (BEFORE=folder ONLY=text)
	@$(BIN)/python -m campaigns.benchmarks.gates $(if $(BEFORE),--before '$(BEFORE)') $(if $(ONLY),--only '$(ONLY)')

bench-scale: .venv/ready node_modules/ready ## Measure batches a second by number of workers, databases and a broker (BATCHES=200 WORKERS=1,2,4)
	@$(BIN)/python -m campaigns.benchmarks.scale $(if $(BATCHES),--batches $(BATCHES)) $(if $(WORKERS),--workers $(WORKERS))

bench-gas: .venv/ready node_modules/ready ## Measure the gas of proving
	@$(BIN)/python -m campaigns.benchmarks.gas

bench-estimates: .venv/ready node_modules/ready ## Measure how far what is estimated is above what is spent
	$(BIN)/python -m pytest campaigns/benchmarks/test_estimates.py -q -p no:cacheprovider

bench-receipts: .venv/ready ## Measure time and memory of logs of a block with 1,500 transactions
	$(BIN)/python -m pytest campaigns/benchmarks/test_receipts.py -q -p no:cacheprovider

## Campaigns

attack: .venv/ready .venv-attack/ready node_modules/ready ## Attack a running service: requests, nodes, disks (ONLY=name SEED=1 REQUESTS=100000 SEQUENCES=2000)
	@$(BIN)/python -m campaigns.attacks $(if $(ONLY),--only '$(ONLY)') $(if $(SEED),--seed $(SEED)) \
		$(if $(REQUESTS),--requests $(REQUESTS)) $(if $(SEQUENCES),--sequences $(SEQUENCES))

incidents: .venv/ready node_modules/ready ## Run a table of incidents under load, and the lies of one of two nodes: each must be told in time, and nothing be lost (ONLY=text,text SEED=1)
	@$(BIN)/python -m campaigns.incidents $(if $(ONLY),--only '$(ONLY)') $(if $(SEED),--seed $(SEED))

chaos: .venv/ready node_modules/ready ## Upgrade under load, then fail at each statement and kill at each exchange (ENGINE=name VERSION=0.3.0 SEED=1)
	@$(BIN)/python -m campaigns.chaos $(if $(ENGINE),--engine '$(ENGINE)') $(if $(VERSION),--version '$(VERSION)') $(if $(SEED),--seed $(SEED))
	$(if $(ENGINE),,$(AT_EACH))
AT_EACH = for engine in sqlite postgresql; do \
	$(WITHOUT_CACHE) campaigns/chaos/statements.py --database $$engine || exit 1; \
	EVERY_EXCHANGE=1 $(WITHOUT_CACHE) tests/proving -k 'wherever or frozen_at_any' --database $$engine || exit 1; done
# Tests that fail at each statement in turn take longer than others may.
WITHOUT_CACHE = $(BIN)/python -m pytest -q -n 2 -p no:cacheprovider -o faulthandler_timeout=7200

# Variables on the command line are passed on unchanged.
fuzz: .venv/ready node_modules/ready ## Search for false proofs that the registry accepts (STEPS=10000000 SEED=1 JOBS=2 ...)
	@$(BIN)/python -m campaigns.fuzzing $(filter-out PYTHON=%,$(MAKEOVERRIDES))

mutants: .venv/ready node_modules/ready ## Take out each check of the contracts: tests must fail (ONLY=text ONLY_SURVIVORS=1 ...)
	@$(BIN)/python -m campaigns.contract_mutants $(if $(ONLY),--only '$(ONLY)') $(if $(SHARD),--shard $(SHARD)) \
		$(if $(JOBS),--jobs $(JOBS)) $(if $(ONLY_SURVIVORS),--only-survivors)

## Contracts

contracts: .venv/ready-for-demo node_modules/ready ## Compile the contracts into contracts/artifacts
	$(NODE_PATH_FIRST) $(BIN)/python -m contracts.build

# The last line fails if the committed files differ from the compiler's output.
weakened: .venv/ready node_modules/ready ## Compile the weakened contracts of tests again, and check that they are as committed
	@git ls-files --error-unmatch tests/contracts/compiled >/dev/null 2>&1 \
		|| { echo "This compares with what is committed, so it needs git and a checkout."; exit 1; }
	rm -f tests/contracts/compiled/*.hex
	$(BIN)/python -m pytest -q -n 2 -p no:cacheprovider $(addprefix tests/contracts/chain/test_,$(WEAKENING:=.py)) -k 'missing or missed or found or nothing_is_checked'
	test -z "$$(git status --porcelain tests/contracts/compiled)"
WEAKENING := forgeries transactions

prove: .venv/ready .venv-verify/ready node_modules/ready ## Prove properties of the contracts with halmos (minutes; ONLY=regex)
	@$(BIN)/python -m contracts.prove $(if $(ONLY),--only '$(ONLY)')

slither: .venv/ready .venv-verify/ready node_modules/ready ## Look for usual mistakes in the contracts
	@$(NODE_PATH_FIRST) .venv-verify/bin/python -m contracts.lint

## Documents and packages

docs: .venv-docs/ready ## Build the documentation into build/docs, as a site and as text (llms.txt); a broken link fails
	@.venv-docs/bin/python -m sphinx --quiet --fail-on-warning --keep-going --fresh-env --builder html docs build/docs
	@echo "The documentation is in build/docs/index.html"

# A release is made of the newest commit alone, and its files carry that commit's time: each run makes the same bytes.
VERSION = $(shell git show HEAD:pyproject.toml | sed -n 's/^version = "\(.*\)"/\1/p')
RELEASE := $(CURDIR)/build/release
SERVICE = batch-query-service-$(VERSION)
SOURCE = build/source/$(SERVICE)
# The first of these programs that is here.
BUILDER = $(firstword $(foreach name,buildah podman docker,$(if $(shell command -v $(name) 2>/dev/null),$(name))))
.PHONY: needs-of-a-release
needs-of-a-release:
	@git rev-parse --quiet --verify HEAD >/dev/null 2>&1 \
		|| { echo "A release is made of a commit, so it needs git and a checkout."; exit 1; }
	@test -n "$(BUILDER)$(WITHOUT_IMAGE)" \
		|| { echo "No buildah, podman or docker is here to build the image; WITHOUT_IMAGE=1 leaves it out."; exit 1; }

release: export SOURCE_DATE_EPOCH = $(shell git log -1 --format=%ct 2>/dev/null)
release: needs-of-a-release .venv/ready-for-demo .venv-release/ready .uv/bin/uv ## Make the files of a release from the newest commit, in build/release (WITHOUT_IMAGE=1)
	@rm -rf $(RELEASE) build/source && mkdir -p $(RELEASE) build/source
	git archive --prefix=$(SERVICE)/ --output=$(RELEASE)/$(SERVICE).tar.gz HEAD
	@tar -xzf $(RELEASE)/$(SERVICE).tar.gz -C build/source
	.uv/bin/uv build --quiet --no-build-isolation --python .venv-release/bin/python --no-create-gitignore \
		--out-dir $(RELEASE) $(SOURCE)/client
	cd $(SOURCE)/client/solidity && $(NODE_PATH_FIRST) npm pack --silent --pack-destination $(RELEASE)
	@cat $(addprefix $(SOURCE)/requirements/,service.txt celery.txt era.txt) > build/source/requirements.txt
	.venv-release/bin/python -W ignore -m cyclonedx_py requirements --output-reproducible \
		--pyproject $(SOURCE)/pyproject.toml --output-file $(RELEASE)/$(SERVICE).cdx.json build/source/requirements.txt
	$(if $(WITHOUT_IMAGE),,$(IMAGE_BY_$(BUILDER)))
	cd $(SOURCE) && CHAINS_FILE=deploy/known-networks.toml STATE_DIR=../state PYTHONPATH=dev \
		DJANGO_SETTINGS_MODULE=config.settings $(CURDIR)/$(BIN)/python -m tools.release $(RELEASE) $(VERSION)
	@rm -rf build/source; echo "The files of $(VERSION) are in build/release"

IMAGE = batch-query-service:$(VERSION)
IMAGE_FILE = $(RELEASE)/$(SERVICE).oci.tar
IMAGE_SOURCE = --file $(SOURCE)/deploy/Containerfile --tag $(IMAGE) $(SOURCE)
AS_OCI = --format oci --timestamp $$SOURCE_DATE_EPOCH $(IMAGE_SOURCE)
IMAGE_BY_buildah = buildah build $(AS_OCI) && buildah push $(IMAGE) oci-archive:$(IMAGE_FILE):$(IMAGE)
IMAGE_BY_podman = podman build $(AS_OCI) && podman save --format oci-archive --output $(IMAGE_FILE) $(IMAGE)
# Since version 25 it saves OCI's layout.
IMAGE_BY_docker = docker build $(IMAGE_SOURCE) && docker save --output $(IMAGE_FILE) $(IMAGE)

# A folder of packages of this machine would leave out the files that it has not.
LOCK = env -u UV_FIND_LINKS .uv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header
# The lock of an extra has only the packages that the service's lock lacks.
LOCK_EXTRA = $(LOCK) $(ARGS) -c requirements/service.txt pyproject.toml --extra $(1) \
	$$(sed -n 's/^\([^= ]*\)==.*/--no-emit-package \1/p' requirements/service.txt) -o requirements/$(1).txt
# Neither the image nor a newcomer's machine has a compiler, so the demo's packages, which include the service's, need
# wheels for each of these.
PYTHONS := 3.11 3.12 3.13 3.14
PLATFORMS := x86_64-manylinux_2_28 aarch64-manylinux_2_28 aarch64-apple-darwin
WHEELS = .uv/bin/uv pip install --quiet --dry-run --target build/wheels --only-binary :all: --require-hashes --no-deps \
	$(addprefix -r requirements/,demo.txt celery.txt era.txt cluster.txt)
lock: .uv/bin/uv ## Pin the Python dependencies anew, from pyproject.toml (ARGS=--upgrade: to newer versions)
	$(LOCK) $(ARGS) --group uv -o requirements/uv.txt
	$(LOCK) $(ARGS) pyproject.toml -o requirements/service.txt
	$(call LOCK_EXTRA,celery)
	$(call LOCK_EXTRA,era)
	$(LOCK) $(ARGS) -c requirements/service.txt pyproject.toml client/pyproject.toml --extra demo -o requirements/demo.txt
	$(LOCK) $(ARGS) -c requirements/demo.txt -c requirements/celery.txt --group cluster -o requirements/cluster.txt
	@for python in $(PYTHONS); do for platform in $(PLATFORMS); do \
		$(WHEELS) --python-version $$python --python-platform $$platform \
			|| { echo "Python $$python on $$platform lacks this wheel."; exit 1; }; done; done
	$(LOCK) $(ARGS) $(addprefix -c requirements/,demo.txt celery.txt era.txt cluster.txt) pyproject.toml client/pyproject.toml \
		--extra demo --extra celery --extra era --group cluster --extra dev -o requirements/dev.txt
	$(LOCK) $(ARGS) --group verify -o requirements/verify.txt
	$(LOCK) $(ARGS) --group attack -o requirements/attack.txt
	$(LOCK) $(ARGS) --group release -o requirements/release.txt
	$(LOCK) $(ARGS) --group docs -o requirements/docs.txt
	$(LOCK) $(ARGS) --group generators -o requirements/generators.txt
	$(LOCK) $(ARGS) --group beacon -o requirements/beacon.txt

# Where uv can't run, pip installs all.
locks-by-pip: ## Install each lock file by pip alone, and check that no dependency is missing
	@for lock in requirements/*.txt; do rm -rf build/by-pip; echo "$$lock ..."; \
		case $$lock in */celery.txt|*/era.txt) $(BY_PIP) requirements/service.txt || exit 1;; esac; \
		$(BY_PIP) $$lock || exit 1; done; rm -r build/by-pip
BY_PIP = timeout 900 $(PYTHON) dev/tools/install.py --by-pip build/by-pip

clean: ## Remove what the commands above have made
	rm -rf .uv .venv .venv-verify .venv-attack .venv-release .venv-docs .venv-generators .venv-beacon .geth .op-stack node_modules $(LODESTAR) $(OTHER_EVM) build .demo .demo-cross-chain .demo-rollup .demo-any-block .demo-cluster .mutants .mypy_cache .ruff_cache .pytest_cache .hypothesis

# Commands that a newcomer needs: they fit on one screen.
FIRST := run demo testnet test test-fast lint format docs

help: ## List the commands that one needs first (ALL=1: every command)
	@awk -F ':.*## ' -v first=' $(if $(ALL),,$(FIRST)) ' \
		'/^## / { heading = "\n" substr($$0, 4) "\n" } \
		/^[a-z-]+:.*## / && (first == "  " || index(first, " " $$1 " ")) { \
			printf "%s  make %-16s %s\n", heading, $$1, $$2; heading = "" }' $(MAKEFILE_LIST)
	@$(if $(ALL),,echo; echo "  make help ALL=1       List every command")

# --- Set-up -----------------------------------------------------------------------------------------------------------

# Packages for running, for the demos, and for everything else; each set contains the one before, and the last the
# cluster's servers too. Packages are only added to an environment, so that `.venv` can serve all.
.venv/ready-to-run: requirements/service.txt
	@$(INSTALL) .venv $<
	@touch $@

.venv/ready-for-demo: requirements/demo.txt client/pyproject.toml dev/tools/install.py
	@$(INSTALL) .venv $< --source client dev
	@touch $@ .venv/ready-to-run

.venv/ready-with-celery: requirements/celery.txt | .venv/ready-for-demo
	@$(INSTALL) .venv $<
	@touch $@

.venv/ready-for-cluster: requirements/cluster.txt | .venv/ready-with-celery
	@$(INSTALL) .venv $<
	@touch $@

.venv/ready: requirements/dev.txt client/pyproject.toml dev/tools/install.py
	@$(INSTALL) .venv $< --source client dev
	@touch $@ .venv/ready-for-cluster .venv/ready-with-celery .venv/ready-for-demo .venv/ready-to-run

.uv/bin/uv: requirements/uv.txt
	@$(INSTALL) .uv $<
	@touch $@

.venv-verify/ready: requirements/verify.txt .venv/ready
	@$(INSTALL) .venv-verify $<
	@touch $@

.venv-attack/ready: requirements/attack.txt .venv/ready
	@$(INSTALL) .venv-attack $<
	@touch $@

.venv-generators/ready: requirements/generators.txt .venv/ready
	@$(INSTALL) .venv-generators $<
	@touch $@

.venv-beacon/ready: requirements/beacon.txt .venv/ready-for-demo
	@$(INSTALL) .venv-beacon $<
	@touch $@

.venv-release/ready: requirements/release.txt
	@$(INSTALL) .venv-release $<
	@touch $@

.venv-docs/ready: requirements/docs.txt
	@$(INSTALL) .venv-docs $<
	@touch $@

# npm packages for the demos, for the examples of docs/using too, and for everything else.
node_modules/ready-for-demo: package-lock.json | .venv/ready-for-demo
	@$(INSTALL) .venv $< -- --omit=dev --no-workspaces
	@touch $@

node_modules/ready-for-examples: package-lock.json | .venv/ready-for-demo
	@$(INSTALL) .venv $< -- --omit=dev
	@touch $@ node_modules/ready-for-demo

node_modules/ready: package-lock.json | .venv/ready-for-demo
	@$(INSTALL) .venv $<
	@touch $@ node_modules/ready-for-examples node_modules/ready-for-demo

$(LODESTAR)/ready $(OTHER_EVM)/ready: tests/%/npm/node_modules/ready: tests/%/npm/package-lock.json | .venv/ready-for-demo
	@$(INSTALL) .venv $<
	@touch $@
