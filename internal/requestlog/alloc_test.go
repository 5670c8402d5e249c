//go:build !race

package requestlog

import (
	"log/slog"
	"os"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func TestTheSlowestRequestsOfAWindowAllocateNothingOnceTheirBuffersAreThere(t *testing.T) {
	l, err := New(Config{File: os.DevNull, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	r := full()
	const most = 10
	one := func() {
		r.FirstByte++
		if !l.Slowest(r.Slow()) {
			t.Error("a request is slower than all before, and is not among the slowest")
		}
		l.AddSlowest(&r, most)
	}
	for range 2 * most {
		one()
	}
	l.endWindow()
	for range most {
		one()
	}
	if n := testing.AllocsPerRun(2000, one); n != 0 {
		t.Errorf("%v allocations for a slow request", n)
	}
	if l.Slowest(0) {
		t.Error("a fast request is among the slowest")
	}
}

func TestARecordThatIsOnlyCountedAllocatesNothing(t *testing.T) {
	l, err := New(Config{Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	defer l.Count(func(*Record) { n++ }).Close()
	r := full()
	if allocations := testing.AllocsPerRun(2000, func() { l.Add(&r, false) }); allocations != 0 || n == 0 {
		t.Errorf("%v allocations, %d records", allocations, n)
	}
}

func TestARecordAllocatesNothing(t *testing.T) {
	l, err := New(Config{File: os.DevNull, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	start(t, l)
	defer func() { _ = l.Close() }()
	r, ids, block := full(), NewIDs(), Block{}
	sampler := NewSampler(0.5)
	if n := testing.AllocsPerRun(2000, func() {
		r.ID = block.Next(ids)
		l.Add(&r, sampler.Takes(r.ID))
	}); n != 0 {
		t.Errorf("%v allocations for a record", n)
	}
}
