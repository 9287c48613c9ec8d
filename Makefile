# Two commands: `make run` and `make test`. Both create .venv themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# One BLAS thread per process: the arrays are small and the tests run side by side.
export OMP_NUM_THREADS ?= 1
# Bytecode is written: tests start many processes, and pytest rewrites the asserts of each file once.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit("gradslide needs Python 3.11 or newer; got %d.%d; set PYTHON=python3.12, for example" % sys.version_info[:2] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed-run: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[plot]'
	@touch $@

$(VENV)/.installed-dev: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@ $(VENV)/.installed-run $(VENV)/.installed-examples

$(VENV)/.installed-examples: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[plot,sklearn]'
	@touch $@ $(VENV)/.installed-run

$(VENV)/.installed-docs: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[docs,plot]'
	@touch $@

.PHONY: help run reproduce examples test test-all fuzz chaos browser lint format bench docs docs-serve clean

help: ## list the commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

run: $(VENV)/.installed-run ## set up and run the main job on built-in data
	$(BIN)/gradslide run
	$(BIN)/gradslide report gradslide-results/misfire

EXAMPLES := hospitals_regression sensor_field power_flow barycenter click_prediction deblurring

examples: $(VENV)/.installed-examples ## six problems that people have, with a picture each: a minute
	@set -e; mkdir -p gradslide-results/examples; for name in $(EXAMPLES); do \
		echo "== $$name"; \
		$(BIN)/python examples/$$name.py gradslide-results/examples/$$name.png; \
	done

reproduce: $(VENV)/.installed-run ## the paper's tables and figures, and more, beside ours: about an hour
	$(BIN)/gradslide reproduce all

test: lint ## set up, then ruff, mypy and the tests
	$(BIN)/python -m pytest -n auto --dist loadfile -q

test-all: lint ## the same with the slow tests
	$(BIN)/python -m pytest -n auto --dist loadfile -q -m 'not chaos'

chaos: $(VENV)/.installed-dev ## kill, stop, starve and attack running agents, and damage what they send: a quarter of an hour
	$(BIN)/python -m pytest -q -rP tests/chaos -m ''

PROBLEMS ?= 5000
SEED ?= 0

fuzz: $(VENV)/.installed-dev ## compare statuses and bounds of PROBLEMS=5000 random problems, from SEED=0 on, with an independent solver
	$(BIN)/python tests/fuzz/run.py --problems $(PROBLEMS) --first $(SEED)

browser: ## a browser for the tests of the report page; without one they skip
	sh tests/get_browser.sh

lint: $(VENV)/.installed-dev ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.installed-dev ## let ruff put the code in order
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.installed-dev ## measure speed, memory and growth, and what overlap, network conditions, MPI and peers cost: half an hour
	$(BIN)/python benchmarks/inner_loop.py
	$(BIN)/python benchmarks/iterations.py
	$(BIN)/python benchmarks/losses.py
	$(BIN)/python benchmarks/whole_solve.py
	$(BIN)/python benchmarks/exact_sums.py
	$(BIN)/python benchmarks/memory.py
	$(BIN)/python benchmarks/growth.py
	$(BIN)/python benchmarks/start.py
	$(BIN)/python benchmarks/core.py
	$(BIN)/python benchmarks/overlap.py
	$(BIN)/python benchmarks/samples.py
	$(BIN)/python benchmarks/operator_norm.py
	$(BIN)/python benchmarks/constrained.py --part default norm
	$(BIN)/python benchmarks/qp.py --solvers gradslide Clarabel
	$(BIN)/python benchmarks/faults.py
	$(BIN)/python benchmarks/mpi.py
	$(BIN)/python benchmarks/peers.py
	$(BIN)/python benchmarks/secure_sums.py

docs: $(VENV)/.installed-docs ## build the site into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

docs-serve: $(VENV)/.installed-docs ## show the site while writing
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

clean: ## remove what the other commands made
	rm -rf $(VENV) site dist build .mypy_cache .ruff_cache .pytest_cache gradslide-results
