# `make` installs everything; `make help` lists what else there is.
# The environment holds a normal, not an editable install: only so does fairseq find `--user-dir attlm_fairseq` from any
# directory. It is refreshed whenever a source changed; the tests use the checkout itself (tests/conftest.py).

VENV ?= .venv
PYTHON ?= $(shell for python in python3.11 python3.10 python3.12 python3; do \
	$$python -c 'import sys; sys.exit(not (3, 10) <= sys.version_info < (3, 13))' 2>/dev/null && echo $$python && break; done)
# Given to make alone: an environment often has CUDA=/usr/local/cuda. CUDA= and CUDA=0 mean no.
CUDA = $(if $(filter gpu,$(MAKECMDGOALS)),1)
override CUDA := $(if $(filter-out 0,$(CUDA)),1)
ifneq ($(words $(CURDIR) x$(VENV)),2)
$(error make cannot work in a path with a space: "$(CURDIR)" and VENV="$(VENV)")
endif

HERE := $(abspath $(VENV))
BIN := $(HERE)/bin
DONE := $(HERE)/done
LOG = $(HERE)/log/$(@F).txt
TORCH := $(shell sed -n 's/^\(torch==[^; ]*\).*/\1/p' constraints.txt)
PIP := "$(BIN)/python" -m pip --disable-pip-version-check --no-input
INSTALL := $(PIP) install -c constraints.txt
TORCH_VERSION := "$(BIN)/python" -c 'from importlib.metadata import version; print(version("torch"))' 2>/dev/null
# From 23.3 on a dry run downloads no wheels; from 24.1 on pip refuses the metadata of fairseq 0.12.2's dependencies.
PIP_VERSION := 'pip>=24.1; python_version >= "3.11"' 'pip>=23.3,<24.1; python_version < "3.11"'
SOURCES := $(shell find attlm_fairseq cli -name '*.py' -o -name '*.html' -o -name '*.md') pyproject.toml README.md
EVERYTHING := '.[train,test]'
# without those that need texts and lists
BENCHMARKS = $(filter-out %/yardstick.py %/better_lms.py,$(wildcard benchmarks/*.py))

# $(call step,WHAT,COMMAND): says what it does, keeps the noise in a log, and shows its end if it fails.
step = @mkdir -p "$(dir $(LOG))"; echo "-- $(1)"; { $(2); } >"$(LOG)" 2>&1 || { tail -n 25 "$(LOG)"; echo "-- failed: $(1). All of it: $(LOG)"; exit 1; }

# lmplz is compiled while the environment is installed, which keeps one core busy at a time.
MAKEFLAGS += -j2

.PHONY: all help install kenlm demo test lint bench docs fuzz gpu
.DELETE_ON_ERROR:

all: install kenlm
	@echo "-- installed into $(VENV); \`make help\` lists what else there is"

help:
	@echo "make          install everything into $(VENV): training, rescoring, decoders, tests and KenLM's lmplz"
	@echo "make demo     install into $(VENV), train an attentive language model and rescore n-best lists with it"
	@echo "make test     install, check style and types, run the tests"
	@echo "make lint     check style and types alone"
	@echo "make kenlm    build KenLM's programs into $(VENV)/bin"
	@echo "make bench    run the benchmarks"
	@echo "make gpu      what a GPU can tell: tests, speed, PTB=FOLDER; all of it in build/gpu/report.txt (MINUTES=38); implies CUDA=1"
	@echo "make docs     build the documentation into build/docs"
	@echo "make fuzz     damaged and hostile input for SECONDS=600, runs killed at random"
	@echo "make install  make or refresh $(VENV) without KenLM's programs"
	@echo "VENV=folder, PYTHON=python3.x (of a new folder) and CUDA=1 (torch with its CUDA libraries, gigabytes) change what is installed where."

install: $(DONE)/package

$(DONE)/venv:
	@sh tools/check_build_tools.sh "$(PYTHON)"
	@echo "-- Python environment in $(VENV), from $(PYTHON)"
	@"$(PYTHON)" -m venv "$(VENV)" && mkdir -p "$(DONE)"
	$(call step,pip and what compiling needs,$(INSTALL) --upgrade $(PIP_VERSION) setuptools wheel cython 'numpy<2')
	@touch $@

# Alone and first, so that nothing else decides which torch it is. pip is asked what the plain requirement would bring on Linux:
# where that is the CUDA libraries, torch comes from PyTorch's own index of CPU builds. To pip a CPU build satisfies the plain
# requirement, so that CUDA=1 has to replace it.
$(DONE)/torch$(CUDA): $(DONE)/venv constraints.txt
	$(call step,$(TORCH) (about 200 MB to download; a minute or two),\
		if [ -z "$(CUDA)" ] && [ "$$(uname -s)" = Linux ] && \
			$(INSTALL) --dry-run --no-deps --quiet --report - $(TORCH) | grep -q '"nvidia-'; then \
			$(INSTALL) --extra-index-url https://download.pytorch.org/whl/cpu '$(TORCH)+cpu'; \
		elif [ -n "$(CUDA)" ] && $(TORCH_VERSION) | grep -q '+cpu$$'; then \
			$(INSTALL) --force-reinstall --no-deps $(TORCH) && $(INSTALL) $(TORCH); \
		else \
			$(INSTALL) $(TORCH); \
		fi)
	@touch $@

# Not isolated: an isolated build would fetch a torch of its own. fairseq asks for torchaudio, which it uses for speech synthesis only;
# the wheels of PyPI need CUDA, and next to torch for CPUs they would keep transformers' speech models from loading. The tests use ESPnet's
# searches, which need none of ESPnet's dependencies but typeguard.
$(DONE)/dependencies: $(DONE)/torch$(CUDA) setup.py
	$(call step,fairseq and the other dependencies (compiled here: 2 to 5 minutes),$(INSTALL) --no-build-isolation $(EVERYTHING) \
		&& { "$(BIN)/python" -c 'import torchaudio' || $(PIP) uninstall --yes torchaudio; } && $(INSTALL) --no-deps espnet typeguard)
	@touch $@

$(DONE)/package: $(DONE)/dependencies $(SOURCES)
	$(call step,attlm-fairseq into $(VENV),$(INSTALL) --no-deps --no-build-isolation .)
	@touch $@

kenlm: $(BIN)/lmplz

$(BIN)/lmplz: attlm_fairseq/scoring/ngrams/kenlm_programs.py | $(DONE)/venv
	$(call step,KenLM's programs (compiled here: a minute or two),rm -f "$@"; "$(BIN)/python" -m attlm_fairseq.scoring.ngrams.kenlm_programs "$(HERE)")
	@touch $@

demo: install kenlm
	@PATH="$(BIN):$$PATH" bash examples/quickstart/run.sh

test: lint kenlm
	@echo "-- tests"
	@PATH="$(BIN):$$PATH" "$(BIN)/python" -m pytest -n auto --maxprocesses 4 --dist loadfile

lint: install
	@echo "-- style and types"
	@"$(BIN)/ruff" check . && "$(BIN)/ruff" format --check . && "$(BIN)/mypy"

SECONDS ?= 600
fuzz: install kenlm
	@PATH="$(BIN):$$PATH" "$(BIN)/python" tests/fuzz/run.py --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

docs: install
	$(call step,documentation tools,$(INSTALL) --no-build-isolation '.[docs]')
	$(call step,documentation in build/docs,"$(BIN)/python" -m mkdocs build --strict)

bench: install kenlm
	@for benchmark in $(BENCHMARKS); do echo "-- $$benchmark"; PATH="$(BIN):$$PATH" "$(BIN)/python" $$benchmark || exit 1; done

# Resumable: run again, it adds to the report, and PTB goes on.
gpu: install
	@PATH="$(BIN):$$PATH" "$(BIN)/python" tools/measure_gpu.py $(if $(PTB),--ptb "$(PTB)") $(if $(MINUTES),--minutes $(MINUTES))
