package peering

import "time"

// State is how far the connection to one far end has come.
type State int

// The states of a link.
const (
	None     State = iota // neither wanted nor open
	Waiting               // wanted, not tried yet or to be tried again
	Opening               // being opened
	Open                  // open and in the range of a service
	Spare                 // open, in no range, within slack of one
	Draining              // open, needed by nobody, about to close
)

func (s State) String() string {
	return [...]string{"none", "waiting", "opening", "open", "spare", "draining"}[s]
}

// link is one far end that is wanted or open.
type link struct {
	opening, open bool
	failures      int       // openings in a row that failed or did not last
	openedAt      time.Time // when an open one was opened
	retryAt       time.Time // when a failed one is tried again
	closesAt      time.Time // when a draining one closes; zero while it is needed
}

// need counts the services that ask for a far end.
type need struct {
	in   int // it is in their range: open it
	near int // it is within slack of their range: keep it
}
