package routing

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"
)

// PlanVersion returns a hash of the plan, 0 without a plan. Relays with the same plan of a
// service have the same version. It is computed at the first call, because only records of
// requests need it.
func (r *Route) PlanVersion() uint64 {
	if r == nil || r.Plan == nil {
		return 0
	}
	if v := r.version.Load(); v != 0 {
		return v
	}
	v := max(r.hashPlan(), 1)
	r.version.Store(v) // a concurrent call computes the same
	return v
}

// hashPlan hashes what the connections of all relays follow from.
func (r *Route) hashPlan() uint64 {
	h := xxhash.New()
	text := func(s string) {
		_, _ = h.WriteString(s) // a hash returns no error
		_, _ = h.Write([]byte{0})
	}
	number := func(n int) {
		var b [8]byte
		binary.BigEndian.PutUint64(b[:], uint64(n))
		_, _ = h.Write(b[:])
	}
	text(r.Plan.Service())
	text(string(r.Plan.Strategy()))
	minimums := r.Plan.Minimums()
	number(minimums.PeersPerWorker)
	number(minimums.PeersPerRelay)
	for _, worker := range r.Plan.Workers() {
		text(worker)
	}
	for i, relay := range r.Plan.Affine() {
		text(relay)
		ranges, _ := r.Plan.Ranges(i) // i is an index of the plan
		for _, each := range ranges {
			number(each.Start())
			number(each.Len())
		}
	}
	return h.Sum64()
}
