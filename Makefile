# Stockpot. `make run` and `make test` are all a newcomer needs; both set everything up by themselves.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
CHROMIUM := $(shell command -v chromium || command -v chromium-browser || command -v google-chrome)

.PHONY: run test lint types bench gpu-check browser lock clean

run: $(READY)  ## set up and open the app with the pocket model
	$(BIN)/stockpot serve --open

# The types are checked beside the tests, which leave some of two cores idle; what is found is said at the end.
test: $(READY) lint browser  ## set up and run everything: lint, types, tests, browser tests
	@found=$$(mktemp); $(BIN)/mypy >$$found 2>&1 & \
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder; tests=$$?; \
	wait $$!; types=$$?; echo "mypy:"; cat $$found; rm $$found; exit $$((tests ? tests : types))

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

bench: $(READY)  ## the benchmarks behind the tables in docs/; more than a day on two CPU cores
	$(BIN)/python -m benchmarks.everything

gpu-check: $(READY)  ## speed, bytes and exactness on a CUDA GPU held to 24 GiB; at most nine minutes
	$(BIN)/python -m benchmarks.gpu_check

# A browser for the browser tests: one that is there already, else the system's package, else Playwright's own.
browser: $(READY)
ifeq ($(CHROMIUM),)
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		apt-get update -qq && apt-get install -y -qq chromium; \
	else $(BIN)/playwright install chromium; fi
endif

$(READY): pyproject.toml requirements.lock
	$(PYTHON) -m venv $(VENV) || python3 -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $(READY)

lock: $(READY)  ## write requirements.lock from what is installed now
	$(BIN)/python -m pip freeze --exclude-editable --disable-pip-version-check | sed 's/+cpu//' | grep -v '^nvidia-\|^cuda-' | sed "s/^triton==.*/&; sys_platform == 'linux'/" > requirements.lock

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache *.egg-info
