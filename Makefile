# Everything here sets up what it needs in .venv, and is quick the second time. `make` alone lists the targets.

PYTHON ?= python3
# An index of PyTorch wheels for CPUs (PyTorch's installation page says where); empty: what pip is set up to use.
TORCH_INDEX ?=
# Stories of make simulate.
SEEDS ?= 20000
# The folder with cluster.py, which starts a real kube-apiserver; and bench.py. Beside the repository where not named.
DISTTRAIN_KUBE ?= $(CURDIR)/../shared/kube
BENCH ?= $(CURDIR)/../shared/bench/bench.py

VENV := .venv
TF_VENV := .venv-tensorflow
HVD_VENV := .venv-horovod
# Where the built Horovod is kept, so that no other checkout builds it again.
HVD_WHEELS ?= $(HOME)/.cache/disttrain/horovod
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
SOURCES := operator training tests charts
HELM := .tools/helm
# Does a Python have all that the example trains with?
CAN_TRAIN := import os, shutil, sys, torch, sklearn; \
	sys.exit(not shutil.which("torchrun", path=os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]))

.DEFAULT_GOAL := help

##@ Try it

.PHONY: demo
demo: $(VENV)/.base  ## Train examples/01-pytorch-digits.yaml on this machine, to the end, live
	@python=$(BIN)/python; \
	if ! $$python -c '$(CAN_TRAIN)' 2>/dev/null; then \
		if $(PYTHON) -c '$(CAN_TRAIN)' 2>/dev/null; then \
			python=$$($(PYTHON) -c 'import sys; print(sys.executable)'); \
			echo "Training with the PyTorch of $$python"; \
		else \
			$(MAKE) --no-print-directory $(VENV)/.torch; \
		fi; \
	fi; \
	PYTHONPATH=$(CURDIR)/training $(BIN)/disttrain run examples/01-pytorch-digits.yaml --python $$python

##@ Check it

.PHONY: test
test: $(VENV)/.dev $(VENV)/.torch $(HELM)  ## Run all tests that need no Kubernetes
	$(BIN)/pytest -n 2 -m "not kube and not tensorflow and not mpi"

.PHONY: test-quick
test-quick: $(VENV)/.dev $(VENV)/.torch  ## The same without those that take long
	$(BIN)/pytest -n 2 -m "not kube and not tensorflow and not mpi and not slow"

.PHONY: test-tensorflow
test-tensorflow: $(VENV)/.dev $(TF_VENV)/.done  ## Train with TensorFlow on the one-machine cluster (its own environment, 1.8 GB)
	DISTTRAIN_TF_PYTHON=$(CURDIR)/$(TF_VENV)/bin/python $(BIN)/pytest -m tensorflow

.PHONY: test-mpi
test-mpi: $(VENV)/.dev $(HVD_VENV)/.done  ## Run MPI and Horovod jobs on the one-machine cluster (Debian: openmpi-bin openssh-server)
	DISTTRAIN_HOROVOD_PYTHON=$(CURDIR)/$(HVD_VENV)/bin/python $(BIN)/pytest -m mpi

.PHONY: test-kube
test-kube: $(VENV)/.dev $(HELM)  ## Run the tests of the API's behaviour on a real kube-apiserver too (as root on Linux; DISTTRAIN_KUBE)
	DISTTRAIN_KUBE=$(DISTTRAIN_KUBE) $(BIN)/pytest -m kube tests/api tests/chart

.PHONY: simulate
simulate: $(VENV)/.dev  ## Simulate jobs at their worst: SEEDS stories, 20000 where not said
	cd tests && ../$(BIN)/python -m simulation.simulate --seeds $(SEEDS)

.PHONY: lint
lint: $(VENV)/.dev  ## Check style and format
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)

.PHONY: types
types: $(VENV)/.dev $(VENV)/.torch  ## Check types, of the tests too
	$(BIN)/mypy $(SOURCES)

.PHONY: contracts
contracts: $(VENV)/.dev  ## Check that the layers know only what they may
	$(BIN)/lint-imports

