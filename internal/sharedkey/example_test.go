package sharedkey_test

import (
	"context"
	"fmt"

	"github.com/ringway/ringway/internal/publish"
	"github.com/ringway/ringway/internal/sharedkey"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

// members stands for a membership.Node.
type members struct {
	publish.Value[membership.Snapshot]
}

func (m *members) Snapshot() *membership.Snapshot { return m.Load() }

// Two relays start together; the older one makes the key and the other asks for
// it.
func Example() {
	var cluster members
	cluster.Store(membership.NewSnapshot(1, "relay-1", []membership.Member{
		{ID: "relay-1", Epoch: 1, Role: identity.RoleRelay, ForwardAddr: "10.0.0.1:7420"},
		{ID: "relay-2", Epoch: 2, Role: identity.RoleRelay, ForwardAddr: "10.0.0.2:7420"},
	}))
	keepers := map[string]*sharedkey.Keeper{}
	for epoch, id := range []string{"relay-1", "relay-2"} {
		cfg := sharedkey.DefaultConfig()
		cfg.ID, cfg.Epoch, cfg.Role, cfg.Members = id, uint64(epoch+1), identity.RoleRelay, &cluster
		cfg.Insecure = true // nothing travels here
		cfg.Fetch = func(_ context.Context, m membership.Member) (sharedkey.Answer, error) {
			return keepers[m.ID].Answer()
		}
		keeper, err := sharedkey.New(cfg)
		if err != nil {
			fmt.Println(err)
			return
		}
		keepers[id] = keeper
	}
	one, two := keepers["relay-1"], keepers["relay-2"]
	fmt.Println(two.Ready())

	ctx, stop := context.WithCancel(context.Background())
	stopped := make(chan error)
	for _, keeper := range keepers {
		go func() { stopped <- keeper.Run(ctx) }()
	}
	<-two.Watch(ctx)
	cookie := []byte("session=42")
	fmt.Println(two.Verify(cookie, one.Sign(cookie)), two.Verify([]byte("session=43"), one.Sign(cookie)))

	stop()
	fmt.Println(<-stopped, <-stopped)
	// Output:
	// Session key not resolved yet: it is not being looked for yet
	// true false
	// <nil> <nil>
}
