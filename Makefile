# Targets: quickstart (the customer's command, from nothing), test, check, and those below.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/installed
# Without setuptools' warning about folders that are named as the packages: they are the packages.
PIP := PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --constraint constraints.txt

# Each test process, and each of Ray's workers, would compile every module again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: quickstart setup test unit ray user-code layouts wheel check docs bench chaos cluster gpu clean

quickstart: setup
	$(BIN)/tune run search_spaces/llm.yaml

setup: $(STAMP)

# torch first: a range that it satisfies then pulls no other build. Ours last: Ray brings a script
# that is named `tune` too.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) pip torch
	$(PIP) --group dev -e .
	$(PIP) --no-deps --force-reinstall -e .
	touch $@

test: unit ray

# Each process has half of the files, and who is done takes from the other: both end together. One
# thread each, as a worker has: threads that wait for a busy processor take several times as long.
unit: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal --ignore=tests/ray -m "not gpu and not scripts and not layouts and not cluster and not wheel"

# Each process has a cluster; a file's tests share sweeps.
ray: setup
	$(BIN)/python -m pytest -n 2 --dist loadfile tests/ray -m "not cluster and not layouts and not scripts"

# Training code as its projects document it, each killed, resumed and compared, and the other shipped
# files: about 20 minutes.
user-code: setup
	$(PIP) --group user-code
	$(BIN)/python -m pytest -m scripts

# Every layout of 2 to 4 ranks compared with one process, and resumed on others: half an hour.
layouts: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m layouts

# The wheel alone, in an empty environment: some minutes.
wheel: setup
	$(BIN)/python -m pytest -m wheel

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The site, into build/site; a link without a target or a page that is in no menu is an error.
docs: setup
	$(PIP) -e ".[docs]"
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

bench: setup
	$(BIN)/python -m benchmarks.overhead

# Takes most of an hour at full count: ARGS="--kills 5 --fuzz 500" for less.
chaos: setup
	$(BIN)/python -m tests.chaos $(ARGS)

# Several machines, two hosts on this one with faults of the network between them, Slurm, Prometheus
# and PostgreSQL: Linux, as root. What is skipped says at the end which program it needs.
cluster: setup
	$(BIN)/python -m pytest -rs -m cluster

# On a machine with a CUDA device, in ten minutes: docs/measurements/performance.md, "On a GPU".
gpu: setup
	$(BIN)/python -m benchmarks.gpu $(ARGS)

clean:
	rm -rf $(VENV) build *.egg-info
