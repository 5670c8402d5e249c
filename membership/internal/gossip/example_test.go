package gossip_test

import (
	"fmt"

	"github.com/ringway/ringway/membership/internal/gossip"
)

// What memberlist announces about an instance, as another member reads it.
func Example() {
	name := gossip.InstanceName("worker-1", 1_800_000_000_000)
	meta, err := gossip.Metadata{Format: gossip.MetadataFormat, Cluster: "prod", Environment: "eu", ID: "worker-1", Epoch: 1_800_000_000_000, Role: "worker"}.Encode(0)
	if err != nil {
		fmt.Println(err)
	}
	message := gossip.Encode(gossip.KindAlive, &gossip.Alive{Node: name, Addr: []byte{10, 0, 0, 1}, Port: 7400, Meta: meta})

	var a gossip.Alive
	if err := gossip.Decode(message[1:], &a); err != nil {
		fmt.Println(err)
	}
	m, err := gossip.DecodeMetadata(a.Meta)
	fmt.Println(a.Node, gossip.AddrPort(a.Addr, a.Port), m.Role, err)
	// Output:
	// worker-1.1800000000000 10.0.0.1:7400 worker <nil>
}
