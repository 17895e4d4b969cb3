# The doors to this project. `make demo` and `make test` do all their own set-up.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.PHONY: help evidence house build demo test check doctor check-aarch64 bench sim soak compatibility fuzz escape test-vm test-svm clean need-rust need-python

PYTHON ?= python3
VENV := .venv
STATE ?= $(CURDIR)/.demo
# Bytecode is part of what is shipped: whatever the caller's shell says.
unexport PYTHONDONTWRITEBYTECODE

help:
	@echo "make build     build the four programs into target/release"
	@echo "make demo      build, and run the examples with their cold starts broken down by stage"
	@echo "make test      run every test: Rust, the guest's pytest, end to end in real containers"
	@echo "make check     check formatting and lints"
	@echo "make bench     FIG=sock_fig14 ON=3.12: make a figure; docs/developer/benchmarking.md lists them"
	@echo "make evidence  WHICH=…: gather one kind of evidence; without WHICH, list the kinds"
	@echo "make house     count the code, its words and its circles"
	@echo "make doctor    say what this machine can do"
	@echo "make clean     remove what was built and what the demo left"

evidence:
	@case "$(WHICH)" in \
	soak|compatibility|fuzz|escape|sim|test-vm|test-svm|check-aarch64) $(MAKE) --no-print-directory $(WHICH);; \
	"") printf '%s\n' \
	"WHICH=soak           MINUTES=30 CALLS=… SEED=…: load and faults together, and what must hold" \
	"WHICH=compatibility  ON=3.12 ONLY=regex INTO=directory: libraries and frameworks in every way of making an instance" \
	"WHICH=fuzz           MINUTES=10 TARGETS=…: every reader of untrusted bytes, and the HTTP API (target http_api)" \
	"WHICH=escape         attack sandboxes, machines and monitors, with every defence and without each (root)" \
	"WHICH=sim            TRACE=directory: judge the import cache's policies on recorded requirement sets" \
	"WHICH=test-vm        run the end-to-end tests on Debian's stock kernel, under qemu" \
	"WHICH=test-svm       run the micro-VM engine's tests on upstream KVM, emulated by qemu" \
	"WHICH=check-aarch64  compile what is shipped for aarch64, in a chroot (root)";; \
	*) echo "error: no evidence called '$(WHICH)': make evidence lists the kinds"; exit 1;; \
	esac

need-rust:
	@command -v cargo >/dev/null || { echo "error: no Rust toolchain; get one from https://rustup.rs"; exit 1; }
	@have=$$(rustc --version | cut -d' ' -f2); \
	[ "$$(printf '%s\n1.95.0\n' "$$have" | sort -V | head -n1)" = 1.95.0 ] || \
	{ echo "error: rustc $$have is too old: 1.95 or later is needed (rustup update stable)"; exit 1; }
	@command -v cc >/dev/null || { echo "error: no C compiler; install gcc"; exit 1; }

need-python:
	@command -v $(PYTHON) >/dev/null || { echo "error: no python3; install Python 3.11 or later"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	{ echo "error: $$($(PYTHON) -V) is too old: 3.11 or later is needed (set PYTHON=...)"; exit 1; }

build: need-rust
	cargo build --release --locked -p wool -p warden -p egress -p vmm

demo: need-python build
	PATH="$(CURDIR)/target/release:$$PATH" examples/demo.sh "$(STATE)"

$(VENV)/ready: guest/python/requirements-dev.txt | need-python
	$(PYTHON) -m venv $(VENV) || { echo "error: no venv module; install python3-venv"; exit 1; }
	$(VENV)/bin/python -m pip install --quiet -r $<
	touch $@

check: need-rust $(VENV)/ready
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	$(VENV)/bin/ruff check guest/python crates examples bench tests
	$(VENV)/bin/ruff format --check guest/python

# It has a compiler of its own: see the script.
check-aarch64:
	tests/aarch64/check.sh

test: need-rust $(VENV)/ready
	mkdir -p target && rm -f target/skipped
	LAMBSWOOL_SKIPPED=$(CURDIR)/target/skipped $(VENV)/bin/python -m pytest -q -rs guest/python/tests
	cargo build --workspace --locked
	LAMBSWOOL_SKIPPED=$(CURDIR)/target/skipped cargo test --workspace --locked
	@if [ -e target/skipped ]; then echo "$$(wc -l <target/skipped) tests had nothing to do here:"; \
	sort target/skipped; else echo "no test was skipped"; fi

# Lines, words, circles: what the code is held to.
house: need-python
	$(PYTHON) tests/house.py

doctor: build
	target/release/wool doctor

# Together, because cargo chooses features by what is built together. A release switches no defence off.
bench: profile = $(if $(filter ablation_isolation,$(FIG)),ablation,release)
bench: need-rust need-python
	cargo build --profile $(profile) --locked -p wool -p warden -p egress -p vmm -p bench
	target/$(profile)/bench $(FIG) $(if $(ON),--python $(ON))

# ARGS: --protocol given|disjoint|zipf|drift|families|passes|elsewhere|dev|dev-passes, --budgets 250,1000,3000 and others; see --help.
sim: need-rust
	cargo run --release --locked -q -p engine --example simulate -- $(TRACE) $(ARGS)

# With debug assertions: what is shipped has no fault points.
soak: need-rust need-python
	cargo build --workspace --locked
	target/debug/soak $(if $(MINUTES),--minutes $(MINUTES)) $(if $(CALLS),--calls $(CALLS)) $(if $(SEED),--seed $(SEED))

# ON, ONLY: several words each.
compatibility: need-rust need-python
	cargo build --workspace --locked
	target/debug/compatibility $(addprefix --on ,$(ON)) $(addprefix --only ,$(ONLY)) $(if $(INTO),--into $(INTO))

# In a build of its own, with counters: see fuzz/run.sh. The HTTP API has a fifth of the time, or all of it where it is
# the one that was named: see fuzz/api.sh.
FUZZ_MINUTES = $(or $(MINUTES),10)
FUZZ_CODE := $(filter-out http_api,$(or $(TARGETS),all))
FUZZ_API := $(filter http_api,$(or $(TARGETS),http_api))
fuzz: need-rust $(VENV)/ready
	@command -v c++ >/dev/null || { echo "error: no C++ compiler for libFuzzer; install g++"; exit 1; }
	$(if $(FUZZ_CODE),fuzz/run.sh $$(( $(FUZZ_MINUTES) * $(if $(FUZZ_API),48,60) )) $(filter-out all,$(FUZZ_CODE)))
	$(if $(FUZZ_API),fuzz/api.sh $$(( $(FUZZ_MINUTES) * $(if $(FUZZ_CODE),12,60) )))

escape: need-rust
	cargo build --locked -p warden -p egress
	cargo test --locked -p container --test escape -- --nocapture --test-threads 1
	cargo test --locked -p vmm --test escape
	cargo test --locked -p e2e --test machine_attacks -- --nocapture --test-threads 1

# MATCH=regex: only test programs with such names. VM_MINUTES, VM_ACCEL: see the script.
test-vm: need-rust need-python
	tests/vm/test-vm.sh '$(MATCH)'

# MATCH=regex: only test programs with such names. VM_MINUTES, VM_NPT: see the script.
test-svm: need-rust need-python
	tests/vm/test-svm.sh '$(MATCH)'

clean:
	-[ ! -x target/release/wool ] || target/release/wool --state "$(STATE)" clean --yes
	cargo clean
	rm -rf $(VENV)
