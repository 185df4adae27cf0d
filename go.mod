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
	./node
	./patches
	./rpc
)

require github.com/ethereum/go-ethereum v1.17.10
