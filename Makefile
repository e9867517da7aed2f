# Shardwright. `make` or `make help` says what there is.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

# Built tools, cluster parts and images are kept here, outside the work tree.
export SHARDWRIGHT_CACHE ?= $(HOME)/.cache/shardwright
# Scenario by name: `make e2e ONLY=quickstart`.
ONLY ?=
# The fleet of `make demo`: quickstart or original.
FLEET ?= quickstart
# For how long `make chaos` draws faults, the seed that draws them (from the clock when empty), and further arguments.
MINUTES ?= 10
SEED ?=
CHAOS ?=

##@ For everybody

.PHONY: help
help: ## Say what each target does
	@awk 'BEGIN {FS = ":.*## "; print "Usage: make TARGET"} \
	  /^##@/ {printf "\n%s\n", substr($$0, 5)} \
	  /^[a-zA-Z0-9_-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## A Kubernetes cluster on this machine with a sharded MySQL fleet on it (FLEET=original: 8 pairs, 4,096 shards)
	@FLEET=$(FLEET) hack/demo.sh

.PHONY: demo-split
demo-split: ## On the demo: half of a range moves to a pair of its own while clients write to it
	@FLEET=$(FLEET) hack/demo-split.sh

.PHONY: demo-down
demo-down: ## Take the demo down; nothing of it stays but the cache
	@hack/demo.sh down

.PHONY: test
test: ## Everything: `check`, then the end-to-end scenarios and a short chaos on a real cluster
	@hack/test.sh

.PHONY: test-full
test-full: ## As `test`, with the long scenarios, a longer search through the decision cores, and the proofs of the test cluster and of the Dockerfile
	@hack/test.sh --full

##@ While working

.PHONY: check
check: ## All that needs no cluster: format, lints, unit, property and snapshot tests, CRD, docs and chart checks
	@hack/check.sh

.PHONY: check-quick
check-quick: ## The part of `check` that compiles nothing
	@hack/check.sh --quick

.PHONY: check-chart
check-chart: ## Only the chart and kustomize checks
	@hack/check-chart.sh

.PHONY: e2e
e2e: ## Only the end-to-end scenarios (ONLY=name for one)
	@hack/test.sh --no-check $(if $(ONLY),--only $(ONLY))

.PHONY: bench
bench: ## Benchmarks on a cluster: prints a table, writes JSON
	@hack/test.sh --bench

.PHONY: bench-failover
bench-failover: ## How long nothing can be written in each failure, beside a plain StatefulSet (RUNS=n for each, default 30; NODE_RUNS=n for the loss of a node)
	@hack/test.sh --bench-failover

.PHONY: bench-split
bench-split: ## How long each shard cannot be written when it moves to another pair, beside all in one batch (SHARDS=512 of which half move, ROWS=500 in each); how fast shards are copied (SIZES=64x100M,512x500M); PART=cutover or copying for one of them
	@hack/test.sh --bench-split

.PHONY: chaos
chaos: ## Break things at random while clients write; prove that nothing acknowledged is lost (MINUTES=60 SEED=7)
	@hack/test.sh --chaos --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) $(CHAOS)

.PHONY: network-policies
network-policies: ## The NetworkPolicies, on a cluster with an engine that enforces them
	@hack/network-policies.sh

.PHONY: generate
generate: ## Write what is generated from the code: crds/ and its copies, docs/api.md, the table in docs/split.md, docs/fsm/
	@hack/generate.sh

.PHONY: fmt
fmt: ## Format the code
	@cargo fmt --all

.PHONY: image
image: ## The operator's image as a tar archive in target/ (IMAGE=name:tag)
	@hack/image.sh

.PHONY: advisories
advisories: ## Look the dependencies up in the advisory database (needs the network)
	@hack/tool.sh cargo-deny check advisories

.PHONY: install-tools
install-tools: ## Install the small tools that `check` uses (Debian packages and cargo-deny)
	@hack/install-tools.sh

.PHONY: clean
clean: ## Remove what was built in the work tree; the cache stays
	@cargo clean
	@rm -rf bench-results chaos-results e2e-results
