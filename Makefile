# The two commands: `make demo` and `make test`. Everything is built inside this folder: target/ (Rust), .venv/ (Python), out/.
# Needs: cargo, Python with venv, a C compiler. scripts/preflight.sh says what is missing and how to get it.

.DEFAULT_GOAL := help
.PHONY: help demo lab quick test test-heavy papers-heavy accuracy abuse abuse-test bench lint style deny clippy abuse-and-clippy fuzz rust-test unit-test integration-test py-test test-programs preflight
.PHONY: demo-programs binary python lock clean

VENV := .venv
PY := $(VENV)/bin/python
TARGET := $(or $(CARGO_TARGET_DIR),target)
export TACIT_BIN := $(abspath $(TARGET))/release/tacit
INSTALL = PATH="$(abspath $(VENV))/bin:$$PATH" $(PY) -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --force-reinstall .
# Set TACIT_PYTHON to choose the interpreter that .venv is made with.
FUZZ_SECONDS ?= 60

help:
	@echo "make demo       ten handwritten digits, classified privately by two processes on this machine"
	@echo "make test       everything the project tests: Rust, fuzz smoke, Python"
	@echo "make quick      unit tests of every crate, each back end on a small network, style (under 4 minutes once built)"
	@echo "make lab        the program tacit-lab, which \`tacit lab\`, \`tacit simulate\` and \`tacit keyset tables\` run"
	@echo "make test-heavy bootstrapping with real parameter sets, encrypted networks (many minutes, 8 GB)"
	@echo "make papers-heavy  figures of the documents (bytes, keys, rounds) beside what their commands print (minutes; ../shared/data)"
	@echo "make accuracy   private runs on SqueezeNet, MNIST and CIFAR-10 (needs ../shared/data; takes long)"
	@echo "make abuse      kills, floods, full disks, restored folders and damaged files against the programs (9 minutes)"
	@echo "make bench      time, bytes and memory of one private SqueezeNet inference, as JSON"
	@echo "make lint       formatting, clippy, layering and house rules, licences of crates"
	@echo "make fuzz       every fuzz target for FUZZ_SECONDS ($(FUZZ_SECONDS)) each (needs nightly Rust and cargo-fuzz)"

# The demo runs both programs and checks them against onnxruntime; it builds nothing else.
demo: preflight
	@$(MAKE) --no-print-directory -j2 demo-programs $(VENV)/.locked
	$(PY) scripts/demo.py

