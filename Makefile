# Everything a newcomer needs. Each target makes .venv and installs into it first.
PYTHON ?= python3
BIN := .venv/bin
LATCHING := $(foreach n,4 8 16 32 64 128 256 512,latching-$(n)/minmax-s)
SEQUENCES := $(foreach n,2 3 4 8,$(foreach v,defined published balanced,sequences-$(n)-$(v)/minmax-s)) \
	sequences-16-defined/minmax-s sequences-16-published/minmax-s
RESULTS := $(LATCHING) $(SEQUENCES) induction_heads-16/minmax-s induction_heads-30/minmax-s
MODELS := mamba-s slstm-s mlstm-s xlstm-l-s lstm-s gru-s transformer-s
FIRST := $(foreach t,latching-4 induction_heads-16 sequences-2-published,$(foreach m,$(MODELS),$(t)/$(m)))
REST := $(foreach t,latching-16 latching-64 latching-512 sequences-2-balanced induction_heads-30,\
	$(foreach m,$(MODELS),$(t)/$(m)))
ABLATION := $(foreach g,gate no_gate,$(foreach c,basic gated,$(foreach i,small_init kaiming asymmetric,\
	ablation/induction_heads-16/40-$(g)-$(c)-$(i))))
PIP := $(BIN)/pip install --quiet --constraint constraints.txt

.PHONY: demo docs coverage test test-all test-slow lint bench bench-model results sanitize portable clean

# Threads that wait in a loop are slow where cores are shared: passive ones sleep.
DEMO := OMP_WAIT_POLICY=passive $(BIN)/python
demo: .venv/demo  ## train, evaluate at 2^20 steps, learn S3 and prove it, write report/; it installs only what it runs
	$(DEMO) -m latchwork check
	$(DEMO) -m latchwork run latching-4/minmax-s --seeds 1 --threads 2 --out runs
	$(DEMO) examples/demo.py runs
	$(DEMO) -m latchwork certify runs/s3 'word_problem(S3)'
	$(DEMO) -m latchwork report runs --out report
	$(DEMO) -m latchwork explore runs/s3 --task 'word_problem(S3)' --out report/explore.html
	@echo "Open these two pages in a browser:"
	@echo "  $(CURDIR)/report/report.html    the results, beside the paper's"
	@echo "  $(CURDIR)/report/explore.html   the network that has just learnt S3, step by step"

PYTEST := OMP_WAIT_POLICY=passive $(BIN)/python -m pytest -n auto --dist worksteal
test: .venv/ready lint  ## style, types, and all tests but the slow ones
	$(PYTEST) -m "not slow"

test-slow: .venv/ready  ## the slow tests alone
	$(PYTEST) -m slow

test-all: test test-slow  ## everything

coverage: .venv/ready  ## the fast tests, and which lines they do not reach
	$(PIP) pytest-cov
	$(PYTEST) -m "not slow" --cov --cov-report=term --cov-report=html

lint: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: .venv/ready  ## the documentation in docs/_build/html; every page is executed, and a warning is an error
	OMP_WAIT_POLICY=passive $(BIN)/sphinx-build --quiet --fail-on-warning --keep-going docs docs/_build/html

bench: .venv/ready  ## the figures of the README, about 20 minutes
	$(PIP) --requirement benchmarks/requirements.txt
	$(BIN)/python benchmarks/scan.py
	$(BIN)/python benchmarks/figures.py

results: .venv/ready  ## the experiments whose records are in results/, hours; what is finished is not run again
	$(BIN)/python -m latchwork run $(RESULTS) --jobs 2 --out results
	$(BIN)/python -m latchwork run latching-4/minmax-s sequences-2-defined/minmax-s induction_heads-16/minmax-s \
		--seeds 3 --jobs 2 --out results
	$(BIN)/python -m latchwork run $(FIRST) --batch-size 64 --seeds 1 --hours 4 --jobs 2 --out results
	$(BIN)/python -m latchwork run $(ABLATION) --seeds 5 --jobs 2 --out results
	$(BIN)/python -m latchwork run $(REST) --batch-size 64 --seeds 1 --hours 4 --jobs 2 --out results
	$(BIN)/python benchmarks/paper_tables.py
	$(BIN)/python benchmarks/figures.py

bench-model: .venv/ready  ## the model's figures of the README, about 20 minutes; TEXT=file adds the perplexity in int8
	$(PIP) --requirement benchmarks/requirements.txt
	$(BIN)/python benchmarks/model.py $(if $(TEXT),--text $(TEXT))
	$(BIN)/python benchmarks/figures.py

CASES ?= 100000
sanitize:  ## the C++ kernel under AddressSanitizer and UBSan, CASES random cases for each instruction set
	cmake -S tests/kernel -B build/sanitize -DCASES=$(CASES)
	cmake --build build/sanitize --parallel 2
	ctest --test-dir build/sanitize --output-on-failure

portable:  ## the kernel with gcc and clang, without OpenMP, for ARM in an emulator, for macOS and Windows; says what it skips
	PYTHON=$(if $(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON)) tests/kernel/portable.sh

# torch first and by its exact pin, so that nothing asks the index for a newer one.
.venv/ready: pyproject.toml constraints.txt CMakeLists.txt $(wildcard src/latchwork/csrc/*.* src/latchwork/csrc/*/*)
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) torch==2.13.0
	$(PIP) --editable '.[dev]'
	touch $@

# What `make demo` runs, without what developers need. Where their environment is there already, it serves.
.venv/demo: pyproject.toml constraints.txt CMakeLists.txt $(wildcard src/latchwork/csrc/*.* src/latchwork/csrc/*/*)
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@test -e .venv/ready || echo "installing torch, the largest part, then latchwork with its kernel: some minutes"
	test -e .venv/ready || $(PIP) torch==2.13.0
	test -e .venv/ready || $(PIP) --editable '.[experiments]'
	touch $@

clean:
	rm -rf .venv build
