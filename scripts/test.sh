#!/bin/sh
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# test.sh: everything. Prints go test's own lines; the first failure decides the
# exit status, but all steps run.
set -u
cd "$(dirname "$0")/.."
export GOFLAGS=-trimpath
root=$PWD
status=0
step() {
	echo "== $1"
	shift
	"$@" && return
	# Some tests of upstream's and ours are about time, on machines that are not
	# ours: a failure counts when it repeats. Go runs only what failed again.
	echo "== AGAIN, the first try failed: $*"
	"$@" && return
	echo "== FAILED TWICE: $*"
	status=1
	return 1
}

# Upstream's test of this name in package rpc is known to fail on stock geth too
# under the race detector, so there it is left out, and run without.
RACE_SKIP='^TestClientNotificationStorm$'

PKGS="./rpc ./eth/filters ./node"
MORE="./graphql ./ethclient/..."

step "lay the patched tree" go run ./scripts/patchset fork || exit 1
step "build the hardened geth" make -s geth
step "build stock geth" make -s upstream

cd build/fork
step "ours and upstream's, guard off, -race" go test -race -skip "$RACE_SKIP" $PKGS
step "the storm, without -race" go test -run "$RACE_SKIP" ./rpc
step "flags, tracers, simulations" go test -run 'Guard|HookReached' ./cmd/utils ./cmd/geth ./eth/tracers/... ./internal/ethapi
step "upstream's, guard off" go test $MORE
step "upstream's, guard on" env RPCGUARD_STANDIN=on go test $PKGS $MORE
cd "$root"

step "each patch compiles by itself in order" go run ./scripts/patchset status --compile
# The newest target of each older base of geth; make bases takes all of them, and builds and tests.
step "older bases: strict apply, vet, compile" go run ./scripts/patchset bases --quick v1.13.15 v1.14.12 v1.15.11 v1.17.0 v1.17.5
# make mutants takes out the limits as well.
step "the hooks, taken out one at a time: a test must go red" go run ./scripts/mutants --quick --only hook/
step "root module: vet" go vet ./...
# The whole suite takes long and judges latency, so it is a command of its own
# (make attack); here the cases that count exactly show that the real binary is
# guarded. SLOWCLIENT_ONLY chooses others.
step "root module: the tool, the suite, the real binary" env RPCGUARD_GETH="$root/build/bin/geth" \
	RPCGUARD_STOCK="$root/build/bin/geth-stock" SLOWCLIENT_ONLY="${SLOWCLIENT_ONLY:-exact-refusals,exact-heavy,refusal-exact}" \
	go test -timeout 20m ./...
exit $status