# Tests wait more than they compute: they run side by side, and what each of them prints stands together.
# A first build is not incremental, which is a third less work for our crates; where cargo has built incrementally, it goes on so.
quick test rust-test unit-test integration-test test-programs clippy: export CARGO_INCREMENTAL := $(if $(wildcard $(TARGET)/debug/incremental/*),1,0)
test: style
	@$(MAKE) --no-print-directory -j2 test-programs $(VENV)/.locked
	@echo "== the tests of the crates, those in Python, and a minute of abuse with clippy, side by side; each is printed when it has ended"
	@$(MAKE) --no-print-directory --output-sync=target -j4 rust-test py-test abuse-and-clippy

rust-test: unit-test integration-test

unit-test: test-programs
	cargo test --locked --workspace --quiet --lib --bins
	env -u MAKEFLAGS -u MFLAGS cargo test --locked --workspace --quiet --doc

integration-test: test-programs
	cargo test --locked --workspace --quiet --test '*'

# The programs and all tests are compiled once; each lane then runs its own. Examples are clippy's to check: nothing runs them here.
test-programs: preflight
	@echo "== the programs and their tests (the first build takes some minutes)"
	cargo test --locked --workspace --quiet --no-run --lib --bins --tests

# Real parameter sets: minutes and some gigabytes.
test-heavy: preflight python binary
	cargo test --locked --release -p tacit-he --quiet -- --ignored
	cargo test --locked --release -p tacit-backends --test ckks_networks --quiet -- --ignored
	cargo test --locked --release -p tacit-ckks --lib --quiet -- --ignored campaign_tests::five_hundred
	$(PY) examples/ckks_tour.py
	$(PY) scripts/server_memory.py models/squeezenet_square.onnx -O agreement=0

# Figures of the documents that follow from no clock beside what their commands print; UPDATE=--update writes them anew.
papers-heavy: binary python
	$(TACIT_BIN) lab papers --run --heavy $(UPDATE) --data $(or $(TACIT_DATA),../shared/data)

# Pytest runs the programs and the Python module that `cargo test` has made, with the back end of the tests in them. The packages of .venv
# are not compiled when it is made: what the first process imports is, unless the environment forbids it, and many processes follow.
py-test: export PYTHONDONTWRITEBYTECODE :=
py-test: export TACIT_BIN := $(abspath $(TARGET))/debug/tacit
py-test: export PYTHONPATH := $(abspath $(TARGET))/debug/python
py-test: test-programs $(VENV)/.locked
	$(PY) scripts/stage_python.py $(TARGET)/debug
	$(PY) -m pytest

accuracy: binary python
	$(PY) scripts/accuracy.py

abuse: binary
	$$(sh scripts/find_python.sh) scripts/abuse.py --strict --seconds 540

# A minute of it, on the programs that `cargo test` has made.
abuse-test: test-programs
	TACIT_BIN=$(abspath $(TARGET))/debug/tacit $$(sh scripts/find_python.sh) scripts/abuse.py --seconds 60

bench: binary
	@mkdir -p out
	$(TACIT_BIN) zoo squeezenet1.1 -o out/squeezenet1.1.onnx
	$(TACIT_BIN) bench --model out/squeezenet1.1.onnx --runs 1 -o out/bench.json

lint: style deny clippy

# Licences, banned crates and sources.
deny: preflight
	@if cargo deny --version >/dev/null 2>&1; then cargo deny --offline --locked check licenses bans sources; \
	else echo "SKIPPED: licences, bans and sources of crates: cargo-deny is not there (cargo install --locked cargo-deny)"; fi

style: preflight
	@sh scripts/preflight.sh lint
	cargo fmt --all --check
	$$(sh scripts/find_python.sh) scripts/check_rules.py

clippy: preflight
	cargo clippy --locked --workspace --all-targets --quiet -- -D warnings

# Clippy computes only and nobody waits for it: it takes what the tests leave.
abuse-and-clippy: abuse-test
	@nice $(MAKE) --no-print-directory clippy

fuzz: preflight
	sh scripts/fuzz.sh $(FUZZ_SECONDS)

demo-programs: preflight
	@echo "== the programs tacit and tacit-server (the first build takes some minutes)"
	cargo build --locked --release -p tacit-cli -p tacit-serve --bin tacit --bin tacit-server

# What a change breaks at once: tests that take many seconds each are left to `make test`.
quick: style test-programs
	cargo test --locked --workspace --quiet --lib --bins -- $(addprefix --skip ,$(SLOW))
	cargo test --locked --workspace --quiet --test suite -- conforms_on_every_operation_once check::

SLOW := material_change_is_detected detects_changed_bits changed_material kept_tests derived_keys_answer_within memory_that_another numbers_never_repeat

lab: preflight
	cargo build --locked --release -p tacit-lab

binary: preflight
	@echo "== all programs (the first build takes some minutes)"
	cargo build --locked --release -p tacit-cli -p tacit-serve -p tacit-sidecar -p tacit-lab

# The venv is made once per lock file; the package is built every time (cargo decides what is stale).
$(VENV)/.locked: requirements.lock scripts/find_python.sh
	@echo "== $(VENV), with the packages of requirements.lock"
	$$(sh scripts/find_python.sh) -m venv --clear $(VENV)
	$(PY) -m pip install --quiet --no-compile --disable-pip-version-check --require-hashes -r requirements.lock
	@touch $@

python: preflight $(VENV)/.locked
	@echo "== the Python package, into $(VENV)"
	$(INSTALL)

preflight:
	@sh scripts/preflight.sh

# For maintainers: the lock file from requirements.in, for all platforms and Python versions, with hashes.
lock:
	uv pip compile --universal --python-version 3.11 --generate-hashes --no-header requirements.in -o requirements.lock

clean:
	rm -rf $(VENV) out target
