package presence

import (
	"math"
	"net"
	"net/netip"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/membership"
)

// The relay reads the last frames of a killed worker when the next life of it already has a session.
func TestAnEarlierLifeOfAWorkerReplacesNoLaterOne(t *testing.T) {
	fleet := &Fleet{cfg: membership.Config{ID: "r1", MaxMembers: math.MaxInt}, own: log{list: *newList()}, proofs: map[string]proof{}, left: map[instance]struct{}{}, wake: make(chan struct{}, 1), choices: newChoices()}
	fleet.snapshots.Store(membership.NewSnapshot(1, "r1", nil))
	s := &Server{fleet: fleet, gauge: prometheus.NewGauge(prometheus.GaugeOpts{}), held: map[*held]struct{}{}, byID: map[string][]*held{}, sources: map[netip.Prefix]int{}}
	begin := func(epoch uint64) (h *held, closed func() bool) {
		conn, far := net.Pipe()
		t.Cleanup(func() { _ = conn.Close() })
		h = &held{conn: conn, of: listed{instance: instance{"w1", epoch}}}
		if why := s.enter(h); why != nil {
			t.Fatal(why)
		}
		ended := make(chan struct{})
		go func() {
			_, _ = far.Read(make([]byte, 1))
			close(ended)
		}()
		return h, func() bool {
			select {
			case <-ended:
				return true
			default:
				return false
			}
		}
	}
	publish := func(h *held, sequence uint64) (refused string) {
		if why := s.update(h, func(w *listed) { w.sequence = sequence }, []byte{1}); why != nil {
			return why.Code
		}
		return ""
	}
	first, _ := begin(1)
	second, secondClosed := begin(2)
	if code := publish(first, 1); code != "" || fleet.own.workers["w1"].epoch != 1 || secondClosed() {
		t.Errorf("before the record of the later life: refused %q, listed %+v, closed %t", code, fleet.own.workers["w1"], secondClosed())
	}
	if code := publish(second, 1); code != "" || fleet.own.workers["w1"].epoch != 2 {
		t.Errorf("the later life: refused %q, listed %+v", code, fleet.own.workers["w1"])
	}
	if code := publish(first, 2); code != refusedSuperseded || fleet.own.workers["w1"].epoch != 2 || secondClosed() {
		t.Errorf("after it: refused %q, listed %+v, closed %t", code, fleet.own.workers["w1"], secondClosed())
	}
	if s.leave(first, false); fleet.own.workers["w1"].epoch != 2 {
		t.Errorf("the end of the earlier life takes the later one off the list: %+v", fleet.own.workers["w1"])
	}
}
