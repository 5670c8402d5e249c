package presence

import (
	"math"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/membership"
)

// lives is a server whose sessions are of lives of one worker.
type lives struct {
	*Server
	t *testing.T
}

func newServerOf(t *testing.T) lives {
	fleet := viewOf("r1", math.MaxInt)
	t.Cleanup(fleet.lines.Stop)
	fleet.snapshots.Store(membership.NewSnapshot(1, "r1", nil))
	return lives{&Server{fleet: fleet, gauge: prometheus.NewGauge(prometheus.GaugeOpts{}), held: map[*held]struct{}{}, byID: map[string][]*held{}, sources: map[netip.Prefix]int{}}, t}
}

// begin begins a session of a life.
func (l lives) begin(epoch uint64) (h *held, closed func() bool) {
	l.t.Helper()
	conn, _ := net.Pipe()
	l.t.Cleanup(func() { _ = conn.Close() })
	h = &held{conn: conn, of: listed{instance: instance{"w1", epoch}}}
	if why := l.enter(h); why != nil {
		l.t.Fatal(why)
	}
	return h, func() bool { return conn.SetDeadline(time.Time{}) != nil }
}

// publish reads a record on a session, and returns why it is refused.
func (l lives) publish(h *held, sequence uint64) (refused string) {
	if why := l.update(h, func(w *listed) { w.sequence = sequence }, []byte{1}); why != nil {
		return why.Code
	}
	return ""
}

// The relay reads the last frames of a killed worker when the next life of it already has a session.
func TestAnEarlierLifeOfAWorkerReplacesNoLaterOne(t *testing.T) {
	s := newServerOf(t)
	fleet := s.fleet
	first, _ := s.begin(1)
	second, secondClosed := s.begin(2)
	if code := s.publish(first, 1); code != "" || fleet.own.workers["w1"].epoch != 1 || secondClosed() {
		t.Errorf("before the record of the later life: refused %q, listed %+v, closed %t", code, fleet.own.workers["w1"], secondClosed())
	}
	if code := s.publish(second, 1); code != "" || fleet.own.workers["w1"].epoch != 2 {
		t.Errorf("the later life: refused %q, listed %+v", code, fleet.own.workers["w1"])
	}
	if code := s.publish(first, 2); code != refusedSuperseded || fleet.own.workers["w1"].epoch != 2 || secondClosed() {
		t.Errorf("after it: refused %q, listed %+v, closed %t", code, fleet.own.workers["w1"], secondClosed())
	}
	if s.leave(first, false); fleet.own.workers["w1"].epoch != 2 {
		t.Errorf("the end of the earlier life takes the later one off the list: %+v", fleet.own.workers["w1"])
	}
}

// The first record on a connection that broke may be read when the worker has dialled again.
func TestTheLateRecordOfAnEarlierSessionEndsNoLaterOne(t *testing.T) {
	s := newServerOf(t)
	first, _ := s.begin(1)
	second, secondClosed := s.begin(1)
	if code := s.publish(second, 1); code != "" || secondClosed() {
		t.Fatalf("the later session: refused %q, closed %t", code, secondClosed())
	}
	if code := s.publish(first, 1); code != "" || secondClosed() {
		t.Errorf("the record of the earlier one: refused %q, and the later is closed: %t", code, secondClosed())
	}
}

func TestASessionThatBeginsWhileTheServerClosesIsClosed(t *testing.T) {
	l := newServerOf(t)
	l.Close()
	if _, closed := l.begin(1); !closed() {
		t.Error("its connection is open, and Close has ended")
	}
}
