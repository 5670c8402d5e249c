package relaypool_test

import (
	"context"
	"fmt"
	"net"

	"github.com/ringway/ringway/internal/relaypool"
	"github.com/ringway/ringway/selection"
)

// A gate keeps connections to relays. (For HTTP, see the package client.)
func Example() {
	relay, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer relay.Close()

	cfg := relaypool.DefaultConfig()
	cfg.Selector = "gate-1"
	dial := func(ctx context.Context, p relaypool.Peer, lost func(error)) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", p.Address)
	}
	relays, err := relaypool.New(cfg, dial, relaypool.Observer{})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = relays.Run(ctx) }()
	defer func() { cancel(); <-done }()

	// From now on: whenever the members change.
	if err := relays.Update([]relaypool.Peer{{ID: "relay-1", Address: relay.Addr().String()}}); err != nil {
		fmt.Println(err)
		return
	}
	lease, err := relays.Acquire(ctx, relaypool.Request{Key: "session-7"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lease.Release()
	fmt.Println("connected to", lease.Peer().ID) // … send the request over lease.Conn()
	lease.Report(selection.Result{Outcome: selection.Success})
	// Output: connected to relay-1
}
