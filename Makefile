# SPDX-License-Identifier: LGPL-3.0-or-later
#
# Every command a person types. -trimpath keeps Go's build cache valid wherever
# the repository and build/ lie.

export GOFLAGS := -trimpath
PATCHSET := go run ./scripts/patchset
VERSION  ?=
# What ATTACKS=1 stands for: cases that judge by bytes and counts.
FEW := headers-promise-bodies,filter-flood,exact-refusals

.DEFAULT_GOAL := help
.PHONY: bases help fork geth upstream run test test-quick attack regress mutants refresh status bench benchstat clean

help: ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

fork: ## lay the pinned release, patched, under build/fork (overlay files linked)
	@$(PATCHSET) fork

refresh: ## write hooks edited in build/fork back to patches/
	@$(PATCHSET) refresh

status: ## count patches, hunks, touched upstream lines and own files
	@$(PATCHSET) status

geth: fork ## build the hardened geth: build/bin/geth
	@mkdir -p build/bin
	cd build/fork && go build -o ../bin/geth ./cmd/geth

upstream: ## build stock geth: build/bin/geth-stock (VERSION=vX: another release, build/bin/geth-vX)
	@scripts/upstream.sh $(VERSION)

run: geth ## start the hardened geth as a dev chain on loopback and print its endpoints
	@scripts/run.sh

test: ## run everything: root module, patched tree, upstream's tests with the guard off and on, the real binary
	@scripts/test.sh

test-quick: fork ## run what is ours in the patched tree, without -race
	cd build/fork && go test ./rpc ./node ./eth/filters ./cmd/utils -run 'Guard|Governor|HookReached'

attack: ## judge build/bin/geth by every attack (ARGS=--quick, ARGS="--only NAME", ARGS="--quick --repeat 20", ...)
	go run ./tests/slowclient --binary build/bin/geth $(if $(wildcard build/bin/geth-stock),--stock build/bin/geth-stock) $(ARGS)

regress: ## judge stock releases and ours: VERSIONS="v1.16.9 v1.17.10" [ARGS="--quick --resume"]
	@scripts/regress.sh "$(VERSIONS)" $(ARGS)

mutants: ## take hooks and limits out one at a time; fails if no test notices (ARGS="--only NAME", --quick, --no-suite)
	go run ./scripts/mutants $(ARGS)

bench: geth upstream ## measure stock and hardened geth side by side (BENCH="--run REGEX --rounds N --markdown ...")
	go run ./tests/bench $(BENCH)

benchstat: ## compare the components' benchmarks with those of a revision (BASE=rev)
	@scripts/benchstat.sh $(BASE)

bases: ## apply to every release of patches/targets, build, test, print a table (FORKS="DIR ...", TARGETS="vX ..." for these only, ATTACKS=CASE,..., 1 or quick, ARGS=--resume to go on)
	@$(PATCHSET) bases --test $(if $(ATTACKS),--attacks $(patsubst 1,$(FEW),$(ATTACKS))) $(ARGS) $(if $(TARGETS),$(TARGETS),--targets) $(FORKS)

clean: ## remove build/
	rm -rf build
