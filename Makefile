# What a user or CI does, one target each; `make help` lists them.
#
#   PG_CONFIG  the pg_config of the server to build for
#   PREFIX     where install-client puts the command (PREFIX/bin)
#   PROFILE    dev or release, for build and install
#   DESTDIR    a directory before every path that install writes to, for packagers
#   SUDO       SUDO=sudo where packages or server directories are not yours to write

PG_CONFIG ?= /usr/lib/postgresql/15/bin/pg_config
PREFIX ?= /usr/local
PROFILE ?= release
DESTDIR ?=
SUDO ?=

# rustup puts cargo where a shell that is no login shell does not look.
CARGO ?= $(or $(shell command -v cargo),$(HOME)/.cargo/bin/cargo)

# Not := anywhere below: pg_config may be installed by this very run.
PG_MAJOR = $(shell $(PG_CONFIG) --version | sed -E 's/^PostgreSQL ([0-9]+).*/\1/')
PKGLIBDIR = $(DESTDIR)$(shell $(PG_CONFIG) --pkglibdir)
EXTENSIONDIR = $(DESTDIR)$(shell $(PG_CONFIG) --sharedir)/extension
BINDIR = $(DESTDIR)$(PREFIX)/bin
TARGET_DIR = $(or $(CARGO_TARGET_DIR),target)
OUT = $(TARGET_DIR)/$(patsubst dev,debug,$(PROFILE))

# Every cargo call selects the same packages and features under the same environment. With
# another selection cargo unifies the features of shared dependencies anew and builds the
# bindings to the server, two minutes of work, a second time.
SELECTION = --workspace --locked --no-default-features --features stillpoint/pg$(PG_MAJOR)$(FEATURES)

# More features of the extension alone, for a build that is never installed for use. Exported,
# since the private installation is made by a make of its own.
export FEATURES ?=
fuzz-ledger: export FEATURES = ,stillpoint/mutants

export PGRX_PG_CONFIG_PATH = $(PG_CONFIG)
export CARGO SUDO MAKE

# A private installation of the server with this build in it, for the time of one command.
PRIVATE = tests/private.sh $(PG_CONFIG) $(PROFILE)

# Demo, tests and storm use the build that is quick to make, measurements the one that is
# quick to run.
demo test storm race-soak ledger-soak fuzz-ledger: PROFILE = dev
bench: PROFILE = release

# What a target runs. An installation has no use for the rest.
BINARIES = stillpoint
demo: BINARIES = stillpoint demo
storm: BINARIES = stillpoint storm
race-soak: BINARIES = stillpoint race_soak
ledger-soak: BINARIES = stillpoint ledger_soak
fuzz-ledger: BINARIES = stillpoint fuzz_ledger
bench: BINARIES = stillpoint bench

.DEFAULT_GOAL := help
.PHONY: help setup build install install-client uninstall demo test lint storm race-soak ledger-soak fuzz-ledger bench clean

help: ## List the targets
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1|\2/p' $(MAKEFILE_LIST) | \
	    awk -F'|' '{ printf "%-24s %s\n", $$1, $$2 }'

setup: ## Install what the build and the tests need and this machine lacks (Debian)
	@tests/setup.sh $(PG_CONFIG)

build: setup ## Build the extension and the client
	$(CARGO) build --profile $(PROFILE) $(SELECTION) --lib $(addprefix --bin ,$(BINARIES))

# A running server may have the old library mapped: it is replaced by a rename, so that no
# server ever sees half a file.
define put
	$(SUDO) install -D -m $(1) $(2) $(3).new
	$(SUDO) mv -f $(3).new $(3)

endef

install: build ## Install the extension into the server of PG_CONFIG
	$(call put,755,$(OUT)/libstillpoint.so,$(PKGLIBDIR)/stillpoint.so)
	$(foreach script,$(wildcard sql/stillpoint--*.sql),$(call put,644,$(script),$(EXTENSIONDIR)/$(notdir $(script))))
	$(call put,644,extension/stillpoint.control,$(EXTENSIONDIR)/stillpoint.control)

install-client: build ## Install the command into PREFIX/bin
	$(call put,755,$(OUT)/stillpoint,$(BINDIR)/stillpoint)

uninstall: ## Remove extension and command again
	$(SUDO) rm -f $(PKGLIBDIR)/stillpoint.so $(EXTENSIONDIR)/stillpoint.control \
	    $(EXTENSIONDIR)/stillpoint--*.sql $(BINDIR)/stillpoint

demo: build ## See what a plain dump loses, and what stillpoint does, on a cluster of its own
	@$(PRIVATE) $(OUT)/demo

test: build ## Run all tests; the last line counts them
	@$(PRIVATE) tests/run.sh $(SELECTION)

lint: setup ## Check format, lints, documentation, licences and advisories
	$(CARGO) fmt --all --check
	$(CARGO) clippy $(SELECTION) --all-targets -- -D warnings
	RUSTDOCFLAGS='-D warnings -A rustdoc::private-intra-doc-links' \
	    $(CARGO) doc $(SELECTION) --lib --no-deps --document-private-items
	@$(LICENCES_AND_ADVISORIES)

# cargo-deny is no part of a Rust installation, and its list of advisories no part of it.
define LICENCES_AND_ADVISORIES
if ! $(CARGO) deny --version >/dev/null 2>&1; then \
    echo 'lint: cargo-deny is not installed: licences and advisories are NOT checked' >&2; \
else \
    $(CARGO) deny check --hide-inclusion-graph licenses bans sources || exit; \
    if $(CARGO) deny fetch db >/dev/null 2>&1; then \
        $(CARGO) deny check --hide-inclusion-graph advisories; \
    else \
        echo 'lint: the advisory database cannot be had: advisories are NOT checked' >&2; \
    fi; \
fi
endef

storm: build ## Dump under a storm of DDL for minutes and check every restored database
	@$(PRIVATE) $(OUT)/storm

race-soak: build ## Run the race tests 20 times in random order
	@$(PRIVATE) $(OUT)/race_soak

ledger-soak: build ## Read the ledger for half an hour among DDL, kills and crashes
	@$(PRIVATE) $(OUT)/ledger_soak

fuzz-ledger: build ## Hold the ledger against the truth after random statements
	@$(PRIVATE) $(OUT)/fuzz_ledger

bench: build ## Measure beside pg_dump, write docs/benchmarks.md
	@$(PRIVATE) $(OUT)/bench

clean: ## Remove what was built
	$(CARGO) clean
