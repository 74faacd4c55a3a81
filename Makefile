# Every target sets itself up: the first one to run makes .venv, later ones reuse it.

PYTHON ?= python3
JOBS ?= 2
BIN := .venv/bin
READY := .venv/.ready

.PHONY: test lint demo sweep bench clean
.DEFAULT_GOAL := test

$(READY): pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet -e '.[jax,test,demo]'
	$(BIN)/python -m compileall -q gshard_ir passes backends grammar  # half of a command's start-up is compiling
	touch $@

test: lint
	$(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

demo: $(READY)
	$(BIN)/python examples/moe_layer/demo.py

# The exhaustive run: GSHARD_SWEEP multiplies the number of generated programs of every property test.
sweep: $(READY)
	GSHARD_SWEEP=$${GSHARD_SWEEP:-78} $(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal tests/properties tests/ops tests/errors

bench: $(READY)
	$(BIN)/python -m benchmarks

clean:
	rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
