package advertise

import "errors"

// EventKind says what an [Event] is about.
type EventKind string

// The kinds of events.
const (
	// EventAdvertised: for the first time, what this process offers has been
	// handed to the gossip of a cluster with another member in it.
	EventAdvertised EventKind = "advertised"
	// EventReadvertised: the same after a change (Set, Drain, Withdraw), or
	// because other members are there again after this one had been alone.
	EventReadvertised EventKind = "readvertised"
	// EventError: what this process offers is heard by nobody at the moment.
	EventError EventKind = "error"
)

// Event is a step in an Advertiser's life.
type Event struct {
	Kind EventKind
	// WillRetry says, of an error, that the Advertiser goes on by itself. When it
	// is false, Run returns with Cause.
	WillRetry bool
	// Cause is why, of an error. It is, or wraps, a *membership.RefusalError when
	// a seed said no, and [ErrAlone] when every other member is gone.
	Cause error
}

// ErrAlone is the cause of an error event when the other members have vanished.
var ErrAlone = errors.New("advertise: no other member is left in sight: seeds and lost members are looked for all the time")
