#!/bin/sh
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# regress.sh "VERSION ..." [slowclient's flags]: judges stock releases and ours,
# one table, releases as columns, ours last. Each release is built once, from the
# module cache, and kept as build/bin/geth-VERSION. The table goes to standard output
# and to build/regress.md, the records to build/regress.json as they come: with
# --resume among the flags a run that was cut off goes on where it was. It needs
# nobody beside it: a release that cannot be built, does not start, ends by itself or
# hangs costs its own cells and no more.
#
# Exit status: 0 if ours held everywhere, 1 if not, 2 if ours could not be judged.
set -eu
cd "$(dirname "$0")/.."
export GOFLAGS=-trimpath

[ $# -ge 1 ] || { echo 'usage: regress.sh "VERSION ..." [slowclient flags]' >&2; exit 2; }
versions=$1
shift
pinned=$(sed -n 's|^.*github.com/ethereum/go-ethereum \(v[0-9.]*\).*$|\1|p' go.mod)
mkdir -p build/bin
binaries=
for v in $versions; do
	bin=build/bin/geth-$v
	[ "$v" = "$pinned" ] && bin=build/bin/geth-stock
	if [ ! -x "$bin" ] && ! scripts/upstream.sh "$v" >&2; then
		echo "regress.sh: $v is left out: it could not be built" >&2
		continue
	fi
	binaries="$binaries --binary $bin"
done
[ -x build/bin/geth ] || make -s geth >&2
binaries="$binaries --binary build/bin/geth"

go build -o build/bin/slowclient ./tests/slowclient
# A broken stock release is the expected outcome, and so may be one that does not
# start: what counts is how ours did.
status=0
# shellcheck disable=SC2086
build/bin/slowclient $binaries --markdown --records build/regress.json "$@" >build/regress.md.new || status=$?
[ -s build/regress.md.new ] || { echo "regress.sh: cut off; go on with --resume" >&2; exit 2; }
mv build/regress.md.new build/regress.md
cat build/regress.md
ours() { grep '"binary":"ours"' build/regress.json | grep -q "$1"; }
ours '"verdict":' || exit 2
ours '"reason":"no node to judge' && exit 2
ours '"verdict":"broken"' && exit 1
exit 0
