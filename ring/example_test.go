package ring_test

import (
	"fmt"

	"github.com/ringway/ringway/ring"
)

// A session stays at its relay when another one leaves; only the sessions of the relay that
// left move.
func Example() {
	relays := []ring.Node{{ID: "relay-1", Weight: 1}, {ID: "relay-2", Weight: 1}, {ID: "relay-3", Weight: 1}}
	all, err := ring.NewRendezvous(relays)
	if err != nil {
		fmt.Println(err)
		return
	}
	without2, err := ring.NewRendezvous([]ring.Node{relays[0], relays[2]})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, session := range []string{"ann", "bob", "cleo"} {
		fmt.Println(session, all.Top(session, 1), "->", without2.Top(session, 1))
	}
	// Output:
	// ann [relay-1] -> [relay-1]
	// bob [relay-1] -> [relay-1]
	// cleo [relay-2] -> [relay-1]
}
