# One command each. The first to need .venv makes it.

PYTHON ?= python3
BIN := .venv/bin
QUIET := --quiet --quiet --disable-pip-version-check

# What `make run` asks, and whom: make run MODEL=provider:name PROMPT="..."
# Plain assignments, so that a variable in the environment never chooses a model that costs money.
MODEL = offline:demo
PROMPT = What is this project about?
export MODEL PROMPT

# Where the environment forbids bytecode, each of the hundreds of processes that the tests start would compile the
# sources anew, which takes as long again as the rest of their start.
unexport PYTHONDONTWRITEBYTECODE

# Modules of which every branch must be covered: the values and the loop.
WHOLE := errors messages usage events transcript limits retry compaction sessions loop _session_loop _model_events _referee _tool_calls _guard _budget
comma := ,
empty :=
WHOLE_FILES := $(subst $(empty) ,$(comma),$(WHOLE:%=src/treadle/%.py))

.PHONY: run test coverage check format lint types imports docs tables wheel mcp-servers conformance bench bench-peers live fuzz fix clean

run: .venv/package
	@$(BIN)/treadle run -m "$$MODEL" "$$PROMPT"

# `coverage run` and not pytest's plugin: treadle's own pytest plugin is imported before that one starts to measure.
# Only the tests of the core are measured: measuring all takes as long again as the tests.
test: .venv/dev
	@$(BIN)/coverage erase
	$(BIN)/coverage run --include=$(WHOLE_FILES) -m pytest -n 2 --dist worksteal tests/test_*.py
	@$(BIN)/coverage combine --quiet
	@$(BIN)/coverage report --fail-under=100
	$(BIN)/python -m pytest -n 3 --dist worksteal -rs --conformance-streams 40 --ignore-glob='tests/test_*.py'

coverage: .venv/dev
	@$(BIN)/coverage erase
	$(BIN)/coverage run --source=treadle -m pytest -n 2 --dist worksteal -rs
	@$(BIN)/coverage combine --quiet
	@$(BIN)/coverage report

# The cheap checks first, the tests and their summary last.
check: format lint types imports docs wheel mcp-servers test

format: .venv/dev
	$(BIN)/ruff format --check --quiet

lint: .venv/dev
	$(BIN)/ruff check --quiet

types: .venv/dev
	$(BIN)/mypy
	$(BIN)/pyright --pythonpath $(BIN)/python

imports: .venv/dev
	$(BIN)/lint-imports --no-logo

docs: .venv/dev
	$(BIN)/sphinx-build -q --fail-on-warning --keep-going -b html docs docs/_build

# The tables of what each provider can do, written anew from the code. A test fails where they are old.
tables: .venv/dev
	$(BIN)/python docs/capabilities.py

# The wheel as a user gets it: alone in a fresh environment, away from the source. Its types must be whole, too.
wheel: .venv/dev
	@rm -rf build/wheel
	$(BIN)/python -m pip wheel $(QUIET) --no-deps --wheel-dir build/wheel .
	$(PYTHON) -m venv build/wheel/venv
	build/wheel/venv/bin/python -m pip install $(QUIET) build/wheel/*.whl
	cd build/wheel && venv/bin/python -W error -c "import treadle; print(treadle.__file__)"
	cd build/wheel && venv/bin/treadle --version
	cd build/wheel && venv/bin/treadle run -m offline:demo "List the files here."
	build/wheel/venv/bin/python -m pip install $(QUIET) "$$(echo build/wheel/*.whl)[terminal]"
	cd build/wheel && PATH="$$PWD/venv/bin:$$PATH" ../../$(BIN)/pyright --verifytypes treadle --ignoreexternal

# Real MCP servers, once, into a cache outside of the project. Where they cannot be installed their tests skip.
mcp-servers: .venv/dev
	@$(BIN)/python tests/support/mcp_real.py

# The official MCP conformance suite at length: all that two revisions of the protocol ask of a client. Some minutes.
conformance: .venv/dev mcp-servers
	@$(BIN)/python tests/support/mcp_real.py conformance 2026-07-28
	@$(BIN)/python tests/support/mcp_real.py conformance 2025-11-25

bench: .venv/dev
	$(BIN)/python benchmarks/run.py
	$(BIN)/python benchmarks/searching.py
	$(BIN)/python benchmarks/terminal.py

bench-peers: .venv/dev
	$(BIN)/python benchmarks/run.py --peers

# Asks real providers, for money: one cheap model of each whose key is set, or those in MODELS. Never in CI.
MODELS =
live: .venv/dev
	TREADLE_LIVE_MODELS="$(MODELS)" $(BIN)/python -m pytest tests/live/live.py -n 0 -rs

# The properties at length: some minutes where `make test` takes seconds. Then the long forms of others.
fuzz: .venv/dev
	$(BIN)/python -m pytest -n 2 -m hypothesis --hypothesis-profile=fuzz
	TREADLE_LONG_TESTS=1 $(BIN)/python -m pytest -n 2 tests/providers/test_recordings_neighbours.py tests/conformance tests/store/test_killed.py tests/terminal tests/toolkit/test_hostile_model.py

# Formats, and mends what ruff can mend by itself.
fix: .venv/dev
	$(BIN)/ruff check --fix --quiet
	$(BIN)/ruff format --quiet

clean:
	rm -rf .venv build dist docs/_build .coverage .coverage.* .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/pip:
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install $(QUIET) --upgrade "pip>=25.1"
	@touch $@

.venv/package: .venv/pip pyproject.toml
	$(BIN)/python -m pip install $(QUIET) --editable .
	@touch $@

# pip >= 25.1 reads dependency groups.
.venv/dev: .venv/package
	$(BIN)/python -m pip install $(QUIET) --group dev
	@touch $@
