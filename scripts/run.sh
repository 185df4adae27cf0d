#!/bin/sh
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# run.sh: starts build/bin/geth as a dev chain on loopback and says where it
# listens. HTTP_PORT, WS_PORT and METRICS_PORT choose other ports; further
# arguments go to geth. Ctrl-C ends it and removes its temporary data directory.
set -eu
cd "$(dirname "$0")/.."

http=${HTTP_PORT:-8545}
ws=${WS_PORT:-8546}
metrics=${METRICS_PORT:-6060}
data=$(mktemp -d)
pid=
trap 'trap - EXIT INT TERM; [ -z "$pid" ] || { kill "$pid" 2>/dev/null || :; wait "$pid" 2>/dev/null || :; }; rm -rf "$data"' EXIT
trap 'exit 130' INT TERM

build/bin/geth --dev --dev.period 1 --datadir "$data" --ipcpath "$data/geth.ipc" \
	--nodiscover --maxpeers 0 --port 0 --authrpc.port 0 --verbosity 2 \
	--http --http.addr 127.0.0.1 --http.port "$http" --http.api eth,net,web3,txpool,debug \
	--ws --ws.addr 127.0.0.1 --ws.port "$ws" --ws.api eth,net,web3,txpool \
	--metrics --metrics.addr 127.0.0.1 --metrics.port "$metrics" "$@" &
pid=$!

call='{"jsonrpc":"2.0","id":1,"method":"eth_blockNumber","params":[]}'
tries=0
until build/bin/geth attach --exec eth.blockNumber "http://127.0.0.1:$http" >/dev/null 2>&1; do
	kill -0 "$pid" 2>/dev/null || { echo "run.sh: geth stopped before it answered (is port $http, $ws or $metrics taken? set HTTP_PORT, WS_PORT, METRICS_PORT)" >&2; exit 1; }
	tries=$((tries + 1))
	[ "$tries" -lt 300 ] || { echo "run.sh: geth did not answer within 60 s" >&2; exit 1; }
	sleep 0.2
done

cat <<END

hardened geth, dev chain, one block a second
  HTTP     http://127.0.0.1:$http
  WS       ws://127.0.0.1:$ws
  IPC      $data/geth.ipc
  metrics  http://127.0.0.1:$metrics/debug/metrics/prometheus (rpc_admission_*, rpc_body_*, ...)

limits in force (admin_getConcurrencyLimit over IPC):
  $(build/bin/geth attach --exec 'JSON.stringify(web3.currentProvider.send({jsonrpc:"2.0",id:1,method:"admin_getConcurrencyLimit",params:[]}).result)' "$data/geth.ipc" | sed 's/^"//; s/"$//; s/\\"/"/g')

try
  curl -H 'content-type: application/json' -d '$call' http://127.0.0.1:$http

Ctrl-C stops it.
END
wait "$pid"
