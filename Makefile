# KForge: `make demo` and `make test` set everything up from a fresh clone.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
DOCS_STAMP := $(VENV)/.docs-ready

.PHONY: help setup interchange demo judge-demo test accelerator check lint types contracts docs clean

help:
	@echo "make demo    set up, then forge faster kernels for bundled problems, offline"
	@echo "make test    set up, then run the tests"
	@echo "make accelerator  set up, then run the tests that need an NVIDIA GPU"
	@echo "make judge-demo   set up, then judge bundled kernels, good and cheating"
	@echo "make check   lint, types, import contracts, names"
	@echo "make docs    set up, then build the documentation as a site, in site/"
	@echo "make setup   only build $(VENV) (with $(BIN)/kforge in it)"
	@echo "make interchange  set up, then install flashinfer-bench, for the tests of what is exported to it"
	@echo "make clean   remove $(VENV) and what the demo left"

setup: $(STAMP)

interchange: $(STAMP)
	@$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --no-deps \
		flashinfer-bench safetensors apache-tvm-ffi docstring-parser

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "KForge needs Python 3.11 or newer: make PYTHON=/path/to/python3.11"; exit 1; }
	@command -v g++ >/dev/null || command -v clang++ >/dev/null || \
		echo "note: no C++ compiler (Debian and Ubuntu: apt-get install g++; macOS: xcode-select --install)"
	@echo "setting up $(VENV): torch is a large download, the first time takes a few minutes"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt torch==2.13.0
	@$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[torch,dev]'
	@touch $(STAMP)
	@echo "ready: $(BIN)/kforge"

demo: setup
	@$(BIN)/python examples/demo.py

judge-demo: setup
	@$(BIN)/python examples/judge_demo.py

test: setup
	@$(BIN)/python -m pytest --numprocesses=auto --maxprocesses=4 --dist=loadgroup --no-loadscope-reorder

accelerator: setup
	@$(BIN)/python -c 'import cuda.core' 2>/dev/null || \
		$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[cuda]' || true
	@$(BIN)/python -m pytest -m accelerator \
		tests/platforms/test_gpu_stopwatch.py tests/worker/judge/test_gpu_judge.py tests/run/test_gpu_guard.py tests/profilers/test_gpu_profilers.py \
		tests/agents/test_lift_triton.py tests/packages/test_gpu_packages.py tests/testing/test_contract.py tests/worker/judge/test_catalogue_cuda.py

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

contracts: setup
	$(BIN)/lint-imports

names: setup
	$(BIN)/python tools/check_names.py

check: lint types contracts names

$(DOCS_STAMP): $(STAMP)
	@$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[docs]'
	@touch $(DOCS_STAMP)

docs: $(DOCS_STAMP)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "built: site/index.html"

clean:
	rm -rf $(VENV) demo-out site
