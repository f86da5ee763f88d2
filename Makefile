# Two commands do all set-up on a fresh machine: make demo, make test.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
NATIVE := $(wildcard native/*.cpp native/*.hpp native/*.inc) CMakeLists.txt

.PHONY: build demo test lint bench sanitize clean
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

# The native core under AddressSanitizer and UndefinedBehaviorSanitizer. `-S` keeps the editable installation's
# import hook out, so that the instrumented copy is the one imported. Leaks of the interpreter itself are not ours:
# tests/matmul/test_memory.py watches for growth.
SANITIZED := build/sanitized
$(SANITIZED)/.installed: $(NATIVE) | $(STAMP)
	rm -rf $(SANITIZED)
	$(BIN)/pip install --quiet --no-deps --target $(SANITIZED) . \
	    -C cmake.define.GEMMULATE_SANITIZE=ON -C build-dir=build/sanitized-cmake
	touch $@

sanitize: $(SANITIZED)/.installed
	ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 \
	LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libubsan.so)" \
	PYTHONPATH=$(SANITIZED):src:$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))') \
	    $(BIN)/python -S -m pytest -p no:cacheprovider tests/engines

bench: $(STAMP)
	$(BIN)/python benchmarks/run.py

clean:
	rm -rf $(VENV) build .mypy_cache .ruff_cache .pytest_cache .hypothesis
