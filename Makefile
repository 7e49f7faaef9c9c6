# Every target does all of its own set-up in .venv; a machine needs Python 3.11 or newer, pip and make.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip --disable-pip-version-check install --quiet --constraint constraints.txt

.PHONY: bench test lint docs speed studies tables package lowest soak clean

# The paper's comparison on real features: 1- and 5-shot, four methods, 1000 tasks each.
bench: .venv/.slim
	$(BIN)/a2lp bench

# Everything that must hold: style, types, layers, tests, docs.
test: .venv/.full lint
	$(BIN)/python -m pytest -n auto
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

lint: .venv/.full
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

docs: .venv/.full
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

# Every engine against the way the authors run it, about ten minutes on two quiet cores; then docs/performance.md.
speed: .venv/.full
	$(BIN)/python benchmarks/speed.py
	$(BIN)/python benchmarks/speed_report.py

# What docs/field.md, docs/a2lp_plus.md and docs/a2lp_em.md show, about 50 minutes on two quiet cores. Commit first: records
# name the commit. A run that was stopped continues.
studies: .venv/.full
	$(BIN)/python benchmarks/field.py --measure
	$(BIN)/python benchmarks/plus_study.py --measure
	$(BIN)/python benchmarks/em_study.py --measure

# All cells of the paper's tables that the features at hand allow, then README's and docs' tables from the records.
tables: .venv/.full
	$(BIN)/a2lp reproduce --out results $(foreach set,cub_resnet12_distilled cub_wrn28_10 cifar_fs_resnet12 \
		cifar_fs_wrn28_10 mini_imagenet_resnet12 mini_imagenet_wrn28_10,--data trained/$(set))
	$(BIN)/python benchmarks/tables_in_docs.py

# Wheel and sdist in dist/, checked, and the wheel tried in a clean environment.
package:
	PYTHON=$(PYTHON) bash .ci/test_wheel

# The tests with the oldest versions of every dependency.
lowest:
	PYTHON=$(PYTHON) bash .ci/test_lowest

# Random faults for an hour: damaged files, degenerate tasks, kills, long runs; what failed is in soak-failures/.
MINUTES ?= 60
soak: .venv/.full
	$(BIN)/python benchmarks/soak.py --minutes $(MINUTES) --record

clean:
	rm -rf .venv .venv-lowest site build dist

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/.slim: .venv/bin/python pyproject.toml constraints.txt
	$(PIP) --editable .
	touch $@

# torch first and by its exact version: the constraint then keeps other packages from bringing another build
.venv/.full: .venv/.slim
	$(PIP) torch
	$(PIP) --editable '.[dev]'
	touch $@
