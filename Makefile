# Each target does all the set-up it needs. `make` alone lists them.
.DEFAULT_GOAL := help
.PHONY: help setup run test simulate bench clean cargo

CARGO ?= cargo

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

cargo:
	@command -v $(CARGO) >/dev/null 2>&1 || { \
	  echo "missing: cargo (Rust); get it from https://rustup.rs, then open a new shell" >&2; exit 1; }

setup: cargo ## Prepare MLX for this machine (Linux), or say what it needs (macOS)
	@$(CARGO) xtask setup

run: setup ## Build, start the daemon, calibrate a small model, show the ratios
	@$(CARGO) xtask run

test: setup ## Format, lints (Linux and macOS code), documentation, all tests
	@$(CARGO) xtask python-deps
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --workspace --no-deps
	$(CARGO) xtask darwin-check
	FUSION_REQUIRE_PYTHON=1 $(CARGO) test --locked --workspace
	$(CARGO) xtask fresh-account
	$(CARGO) xtask python-test

SEEDS ?= 10
DAYS ?= 30

simulate: cargo ## Live through SEEDS x DAYS scripted days, in virtual time
	@$(CARGO) test --locked -q -p fusiond --test simulation -- --seeds $(SEEDS) --days $(DAYS)

bench: setup ## Measure the figures that matter, into target/bench/summary.json
	@$(CARGO) xtask bench

clean: cargo ## Remove everything that was built or set up here
	$(CARGO) clean
	rm -rf .mlx-linux .python .cargo/mlx-linux.toml
