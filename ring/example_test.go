package ring_test

import (
	"fmt"

	"github.com/ringway/ringway/ring"
)

// A session stays where it is when another relay leaves; only the sessions of the
// relay that left move.
func Example() {
	relays, err := ring.New(ring.DefaultVirtualNodes, "relay-1", "relay-2", "relay-3")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, session := range []string{"ann", "bob", "cleo"} {
		before, _ := relays.Lookup(session)
		after, _ := relays.Without("relay-2").Lookup(session)
		fmt.Println(session, before, "->", after)
	}
	// Output:
	// ann relay-2 -> relay-3
	// bob relay-3 -> relay-3
	// cleo relay-2 -> relay-1
}
