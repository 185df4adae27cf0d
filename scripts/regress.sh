#!/bin/sh
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# regress.sh "VERSION ..." [slowclient's flags]: judges stock releases and ours,
# one table, releases as columns, ours last. Each release is built once, from the
# module cache. The table goes to standard output and to build/regress.md, the
# records to build/regress.json.
set -eu
cd "$(dirname "$0")/.."
export GOFLAGS=-trimpath

versions=${1:?usage: regress.sh "VERSION ..." [slowclient flags]}
shift
pinned=$(sed -n 's|^.*github.com/ethereum/go-ethereum \(v[0-9.]*\).*$|\1|p' go.mod)
binaries=
for v in $versions; do
	bin=build/bin/geth-$v
	[ "$v" = "$pinned" ] && bin=build/bin/geth-stock
	[ -x "$bin" ] || scripts/upstream.sh "$v" >&2
	binaries="$binaries --binary $bin"
done
[ -x build/bin/geth ] || make -s geth >&2
binaries="$binaries --binary build/bin/geth"

go build -o build/bin/slowclient ./tests/slowclient
# A broken stock release is the expected outcome: only a run that could not be
# made, or ours broken, is a failure.
status=0
# shellcheck disable=SC2086
build/bin/slowclient $binaries --markdown --records build/regress.json "$@" >build/regress.md || status=$?
cat build/regress.md
[ "$status" -le 1 ] || exit "$status"
! grep -q '"verdict":"broken".*"binary":"ours"' build/regress.json
