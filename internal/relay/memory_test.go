package relay

import (
	"log/slog"
	"math"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringway/ringway/internal/wire"
)

func TestARelayNearItsMemoryLimitIsStrainedUntilMuchIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var used atomic.Int64
		m := &memory{limit: 1000, used: used.Load, logger: slog.New(slog.DiscardHandler), collections: func() uint64 { return 0 }, collect: func() {}}
		go func() { _ = m.run(t.Context()) }()
		for _, step := range []struct {
			used     int64
			strained bool
		}{{100, false}, {800, false}, {801, true}, {750, true}, {701, true}, {700, false}, {790, false}, {999, true}, {0, false}} {
			used.Store(step.used)
			time.Sleep(memoryInterval)
			synctest.Wait()
			if m.strained.Load() != step.strained {
				t.Errorf("%d of 1000 bytes: strained %t", step.used, m.strained.Load())
			}
		}
	})
	m := &memory{limit: math.MaxInt64, used: func() int64 { t.Error("without a limit nothing is judged"); return 0 }}
	if err := m.run(t.Context()); err != nil {
		t.Error(err)
	}
}

// A relay that refuses everything allocates too little for the runtime to collect what has been freed.
func TestAStrainedRelayFindsOutThatItsMemoryIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var held, marked atomic.Int64
		var collections atomic.Uint64
		collect := func() { marked.Store(held.Load()); collections.Add(1) }
		m := &memory{limit: 1000, used: marked.Load, logger: slog.New(slog.DiscardHandler), collections: collections.Load, collect: collect}
		go func() { _ = m.run(t.Context()) }()
		held.Store(900)
		collect() // that of the runtime
		time.Sleep(10 * time.Second)
		if n := collections.Load(); !m.strained.Load() || n > 11 {
			t.Errorf("strained %t, after %d collections in ten seconds", m.strained.Load(), n)
		}
		held.Store(100)
		time.Sleep(2 * time.Second)
		if m.strained.Load() {
			t.Error("two seconds after its memory is free the relay takes no requests")
		}
		before := collections.Load()
		time.Sleep(time.Minute)
		if n := collections.Load() - before; n > 0 {
			t.Errorf("a relay that takes requests has collected %d times", n)
		}
	})
}

func TestMemoryThatACollectionFreesDoesNotCount(t *testing.T) {
	used := usedMemory()
	runtime.GC()
	before := used()
	if before <= 0 {
		t.Fatalf("%d bytes", before)
	}
	const size = 64 << 20
	held := make([]byte, size)
	for i := 0; i < len(held); i += 4096 {
		held[i] = 1
	}
	runtime.GC()
	if with := used(); with < before+size*9/10 {
		t.Errorf("%d bytes of which %d are held: %d before", with, size, before)
	}
	runtime.KeepAlive(held)
	held = nil
	runtime.GC()
	if after := used(); after > before+size/2 {
		t.Errorf("%d bytes after they were freed, %d before", after, before)
	}
}

func TestAStrainedRelayRefusesNewRequestsAndCountsThem(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.relay(func(*Settings) {})
	entered, release := gated(t, f, r)
	begun := make(chan string, 1)
	held := keep(t, r)
	held.ask("/held")
	<-entered
	go func() { begun <- held.answer() }()
	r.memory.strained.Store(true)
	k := keep(t, r)
	k.ask("/")
	if answer := k.answer(); !strings.HasPrefix(answer, "503 ") || !strings.Contains(answer, string(wire.CodeExhausted)) || !strings.Contains(answer, "little memory") {
		t.Errorf("a new request: %s", answer)
	}
	if n := r.metric(t, `ringway_relay_overload_refusals_total{limit="memory",service="echo"}`); n != "1" {
		t.Errorf("%s refusals are counted", n)
	}
	if n := r.metric(t, "ringway_relay_memory_strained"); n != "1" {
		t.Errorf("the gauge is %s", n)
	}
	close(release)
	if answer := <-begun; answer != "200 done" {
		t.Errorf("the request that had begun: %s", answer)
	}
	r.memory.strained.Store(false)
	again := keep(t, r)
	if again.ask("/"); again.answer() != "200 done" {
		t.Error("no answer when there is memory again")
	}
}
