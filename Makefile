# GNU Make 3.81 or newer; the project's path may have a space in it, so recipes use relative, quoted paths, and programs
# run as `python -m` (the first line of an installed script cannot hold such a path).

PYTHON ?= python3
VENV ?= .venv
EXPERIMENT ?= mnist-classifier
SCALE ?= paper
PORT ?= 8000

python := "$(VENV)/bin/python"
study := $(python) -m gelu_study
dataset = $(firstword $(subst -, ,$(EXPERIMENT)))
time_limit = $(if $(TIME_LIMIT),--time-limit "$(TIME_LIMIT)")
device = $(if $(DEVICE),--device "$(DEVICE)")
seeds = $(if $(SEEDS),--seeds "$(SEEDS)")
epochs = $(if $(EPOCHS),--epochs "$(EPOCHS)")
cluster = $(if $(and $(SCHEDULER),$(WORKERS)),$(error give WORKERS= or SCHEDULER=, not both))$(if $(SCHEDULER),--scheduler "$(SCHEDULER)") $(if $(WORKERS),--workers "$(WORKERS)")
ledger = $(if $(LEDGER),--ledger "$(LEDGER)")
repository = $(if $(REPOSITORY),--repository "$(REPOSITORY)")
site = $(if $(SITE),--site "$(SITE)") $(if $(filter-out 0 no,$(PDF)),--pdf)
import = $(if $(DATA),$(study) data "$(dataset)" --from "$(DATA)")

.DEFAULT_GOAL := help
.PHONY: help book test fuzz quick reproduce verify data lab serve bench measure readme lint lock clean environment

help: ## list the targets
	@echo 'make TARGET [NAME=VALUE ...]'
	@echo
	@sed -n 's/^\([a-z]*\):[^#]*## /\1 /p' Makefile | while read -r target text; do printf '  %-12s %s\n' "$$target" "$$text"; done
	@echo
	@echo '  DEVICE=cpu|cuda|mps  SEEDS=0-4,9  EPOCHS=50  TIME_LIMIT=seconds  LEDGER=folder of records  DATA=folder to import data sets from'
	@echo '  WORKERS=processes of this machine  SCHEDULER=address of a Dask scheduler, tcp://host:8786; for make reproduce'
	@echo '  EXPERIMENT=mnist-classifier  SCALE=smoke|quick|paper|powered  REPOSITORY=address, for the buttons of the book'
	@echo '  SITE=address where the book is published, for its site map, cards and 404 page  PDF=1 for a PDF beside it (needs Chromium)'
	@echo '  PYTHON=python3  VENV=.venv, the environment; made when it is missing or the lock has changed  PORT=8000'

book: environment ## execute every notebook against the ledger and build the site in book/_build/html; trains nothing
	$(study) book $(ledger) $(repository) $(site)
	@echo 'to read it: make serve, and open http://127.0.0.1:$(PORT)'

# Two processes of one thread each: with more threads than cores they wait for each other half of the time.
test: environment ## run the tests; those on real data need DATA= or `make data`
	$(import)
	OMP_NUM_THREADS="$${OMP_NUM_THREADS:-1}" $(python) -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder

fuzz: environment ## try the fuzz tests with N= fresh examples a property (5000)
	GELU_STUDY_FUZZ="$(or $(N),5000)" $(python) -m pytest tests/test_fuzz.py tests/test_fuzz_files.py tests/test_fuzz_runs.py --hypothesis-show-statistics

quick: environment ## train a reduced version on this machine, in minutes, and make its page
	$(import)
	$(study) quick $(device) $(seeds) $(ledger)

reproduce: environment ## train the runs of EXPERIMENT at SCALE that the ledger lacks
	$(import)
	$(study) run "$(EXPERIMENT)" --scale "$(SCALE)" $(device) $(seeds) $(epochs) $(time_limit) $(cluster) $(ledger)

verify: environment ## train a random sample of EXPERIMENT's records again and compare; WHOLE_STACKS=1 with those that trained beside them
	$(import)
	$(study) verify --experiment "$(EXPERIMENT)" $(if $(WHOLE_STACKS),--whole-stacks) $(device) $(ledger)

data: environment ## download the data set of EXPERIMENT, or import it with DATA=
	$(study) data "$(dataset)" $(if $(DATA),--from "$(DATA)")

