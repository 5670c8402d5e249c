package selection

// InFlight counts the requests that a balancer has on their way to one endpoint. The
// zero value is that of none. It holds as long as the endpoint stays in the range.
type InFlight struct{ state *state }

// InFlight returns the count of the named endpoint, none where it is not in the range.
func (b *Balancer) InFlight(id string) InFlight {
	if e := b.table.Load().byID[id]; e != nil {
		return InFlight{e.state}
	}
	return InFlight{}
}

// Count is how many there are now. No lock, no allocation.
func (f InFlight) Count() int {
	if f.state == nil {
		return 0
	}
	return int(f.state.outstanding())
}
