package memnet_test

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/ringway/ringway/internal/memnet"
	"github.com/ringway/ringway/membership"
)

// A host takes the place of the operating system's network.
var _ membership.Network = (*memnet.Host)(nil)

// A dial over a cut path waits until the path heals.
func Example() {
	network := memnet.New(memnet.Config{Seed: 1, Latency: time.Millisecond})
	defer network.Close()
	relay, worker := network.Host("10.0.0.1"), network.Host("10.0.0.2")

	listener, err := relay.Listen("10.0.0.1:7400")
	if err != nil {
		fmt.Println(err)
		return
	}
	network.Partition([]netip.Addr{relay.IP()}, []netip.Addr{worker.IP()})
	time.AfterFunc(20*time.Millisecond, network.Heal)

	conn, err := worker.Dial(context.Background(), "10.0.0.1:7400")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Fprint(conn, "hello")
	_ = conn.Close()
	accepted, err := listener.Accept()
	if err != nil {
		fmt.Println(err)
		return
	}
	text, _ := io.ReadAll(accepted)
	fmt.Println(string(text), network.Counters().DialsOK)
	// Output: hello 1
}
