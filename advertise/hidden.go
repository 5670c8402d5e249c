package advertise

// target is one endpoint of one life of a worker.
type target struct {
	instance
	service, address string
}

// hidden is the set of endpoints that this node found dead although their worker
// is alive, each at the sequence of the record that offered it: a newer record
// is a new offer, which the mark does not cover. It is a plain value without lock
// or clock; the catalogue's loop owns it, so that hiding an endpoint, and an
// endpoint going by itself, take turns. The zero value is empty.
type hidden map[target]uint64

// hide marks the offer of that sequence and reports whether this call did it.
func (h *hidden) hide(t target, sequence uint64) bool {
	if h.has(t, sequence) {
		return false
	}
	if *h == nil {
		*h = hidden{}
	}
	(*h)[t] = sequence
	return true
}

// has reports whether the offer of that sequence is hidden.
func (h hidden) has(t target, sequence uint64) bool {
	at, marked := h[t]
	return marked && at == sequence
}

// reveal takes the mark away and reports whether there was one.
func (h hidden) reveal(t target) bool {
	_, marked := h[t]
	delete(h, t)
	return marked
}
