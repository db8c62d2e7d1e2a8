# `make` alone lists the targets. Everything happens in .venv/; PYTHON chooses the interpreter.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
MODEL ?= smollm2
QUESTION ?= What is the capital of France, and what is it known for?
MODELS := smollm2 gemma-3-270m
PYTEST_ARGS ?=
# pip does it for what it copies, not for a checkout; 0.1 s of every start where Python may not write.
PRECOMPILE := $(PY) -m compileall -q gguf_runtime quant
# Options of benchmarks: make bench-peers PEERS=DIR BENCH_ARGS='--models 1b --write'
BENCH_ARGS ?=
# What `Model` is asked to do with GGUF_RUNTIME_EXACT=1.
EXACT_TESTS := $(addprefix tests/,golden/test_archs.py golden/test_archs_exact.py property/engine/test_exact.py)
# Scripts that set up emulators, and where the emulated Arm machine lives (400 MB).
TOOLS := $(or $(GGUF_RUNTIME_TOOLS),../shared/tools)
ARM64_DIR ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/gguf-runtime-arm64

# The first interpreter that is new enough.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' 2>/dev/null && { echo $$p; break; }; done)

.PHONY: help setup run chat test check docs bench-peers bench-kernels bench-busy bench-threads bench-start bench-reuse bench-batch bench-all \
	test-arm test-avx512 test-exact fuzz-long asm loc models

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(PY):
	@test -n "$(PYTHON)" || { echo "error: no Python 3.11 to 3.14 on PATH; name one: make PYTHON=..." >&2; exit 1; }
	@echo "creating $(VENV) with $$($(PYTHON) --version)" >&2
	@$(PYTHON) -m venv $(VENV) || uv venv --seed --clear --python $(PYTHON) $(VENV)

$(VENV)/.ready: pyproject.toml | $(PY)
	@echo "installing the package and what it needs (about 300 MB on disk)" >&2
	@$(PY) -m pip install --disable-pip-version-check --quiet -e .
	@$(PRECOMPILE)
	@touch $@

$(VENV)/.ready-test: pyproject.toml | $(PY)
	@echo "installing the package, what it needs, and the test tools" >&2
	@$(PY) -m pip install --disable-pip-version-check --quiet -e '.[test]'
	@$(PRECOMPILE)
	@touch $@ $(VENV)/.ready

$(VENV)/.ready-dev: pyproject.toml | $(PY)
	@$(PY) -m pip install --disable-pip-version-check --quiet -e '.[dev]'
	@$(PRECOMPILE)
	@touch $@ $(VENV)/.ready $(VENV)/.ready-test

setup: $(VENV)/.ready ## make .venv/ with the package in it

run: $(VENV)/.ready ## set everything up and stream an answer (MODEL=, QUESTION=)
	@$(BIN)/gguf-runtime pull $(MODEL) >&2
	@$(BIN)/gguf-runtime warmup $(MODEL)
	@$(BIN)/gguf-runtime run $(MODEL) -p '$(subst ','\'',$(QUESTION))'

chat: $(VENV)/.ready ## set everything up and talk to the model (MODEL=)
	@$(BIN)/gguf-runtime pull $(MODEL) >&2
	@$(BIN)/gguf-runtime chat $(MODEL)

models: $(VENV)/.ready ## pull the models that the tests need
	@for m in $(MODELS); do $(BIN)/gguf-runtime pull $$m >/dev/null; done

test: $(VENV)/.ready-test models ## set everything up and run the tests (PYTEST_ARGS=)
	@$(PY) -m pytest -m 'not slow' $(PYTEST_ARGS)

check: $(VENV)/.ready-dev ## format, lint, types, file sizes, generated pages
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(PY) bench/loc.py --check
	@$(PY) docs/cli.py --check

docs: $(VENV)/.ready ## write the pages that are made from the program
	@$(PY) docs/cli.py

bench-peers: $(VENV)/.ready models ## speed beside the C++ engines, interleaved in one run
	@$(PY) bench/peers.py $(BENCH_ARGS)

bench-kernels: $(VENV)/.ready ## kernels as a share of this machine's measured limits
	@$(PY) bench/kernels.py $(BENCH_ARGS)

bench-busy: $(VENV)/.ready models ## speed while another process takes a core
	@$(PY) bench/busy.py $(BENCH_ARGS)

bench-threads: $(VENV)/.ready models ## the default number of threads beside the best of a sweep
	@$(PY) bench/threads.py $(BENCH_ARGS)

bench-start: $(VENV)/.ready models ## processor time of starting, and of each import
	@$(PY) bench/start.py $(BENCH_ARGS)

bench-reuse: $(VENV)/.ready models ## what guessing ahead and remembered prompts save
	@$(PY) bench/reuse.py $(BENCH_ARGS)

bench-batch: $(VENV)/.ready models ## many prompts at once, beside one after another and llama.cpp
	@$(PY) bench/batch.py $(BENCH_ARGS)

bench-all: $(VENV)/.ready models ## every benchmark, its tables written into the docs
	@for b in kernels busy threads start reuse batch peers; do $(PY) bench/$$b.py --write $(BENCH_ARGS); done

test-arm: $(VENV)/.ready-test ## Arm kernels and a tiny model under emulation
	@PYTHON=$(abspath $(PY)) sh "$(TOOLS)/arm64.sh" setup "$(ARM64_DIR)" >&2
	@ARM64_DIR="$(ARM64_DIR)" $(PY) -m pytest -rs -m emulated -k arm $(PYTEST_ARGS)

test-avx512: $(VENV)/.ready-test ## AVX-512 kernels, natively or in an emulator
	@$(PY) -m pytest -rs -m emulated -k avx512 $(PYTEST_ARGS)

test-exact: $(VENV)/.ready-test models ## a small part of the tests on plain numpy in float64
	@GGUF_RUNTIME_EXACT=1 $(PY) -m pytest $(EXACT_TESTS) $(PYTEST_ARGS)

fuzz-long: $(VENV)/.ready-test ## the mutation fuzzers for minutes (FUZZ_MINUTES=10)
	@GGUF_RUNTIME_FUZZ_MINUTES=$${FUZZ_MINUTES:-10} $(PY) -m pytest tests/fuzz $(PYTEST_ARGS)

asm: $(VENV)/.ready ## print a kernel's machine code (KERNEL=name, ISA=)
	@$(PY) -m quant.asm --also gguf_runtime.kernels $(KERNEL) $(ISA)

loc: $(VENV)/.ready ## count lines per folder
	@$(PY) bench/loc.py
