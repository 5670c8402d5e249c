package selection

// Endpoint is one member of a relay's range, as the caller describes it.
type Endpoint struct {
	// ID is the identity: statistics are carried over table changes by it.
	ID string
	// Weight is the share of this relay's traffic, relative to the other
	// endpoints; finite and >= 0. An endpoint of weight 0 is connected but
	// drawn only when nothing else is left.
	Weight float64
	// Value is opaque to selection: the relay keeps its connection pool here.
	Value any
}

// table is the immutable picture that picks read. A new one is published when
// the range changes and when an endpoint is evicted, half-opened or readmitted.
type table struct {
	entries []entry // the whole range, in the caller's order
	drawn   []drawn // active and half-open endpoints of weight > 0
	alias   aliasTable
	// halfOpen says that drawn holds a half-open endpoint, so that a pick must
	// look at phases. It is false nearly always.
	halfOpen bool
	// full says that no further endpoint may be evicted. It spares a failing
	// range the mutex on every failure.
	full bool
}

type entry struct {
	Endpoint
	state  *state
	member *member
}

// drawn repeats the state pointer to save a cache line per draw.
type drawn struct {
	state *state
	entry *entry
}

func newTable(entries []entry) *table {
	t := &table{entries: entries}
	var weights []float64
	for i := range entries {
		e := &entries[i]
		if e.Weight <= 0 || phase(e.state.phase.Load()) == evicted {
			continue
		}
		if phase(e.state.phase.Load()) == halfOpen {
			t.halfOpen = true
		}
		t.drawn = append(t.drawn, drawn{e.state, e})
		weights = append(weights, e.Weight)
	}
	drawable, out := countOut(entries)
	t.full = out+1 > maxOut(drawable)
	t.alias = newAliasTable(weights)
	return t
}
