# Two commands do all set-up on a fresh machine: make demo, make test.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
NATIVE := $(wildcard native/*.cpp native/*.hpp native/*.inc) CMakeLists.txt

.PHONY: build demo test lint bench bench-gpu sanitize tsan clean
build: $(STAMP)

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip

$(STAMP): pyproject.toml $(NATIVE) | $(BIN)/python
	$(BIN)/pip install --quiet -e ".[dev]"
	touch $@

demo: $(STAMP)
	$(BIN)/gemmulate demo

lint: $(STAMP)
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

test: lint sanitize
	$(BIN)/python -m pytest -n 2 --dist worksteal tests
	$(BIN)/python -m pytest --doctest-modules src/gemmulate

# Sanitizers watch the native core; the frameworks' own cores aren't built for them.
OURS := not (torch or jax or cupy or triton)
NO_FRAMEWORKS := --ignore-glob="*test_torch*" --ignore-glob="*test_jax*" --ignore-glob="*test_cupy*" --ignore-glob="*triton*"

# The native core under AddressSanitizer and UndefinedBehaviorSanitizer. `-S` keeps the editable installation's
# import hook out, so that the instrumented copy is the one imported. Leaks of the interpreter itself are not ours:
# tests/matmul/test_memory.py watches for growth.
SANITIZED := build/sanitized
$(SANITIZED)/.installed: $(NATIVE) | $(STAMP)
	rm -rf $(SANITIZED)
	$(BIN)/pip install --quiet --no-deps --target $(SANITIZED) . \
	    -C cmake.define.GEMMULATE_SANITIZE=address -C build-dir=build/sanitized-cmake
	touch $@

sanitize: $(SANITIZED)/.installed
	ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 \
	LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libubsan.so)" \
	PYTHONPATH=$(SANITIZED):src:$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))') \
	    $(BIN)/python -S -m pytest -p no:cacheprovider -k "$(OURS)" $(NO_FRAMEWORKS) tests/engines

# The native core under ThreadSanitizer, in an environment of its own: the tests start subprocesses, which have to find the
# instrumented copy too. NumPy's engine has no threads of ours. A child forked from a process with threads goes on by
# die_after_fork=0; OpenBLAS, not instrumented, would be reported if it had threads. Reports go to build/tsan/report.*: pytest
# would keep them. The program fails if there is one.
TSAN := build/tsan
$(TSAN)/.installed: $(NATIVE) | $(STAMP)
	rm -rf $(TSAN)
	$(PYTHON) -m venv --without-pip $(TSAN)
	$(BIN)/pip install --quiet --no-deps --target $(TSAN)/package . \
	    -C cmake.define.GEMMULATE_SANITIZE=thread -C build-dir=build/tsan-cmake
	touch $@

tsan: $(TSAN)/.installed
	rm -f $(TSAN)/report.*
	OPENBLAS_NUM_THREADS=1 LD_PRELOAD="$$(gcc -print-file-name=libtsan.so)" \
	TSAN_OPTIONS="die_after_fork=0 exitcode=66 log_path=$(CURDIR)/$(TSAN)/report suppressions=$(CURDIR)/native/tsan-suppressions.txt" \
	PYTHONPATH=$(CURDIR)/$(TSAN)/package:$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))') \
	    $(TSAN)/bin/python -m pytest -p no:cacheprovider -k "not reference and $(OURS)" $(NO_FRAMEWORKS) tests/engines tests/matmul/test_concurrency.py \
	    || { cat $(TSAN)/report.* 2>/dev/null; exit 1; }

# Writes the tables of README.md and docs/benchmarks.md anew. Peers that are not installed are left out:
# .venv/bin/pip install -r benchmarks/peers.txt
bench: $(STAMP)
	$(BIN)/python benchmarks/run.py --tables --record benchmarks/results/$$(date +%F).jsonl

# On a machine with a CUDA GPU: every row of benchmarks/gpu, its records, and the tables of docs/benchmarks-gpu.md.
bench-gpu: $(STAMP)
	$(BIN)/python benchmarks/gpu/run.py --tables --record benchmarks/gpu/results/$$(date +%F).jsonl

clean:
	rm -rf $(VENV) build .mypy_cache .ruff_cache .pytest_cache .hypothesis
