# The front door: every task of the repository by name. The work is done by CMake (see CMakePresets.json)
# and by the scripts in tools/. `make help` lists the tasks.
SHELL := /bin/bash
MAKEFLAGS += --no-print-directory

JOBS ?= $(shell nproc)
FUZZ_SECONDS ?= 30
PREFIX ?= /usr/local
TORCH_PYTHON ?= /usr/bin/python3
WERROR ?= $(if $(filter true 1,$(CI)),1,0)

# Whole builds take half the time in batches of sources; a changed source then takes as long as its batch. For work on one
# folder: make BATCHES=tests (cmake/weft_targets.cmake).
BATCHES ?= all

override options := -DWEFT_WERROR=$(if $(filter 1 ON,$(WERROR)),ON,OFF) -DWEFT_BATCHES=$(BATCHES)
override ctest := ctest -j$(JOBS) --output-on-failure --no-tests=error

.PHONY: build setup all demo check test test-memory test-whole test-fast test-sanitized tsan oracle bench bench-run tidy fuzz format wheel install clean help

build: setup ## the program, at build/release/weft (default)
	@tools/configure.sh release $(options)
	@cmake --build build/release -j$(JOBS) --target weft

setup: ## install what is missing from Debian packages
	@tools/setup.sh

all: setup ## everything of the release build: program, libraries, tests
	@tools/configure.sh release $(options)
	@cmake --build build/release -j$(JOBS)

demo: build ## plan a training step and show where to look
	@tools/demo.sh

check: ## clang-format and clang-tidy over what changed, findings as errors
	@tools/setup.sh --with tidy || [[ "$$CI" != true ]]
	@tools/check_changed.py --jobs $(JOBS)

define run_tests
	@tools/setup.sh --with web
	@tools/configure.sh release $(options)
	@cmake --build build/release -j$(JOBS)
	@$(ctest) --test-dir build/release
endef

# The folders that handle raw memory, threads and other people's files (preset memory); the others are linked as the release
# build has them. Compiling and running this takes longer than all of `make test`.
define run_memory_tests
	@tools/configure.sh memory $(options)
	@cmake --build build/memory -j$(JOBS) --target core_tests
	@$(ctest) --test-dir build/memory/tests/core
endef

# Searches over many cases take a quarter of them, the same ones every time (src/base/test_effort.hpp).
test: export WEFT_TESTS := sample
test: check ## every test that can run here (CI runs this)
	$(run_tests)

test-memory: export WEFT_TESTS := sample
test-memory: all ## tests of raw memory, threads and files under address and undefined-behaviour sanitizers
	$(run_memory_tests)

test-whole: export WEFT_TESTS := whole
test-whole: check ## `make test` and `make test-memory` with all cases of their searches: before a release
	$(run_tests)
	$(run_memory_tests)

test-fast: all ## the tests labelled fast
	@$(ctest) --test-dir build/release -L fast

test-sanitized: setup ## all tests of the core under address and undefined-behaviour sanitizers
	@tools/configure.sh dev $(options)
	@cmake --build build/dev -j$(JOBS) --target core_tests
	@$(ctest) --test-dir build/dev/tests/core

tsan: setup ## the tests of the core under the thread sanitizer
	@tools/configure.sh tsan $(options)
	@cmake --build build/tsan -j$(JOBS) --target core_tests
	@$(ctest) --test-dir build/tsan/tests/core

# Ten minutes; ctest runs a quick part of it (docs/oracle.md).
oracle: build ## weft run against PyTorch: every layout with every policy, ZeRO stage, ...
	@$(TORCH_PYTHON) -B tests/run_oracle_test.py build/release/weft || [[ $$? == 77 ]]

# training_step_bench is driven by bench/compute_vs_pytorch.py and does nothing alone.
bench: setup ## build and run the benchmarks
	@tools/configure.sh release $(options) -DWEFT_BENCH=ON
	@cmake --build build/release -j$(JOBS)
	@set -e; for bench in build/release/bench/*_bench; do \
	  [[ $$bench != */training_step_bench ]] || continue; echo "== $$bench"; "$$bench"; \
	done

# Half an hour with every core: predictions, overlap and compute of `weft run` on this machine (bench/README.md).
bench-run: build ## measure weft run: predictions, overlap, compute against PyTorch
	@bench/prediction_suite.py build/release/weft --out out/bench/prediction_suite.json
	@bench/overlap_vs_ddp.py build/release/weft --local --out out/bench/overlap_local.json
	@$(TORCH_PYTHON) bench/compute_vs_pytorch.py build/release/weft --runtime --out out/bench/compute_vs_pytorch.json \
	  || [[ $$? == 77 ]]

tidy: ## clang-tidy over every source
	@tools/setup.sh --with tidy
	@tools/configure.sh tidy
	@cmake --build build/tidy -j$(JOBS)

# What the fuzzer finds goes to out/fuzz; an input worth keeping is copied to fuzz/corpus by hand.
fuzz: ## run every fuzz target for FUZZ_SECONDS
	@tools/setup.sh --with fuzz
	@tools/configure.sh fuzz
	@cmake --build build/fuzz -j$(JOBS) --target fuzz_targets
	@set -e; for target in build/fuzz/fuzz/*_fuzz; do \
	  name=$$(basename "$$target" _fuzz); mkdir -p out/fuzz/$$name; echo "== $$target"; \
	  "$$target" -max_total_time=$(FUZZ_SECONDS) -print_final_stats=1 -artifact_prefix=out/fuzz/$$name- \
	    out/fuzz/$$name fuzz/corpus/$$name; \
	done

format: ## clang-format over every source
	@tools/setup.sh --with tidy
	@git ls-files -z --cached --others --exclude-standard -- '*.cpp' '*.hpp' | xargs -0 -r clang-format-19 -i

# The wheel holds the library of the release build; it needs the system's libfmt and libcrypto.
wheel: setup ## the Python package, at out/wheel (docs/pytorch.md)
	@tools/configure.sh release $(options)
	@cmake --build build/release -j$(JOBS) --target weft_embed
	@rm -rf out/wheel && mkdir -p out/wheel && cp -r python out/wheel/source && cp build/release/libweft_embed.so out/wheel/source/weft/
	@mkdir -p out/wheel/source/weft/include/embed && cp src/embed/embed.hpp out/wheel/source/weft/include/embed/
	@cd out/wheel/source && $(TORCH_PYTHON) setup.py -q bdist_wheel --dist-dir .. && rm -rf ../source
	@ls out/wheel/*.whl

install: all ## install below PREFIX (default /usr/local)
	@cmake --install build/release --prefix "$(PREFIX)"

clean: ## delete every build folder
	@rm -rf build

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile
