// The require line of go-ethereum below is the pinned upstream release, the
// one place that names it. The overlay directories hold files of upstream's own
// packages: they build inside the patched tree (make fork), not here.
module rpcguard

go 1.25.0

ignore (
	./build
	./cmd
	./eth
	./ethclient
	./graphql
	./internal
	./node
	./patches
	./rpc
)

require (
	github.com/ethereum/go-ethereum v1.17.10
	github.com/gorilla/websocket v1.4.2
	github.com/stretchr/testify v1.12.1
	golang.org/x/net v0.58.0
)

require (
	github.com/ProjectZKM/Ziren/crates/go-runtime/zkvm_runtime v0.0.0-20251001021608-1fe7b43fc4d6 // indirect
	github.com/bits-and-blooms/bitset v1.20.0 // indirect
	github.com/consensys/gnark-crypto v0.18.1 // indirect
	github.com/crate-crypto/go-eth-kzg v1.5.0 // indirect
	github.com/decred/dcrd/dcrec/secp256k1/v4 v4.0.1 // indirect
	github.com/ethereum/c-kzg-4844/v2 v2.1.8 // indirect
	github.com/holiman/uint256 v1.3.2 // indirect
	github.com/supranational/blst v0.3.16 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/sync v0.22.0 // indirect
	golang.org/x/sys v0.47.0 // indirect
	golang.org/x/text v0.41.0 // indirect
)
