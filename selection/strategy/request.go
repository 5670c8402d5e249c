package strategy

import (
	"slices"

	"github.com/ringway/ringway/selection"
)

// Request is what a pick is for. The zero value is a request without a key that
// excludes nothing.
type Request struct {
	// Key is what stable and stable-sha256 hold together: everything with one key
	// goes to one endpoint. Use the identity alone, a session or a topic without
	// the kind of message, or two kinds of one topic go two ways. Empty: none.
	Key string
	// Now is the time, by the clock of Signals.Seen. Only slots reads it.
	Now selection.Instant
	// Excluded are sets of endpoint IDs that must not be picked: what this request
	// has tried, what is draining. All of them count.
	Excluded [][]string
	// Full tells which endpoints cannot take one more request. They are passed over as
	// if they were excluded. It must not block. Default nil: all can.
	Full interface{ Full(*Endpoint) bool }
}

func (r *Request) excludes(e *Endpoint) bool {
	for _, set := range r.Excluded {
		if slices.Contains(set, e.ID) {
			return true
		}
	}
	return r.Full != nil && r.Full.Full(e)
}
