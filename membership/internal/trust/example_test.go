package trust_test

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/membership/identity"
	"github.com/ringway/ringway/membership/internal/gossip"
	"github.com/ringway/ringway/membership/internal/trust"
)

// A packet of memberlist from one member to another, which has exchanged hellos with its sender.
func Example() {
	authority, err := identity.NewAuthority(identity.AuthorityConfig{Validity: 24 * time.Hour})
	if err != nil {
		fmt.Println(err)
		return
	}
	delivered := func(packet []byte, from string) {
		fmt.Printf("memberlist receives %q from %s\n", packet[len("??test/ci"):], from)
	}
	dropped := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "dropped"}, []string{"reason"})
	member := func(id, addr string) (*trust.Guard, *identity.Source) {
		source, err := authority.Source(identity.Claims{Cluster: "test", Environment: "ci", Role: identity.RoleWorker, Node: id}, time.Hour)
		if err != nil {
			fmt.Println(err)
		}
		return trust.New(context.Background(), trust.Config{
			Identity: source, Label: "test/ci", Self: gossip.InstanceName(id, 1), Epoch: 1, Addr: addr, MaxMembers: 10,
			Deliver: delivered, Dropped: dropped, Clock: time.Now, Logger: slog.New(slog.DiscardHandler),
		}), source
	}
	a, source := member("a", "10.0.0.1:7400")
	b, _ := member("b", "10.0.0.2:7400")
	if err := b.Certified(source.Chain(), 1, a.NextTick()); err != nil {
		fmt.Println(err)
	}
	packet, err := a.Wrap(append(gossip.LabelHeader("test/ci"), gossip.KindUser, 'h', 'i'), "10.0.0.2:7400")
	if err != nil {
		fmt.Println(err)
	}
	b.Receive(packet, "10.0.0.1:7400")
	b.Receive(packet, "10.6.6.6:666") // a recording of it
	// Output:
	// memberlist receives "\bhi" from 10.0.0.1:7400
}
