#!/bin/sh
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# benchstat.sh BASE [PATTERN]: runs the components' benchmarks (gate, budgets, notifier,
# governor and what else matches) at revision BASE and as the work tree is, in turn, and
# compares them. COUNT runs of each (default 6).
set -eu
cd "$(dirname "$0")/.."

base=${1:?usage: benchstat.sh BASE [PATTERN]}
pattern=${2:-$(sed -n 's/^func \(Benchmark[A-Za-z0-9]*\).*/^\1$/p' rpc/*_test.go | paste -sd'|')}
count=${COUNT:-6}
rev=$(git rev-parse --verify --short "$base^{commit}")
tree=build/benchstat/$rev
mkdir -p build/benchstat
[ -d "$tree" ] || git worktree add --detach "$tree" "$rev"
trap 'git worktree remove --force "$tree"' EXIT

lay() { (cd "$1" && go run ./scripts/patchset fork >/dev/null && cd build/fork && go test -c -o ../rpc.bench ./rpc); }
lay .
lay "$tree"
old=build/benchstat/$rev.txt new=build/benchstat/worktree.txt
: >"$old" && : >"$new"
i=0
while [ $i -lt "$count" ]; do # in turn, so that the machine's moods hit both
	(cd "$tree/build/fork/rpc" && ../../rpc.bench -test.run '^$' -test.bench "$pattern") >>"$old"
	(cd build/fork/rpc && ../../rpc.bench -test.run '^$' -test.bench "$pattern") >>"$new"
	i=$((i + 1))
done
go run golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da "$rev=$old" "worktree=$new"
