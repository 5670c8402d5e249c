package check

import "time"

// Fleet is everything that is judged.
type Fleet struct {
	// Now is this relay's time.
	Now time.Time
	// Self are the facts of the relay that checks.
	Self Facts
	// Peers are the other relays and gates of its view, by id, and those that have
	// vanished from it.
	Peers []Peer
	// Services are those that this relay knows, by name.
	Services []Service
	// Refused is what workers offer and this relay does not use.
	Refused []Refusal
	// Pings are of the members that were asked over UDP.
	Pings []Ping
	// Keys are the gossip keys of the workers that were asked.
	Keys []Keys
	// Addresses are the gossip addresses of all members, by id.
	Addresses map[string]string
	// Duplicates are the ids under which two processes run.
	Duplicates []Duplicate
	// FailedWorkers vanished without leaving in the last minutes.
	FailedWorkers []Gone
}

// Peer is another relay or gate and what it answered.
type Peer struct {
	ID   string
	Addr string // of its peer listener
	// Gone says when it vanished from the view, without leaving; zero: it is there.
	Gone time.Time
	// Facts are nil when it did not answer; Err says why then.
	Facts *Facts
	Err   error
	// Asked is when the question was sent, by this relay's clock; Took is how long
	// the answer needed.
	Asked time.Time
	Took  time.Duration
}

// Duplicate is an id under which two processes run, by their gossip addresses. The
// cluster follows the one at Addr and leaves the other out.
type Duplicate struct{ ID, Addr, Other string }

// Gone is a member that vanished.
type Gone struct {
	ID string
	At time.Time
}

// Service is a service as this relay plans it.
type Service struct {
	Name string
	// Planned is false while there is no plan, because no endpoint takes requests.
	Planned bool
	// Relays are those that serve it and are there.
	Relays int
	// Wanted is how many relays each worker should have, were there enough.
	Wanted int
	// RelaysPerWorker counts the relays that the plan connects to each worker; those
	// that have vanished are not counted.
	RelaysPerWorker map[string]int
	// Selections and RelayVotes are what its workers advertise for all of it, the
	// value that is used first.
	Selections, RelayVotes []Vote
}

// Ping is one member, asked over UDP.
type Ping struct {
	ID, Addr string
	Role     string
	Err      error
}

// Keys are the fingerprints of the gossip keys of one member, the one in use first.
type Keys struct {
	ID           string
	Fingerprints []string
	Err          string
}

// all are the relays whose facts are known: this one, and who answered and is there.
func (f *Fleet) all() []*Facts {
	out := []*Facts{&f.Self}
	for i := range f.Peers {
		if p := &f.Peers[i]; p.Facts != nil && p.Gone.IsZero() {
			out = append(out, p.Facts)
		}
	}
	return out
}
