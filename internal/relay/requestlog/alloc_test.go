//go:build !race

package requestlog

import (
	"log/slog"
	"os"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

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