.PHONY: bench
bench: $(VENV)/.bench  ## Measure the operator on a real kube-apiserver (five minutes on an idle machine; BENCH, DISTTRAIN_KUBE)
	cd tests/bench && ../../$(BIN)/python $(BENCH) run disttrain.yaml --tuned --set root=$(CURDIR) \
		--kube "$$($(PYTHON) $(DISTTRAIN_KUBE)/cluster.py bin)" --scenarios CdDBAGEF

.PHONY: venv-tensorflow
venv-tensorflow: $(TF_VENV)/.done  ## An environment with TensorFlow for CPUs, in .venv-tensorflow

.PHONY: venv-horovod
venv-horovod: $(HVD_VENV)/.done  ## An environment with Horovod, built for PyTorch and TensorFlow for CPUs, in .venv-horovod

##@ Change it

.PHONY: manifests
manifests: $(VENV)/.base  ## Generate the CRD, the chart's copy and the reference of fields from the types
	$(BIN)/python -m disttrain.api .

.PHONY: dist
dist: manifests $(HELM)  ## Generate dist/install.yaml from the chart
	$(BIN)/python charts/install.py $(HELM) >dist/install.yaml

.PHONY: format
format: $(VENV)/.dev  ## Format the code
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

.PHONY: clean
clean:  ## Remove all that is not in git but what runs left behind
	rm -rf $(VENV) $(TF_VENV) $(HVD_VENV) .tools build dist/*.whl dist/*.tar.gz operator/*.egg-info training/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: help
help:  ## List the targets
	@awk 'BEGIN {FS = ":.*  ## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*  ## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# ---- what is installed, each once; a stamp is older than the list of what it stands for when that changes

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "$(PYTHON) is missing or older than 3.11: install it, or name another, as in make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "$(PYTHON) cannot make virtual environments: apt-get install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.base: requirements/base.txt pyproject.toml training/pyproject.toml | $(VENV)/.python
	$(PIP) -r requirements/base.txt
	$(PIP) --no-deps -e . -e training
	@touch $@

$(VENV)/.dev: requirements/dev.txt $(VENV)/.base
	$(PIP) -r requirements/dev.txt
	@touch $@

$(HELM): tests/chart/helm.py | $(VENV)/.base
	$(BIN)/python tests/chart/helm.py $@

$(VENV)/.bench: requirements/bench.txt $(VENV)/.base
	$(PIP) -r requirements/bench.txt
	@touch $@

$(VENV)/.torch: requirements/torch.txt | $(VENV)/.base
	@if ! $(BIN)/python -c 'import torch, sklearn' 2>/dev/null; then \
		echo "PyTorch and scikit-learn are downloaded into $(VENV). With PyTorch for CPUs that is about 300 MB: a minute at"; \
		echo "50 Mbit/s, and 1 GB on the disk. On Linux pip may take the build for NVIDIA GPUs instead: about 3 GB, ten"; \
		echo "minutes. TORCH_INDEX=<an index of PyTorch's wheels for CPUs> behind the same command avoids that."; \
	fi
	$(BIN)/python -m pip install --disable-pip-version-check -r requirements/torch.txt $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))
	@touch $@

$(HVD_VENV)/.done: requirements/horovod.txt requirements/tensorflow.txt training/pyproject.toml \
		images/horovod/build-wheel.sh $(wildcard images/horovod/patches/*.patch) | $(VENV)/.python
	@[ -d $(HVD_VENV) ] || echo "PyTorch and TensorFlow for CPUs go into $(HVD_VENV), 2.4 GB; Horovod takes four minutes to build."
	$(PYTHON) -m venv $(HVD_VENV)
	$(HVD_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements/horovod.txt \
		$(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) -e training
	images/horovod/build-wheel.sh $(HVD_VENV)/bin/python $(HVD_WHEELS)
	$(HVD_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --force-reinstall $(HVD_WHEELS)/horovod-*.whl
	@touch $@

$(TF_VENV)/.done: requirements/tensorflow.txt training/pyproject.toml | $(VENV)/.python
	@[ -d $(TF_VENV) ] || echo "TensorFlow for CPUs is downloaded into $(TF_VENV): about 500 MB, and 1.8 GB on the disk."
	$(PYTHON) -m venv $(TF_VENV)
	$(TF_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements/tensorflow.txt -e training
	@touch $@
