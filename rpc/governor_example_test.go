// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"

	"github.com/ethereum/go-ethereum/common/mclock"
	"github.com/ethereum/go-ethereum/rpc"
)

type priceService struct{}

func (priceService) GasPrice() string { return "0x3b9aca00" }

// One budget for all the clients of a process: at most 50 calls a second, of which
// background work leaves 80 percent of the bucket and of the queue to the calls that
// somebody waits for.
func ExampleWithGovernor() {
	server := rpc.NewServer()
	server.RegisterName("eth", priceService{})
	endpoint := httptest.NewServer(server)
	defer endpoint.Close()

	governor, err := rpc.NewGovernor(rpc.GovernorConfig{
		Rate:              50,
		Burst:             10,
		ForegroundReserve: 80,
		MaxQueue:          0,                     // do not wait, to show a refusal
		Clock:             new(mclock.Simulated), // stands still, for the example's sake
	})
	if err != nil {
		panic(err)
	}
	defer governor.Close()
	client, err := rpc.DialOptions(context.Background(), endpoint.URL,
		rpc.WithGovernor(governor),
		rpc.WithRetries(3), // reads only; each attempt pays
	)
	if err != nil {
		panic(err)
	}
	defer client.Close()

	// A prefetcher says that it is one. It gets 2 of the 10 tokens.
	background := rpc.ContextWithBackground(context.Background())
	for i := 0; i < 3; i++ {
		err := client.CallContext(background, nil, "eth_gasPrice")
		var refusal *rpc.GovernorError
		switch {
		case errors.As(err, &refusal):
			fmt.Println(refusal.Class, "refused, local capacity:", errors.Is(err, rpc.ErrLocalCapacity))
		case err != nil:
			fmt.Println("the endpoint failed:", err)
		default:
			fmt.Println("background call sent")
		}
	}
	// A user's call finds the reserve.
	var price string
	if err := client.Call(&price, "eth_gasPrice"); err != nil {
		fmt.Println(err)
	}
	fmt.Println("gas price", price)

	stats := governor.Stats()
	fmt.Println("foreground", stats.Foreground.Admitted, "background", stats.Background.Admitted, "refused", stats.Background.Refused)
	// Output:
	// background call sent
	// background call sent
	// background refused, local capacity: true
	// gas price 0x3b9aca00
	// foreground 1 background 2 refused 1
}
