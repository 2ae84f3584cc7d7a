# `make demo` and `make test` are enough to start. Every target first sets up what it needs.
PYTHON ?=
VENV   := .venv
BIN    := $(VENV)/bin

.PHONY: help setup demo test test-spark test-native check format docs reference bench bench-quick profile lock clean

help:
	@echo "make demo         Run the main job: three nodes, a pipeline, and failures."
	@echo "make test         Run the tests, without those that need a Spark session."
	@echo "make test-spark   Run the tests that need a Spark session."
	@echo "make test-native  Test the compiled modules under sanitizers, and the core without them."
	@echo "make check        Check format, lint, types and import contracts, and print a sample of the prose."
	@echo "make format       Format the sources and apply safe fixes."
	@echo "make docs         Build the documentation as a site in build/site."
	@echo "make reference    Write the generated pages of the documentation."
	@echo "make bench        Compare with Apache Kafka in half an hour. ARGS=\"produce consume\" selects cases."
	@echo "make bench-quick  Compare with Apache Kafka in four minutes."
	@echo "make profile      Draw a flame graph of a node. CASE=produce-1k names the case."
	@echo "make lock         Update the locked dependencies."
	@echo "make clean        Remove the virtual environment and caches."

setup: $(VENV)/.ready $(VENV)/.built $(VENV)/.bytecode

$(VENV)/.ready: requirements/dev.txt scripts/bootstrap
	PYTHON="$(PYTHON)" scripts/bootstrap "$(VENV)"
	@touch $@ $(VENV)/.built

# Builds the compiled modules again if their sources have changed.
$(VENV)/.built: $(wildcard src/ottla/*/*/*.[ch]) hatch_build.py | $(VENV)/.ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e .
	@touch $@

# Compiles to bytecode, as pip does when it installs a package. Otherwise, a node takes twice as long to start.
$(VENV)/.bytecode: $(shell find src -name '*.py') | $(VENV)/.ready
	$(BIN)/python -m compileall -q src
	@touch $@

demo: setup
	$(BIN)/python examples/main_job.py

test: setup
	$(BIN)/python -m pytest -q -n 2 $(ARGS)

# Separate processes, because a process has only one Spark session and each suite stops it at its end.
test-spark: setup
	$(BIN)/python -m pytest -q -m spark tests/spark/tables $(ARGS)
	$(BIN)/python -m pytest -q -m spark tests/spark/pipelines $(ARGS)
	$(BIN)/python -m pytest -q -m spark tests/spark/connector $(ARGS)
	$(BIN)/python -m pytest -q -m spark tests/docs $(ARGS)

# Tests the compiled modules under the address and undefined-behaviour sanitizers, then the Python code that they replace.
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

# Writes the generated pages of the documentation.
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
