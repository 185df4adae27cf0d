# SPDX-License-Identifier: LGPL-3.0-or-later
#
# Every command a person types. -trimpath keeps Go's build cache valid wherever
# the repository and build/ lie.

export GOFLAGS := -trimpath
PATCHSET := go run ./scripts/patchset
VERSION  ?=

.DEFAULT_GOAL := help
.PHONY: help fork geth upstream run test test-quick refresh status clean

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

clean: ## remove build/
	rm -rf build