lab: environment ## open JupyterLab on the notebooks, with their start page
	JUPYTER_CONFIG_PATH="$$(pwd)/.jupyter$${JUPYTER_CONFIG_PATH:+:$$JUPYTER_CONFIG_PATH}" $(python) -m jupyterlab \
	  --notebook-dir=. --LabApp.default_url=/lab/tree/notebooks/start.ipynb $$(test "$$(id -u)" != 0 || echo --allow-root)

serve: environment ## serve the built book on http://127.0.0.1:8000 (PORT=)
	@test -f book/_build/html/index.html || $(study) book $(ledger) $(repository) $(site)
	@$(python) -c 'import socketserver as s, sys; s.TCPServer.allow_reuse_address = True; s.TCPServer(("127.0.0.1", int(sys.argv[1])), None)' "$(PORT)" 2>/dev/null || \
	  { echo 'error: port "$(PORT)" is taken, or is none; choose another, for instance make serve PORT=8001' >&2; exit 1; }
	$(python) -m http.server "$(PORT)" --bind 127.0.0.1 --directory book/_build/html

bench: environment ## measure training speed, or what a sweep costs, on this machine (WHAT=mnist|cifar|sweep)
	$(study) bench $(if $(WHAT),"$(WHAT)") $(device)

measure: environment ## measure again what pages show beside runs (WHAT=activation-cost|activation-swaps|reproducibility; the first two)
	$(import)
	set -e; for name in $(or $(WHAT),activation-cost activation-swaps); do $(study) measure "$$name" $(device); done

readme: environment ## write the answer in README.md anew from the records
	$(study) readme

lint: environment ## check style, types and source notebooks
	$(python) -m ruff check .
	$(python) -m mypy
	$(study) check

# uv keeps what requirements.lock holds where it can; delete the file first for the newest releases.
# conda installs the package itself in the same call of pip, which refuses to mix hashed and editable requirements.
lock: ## pin the dependencies that pyproject.toml names
	@$(check_python)
	"$(PYTHON)" -m venv build/lock
	build/lock/bin/python -m pip install --quiet --disable-pip-version-check uv
	build/lock/bin/python -m uv pip compile pyproject.toml --quiet --extra test --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-annotate --custom-compile-command "make lock" --output-file requirements.lock
	sed -e '/^ *--hash/d' -e 's/ *\\$$//' requirements.lock > requirements-conda.txt

clean: ## remove what was built; keeps the environment, data, records and checkpoints
	test ! -d build || find build -mindepth 1 -maxdepth 1 ! -name checkpoints -exec rm -rf {} +
	rm -rf dist book/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

define check_python
command -v "$(PYTHON)" >/dev/null 2>&1 || { \
  echo 'error: no program "$(PYTHON)"; install Python 3.11 or newer, or say where it is: make PYTHON=/path/to/python3' >&2; exit 1; }; \
"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
  echo "error: Python 3.11 or newer is needed; \"$(PYTHON)\" is $$("$(PYTHON)" --version 2>&1). For instance: make PYTHON=python3.12" >&2; exit 1; }; \
"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || { \
  echo 'error: "$(PYTHON)" lacks the venv module; on Debian and Ubuntu: apt install python3-venv' >&2; exit 1; }
endef

# No file target: VENV may have a space in its path, and a fresh clone's time stamps say nothing. The stamp holds what the
# environment was made from: the lock, pyproject.toml and the checkout that is installed in it.
environment:
	@set -e; \
	made_from="$$(cat requirements.lock pyproject.toml | cksum) $$(pwd)"; \
	if test -x $(python) && test "$$(cat "$(VENV)/gelu-study.stamp" 2>/dev/null)" = "$$made_from"; then exit 0; fi; \
	$(check_python); \
	echo 'making the environment in $(VENV): some minutes, and up to 7 GB of disk'; \
	$(python) -c 'import sys, pip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || "$(PYTHON)" -m venv "$(VENV)"; \
	rm -f "$(VENV)/gelu-study.stamp"; \
	$(python) -m pip install --disable-pip-version-check --require-hashes -r requirements.lock; \
	$(python) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .; \
	echo "$$made_from" > "$(VENV)/gelu-study.stamp"
