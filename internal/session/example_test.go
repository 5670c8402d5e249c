package session_test

import (
	"fmt"

	"github.com/ringway/ringway/internal/session"
)

// A relay sends a row; the worker reads it.
func Example() {
	row := session.Row{Version: 1, Self: "relay-1", Epoch: 1, Size: 1, Relays: []session.RowRelay{
		{ID: "relay-2", Epoch: 1, Address: "10.0.0.2:7420"}, {ID: "relay-3", Epoch: 1, Address: "10.0.0.3:7420"},
	}}
	read, err := session.DecodeRow(row.Encode())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("have a session with", read.Relays[0].ID, "and, if it cannot be reached, with", read.Relays[1].ID)
	// Output: have a session with relay-2 and, if it cannot be reached, with relay-3
}
