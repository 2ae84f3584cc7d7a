# Two commands are enough to start: `make demo` and `make test`. Each sets up what it needs by itself.
PYTHON ?=
VENV   := .venv
BIN    := $(VENV)/bin

.PHONY: help setup demo test test-spark test-native check format docs reference bench bench-quick profile lock clean

help:
	@echo "make demo    run the main job"
	@echo "make test    run the tests"
	@echo "make test-spark   jobs in a Spark session"
	@echo "make test-native   the compiled modules under sanitizers, and the core without them"
	@echo "make check   format, lint, types, import contracts"
	@echo "make docs    build the documentation as a site in build/site"
	@echo "make bench   figures beside Apache Kafka's (bench-quick: a few minutes; ARGS=\"produce consume\": some of them)"
	@echo "make profile CASE=produce-1k   where a node spends its time, as a flame graph"
	@echo "make format  put the sources into the one format"
	@echo "make lock    pin the dependencies anew"

setup: $(VENV)/.ready $(VENV)/.built $(VENV)/.bytecode

$(VENV)/.ready: requirements/dev.txt scripts/bootstrap
	PYTHON="$(PYTHON)" scripts/bootstrap "$(VENV)"
	@touch $@ $(VENV)/.built

# The compiled part again, when its source is newer than what bootstrap has built.
$(VENV)/.built: $(wildcard src/ottla/*/*/*.[ch]) hatch_build.py | $(VENV)/.ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e .
	@touch $@

# What pip does when it installs the package: without bytecode a node takes twice as long to start.
$(VENV)/.bytecode: $(shell find src -name '*.py') | $(VENV)/.ready
	$(BIN)/python -m compileall -q src
	@touch $@

demo: setup
	$(BIN)/python examples/main_job.py

test: setup
	$(BIN)/python -m pytest -q -n 2 $(ARGS)

# A process each: there is one Spark in a process, and whoever stops it stops it for all.
test-spark: setup
	$(BIN)/python -m pytest -q -m spark tests/spark/tables $(ARGS)
	$(BIN)/python -m pytest -q -m spark tests/spark/pipelines $(ARGS)
	$(BIN)/python -m pytest -q -m spark tests/spark/connector $(ARGS)
	$(BIN)/python -m pytest -q -m spark tests/docs $(ARGS)

# The compiled modules under the address and undefined-behaviour sanitizers; then what they replace, in Python alone.
test-native: setup
	scripts/native-tests sanitized -n 2 tests/unit/protocol/wire/test_plans.py tests/unit/protocol/wire/test_summary.py tests/unit/protocol/wire/test_malformed.py \
		tests/unit/storage/log/test_validate_unchanged.py tests/spark/connector/test_rows.py tests/spark/connector/test_columns.py $(ARGS)
	scripts/native-tests pure -n 2 tests/unit/protocol/wire/test_malformed.py tests/unit/protocol/wire/test_summary.py tests/unit/storage tests/unit/replication \
		tests/unit/node/test_running_node.py tests/spark/connector/test_rows.py tests/spark/connector/test_columns.py $(ARGS)

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/sample_prose.py

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: setup
	scripts/mermaid
	$(BIN)/python scripts/generate_reference.py --check
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

# The generated pages of the documentation, from the code.
reference: setup
	$(BIN)/python scripts/generate_reference.py

bench: setup
	$(BIN)/python -m bench $(ARGS)

bench-quick: setup
	$(BIN)/python -m bench --quick $(ARGS)

profile: setup
	$(BIN)/python -m bench.profiling $(CASE) $(ARGS)

lock: setup
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --upgrade --python-version 3.11 --extra spark --extra tables --extra java --extra formats --extra keystores --extra oauth \
		pyproject.toml requirements/dev.in -o requirements/dev.txt

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
