#!/bin/sh
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# upstream.sh [VERSION]: builds stock geth from the module cache, unchanged. The
# pinned release becomes build/bin/geth-stock, another one build/bin/geth-VERSION.
set -eu
cd "$(dirname "$0")/.."

pinned=$(sed -n 's|^.*github.com/ethereum/go-ethereum \(v[0-9.]*\).*$|\1|p' go.mod)
version=${1:-$pinned}
case $version in
v[0-9]*.[0-9]*.[0-9]*) ;;
*) echo "upstream.sh: \"$version\" is not a release such as $pinned" >&2; exit 2 ;;
esac
out=build/bin/geth-$version
[ "$version" = "$pinned" ] && out=build/bin/geth-stock

ldflags=
case $version in
v1.13.*|v1.14.0) ldflags=-checklinkname=0 ;; # their memory hacks predate the linker's check
esac

dir=$(go mod download -json "github.com/ethereum/go-ethereum@$version" | sed -n 's|^.*"Dir": "\(.*\)",\{0,1\}$|\1|p')
[ -n "$dir" ] || { echo "upstream.sh: the module proxy has no go-ethereum $version" >&2; exit 1; }
mkdir -p build/bin
here=$PWD
cd "$dir"
GOFLAGS="-trimpath -mod=readonly" go build -ldflags="$ldflags" -o "$here/$out" ./cmd/geth
echo "$out: stock geth $version"
