package relay

import (
	"context"
	"log/slog"
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/metric"
)

const (
	// strainedAbove and strainedUntil are the shares of the memory limit, in percent, above which a
	// relay takes no new requests, and below which it takes them again. Above, the collector would
	// soon run without a pause: what is in use leaves it a fifth of the limit for garbage.
	strainedAbove, strainedUntil = 80, 70
	// memoryInterval is the time between two checks of the memory.
	memoryInterval = 50 * time.Millisecond
	// collectAfter is how long a relay that takes no requests waits for a collection before it starts one:
	// refusals allocate so little that the runtime would start none for minutes.
	collectAfter = time.Second
)

// memory decides whether this process has memory for more requests.
type memory struct {
	limit  int64        // bytes, as of GOMEMLIMIT
	used   func() int64 // bytes that the last collection could not free
	logger *slog.Logger
	// collections counts those of the runtime, and collect starts one.
	collections func() uint64
	collect     func()

	strained atomic.Bool
	seen     uint64    // of collections
	since    time.Time // when that number was new
}

func newMemory(logger *slog.Logger, reg prometheus.Registerer) *memory {
	m := &memory{limit: debug.SetMemoryLimit(-1), used: usedMemory(), logger: logger, collections: collections, collect: runtime.GC}
	metric.With(reg).GaugeFunc("ringway_relay_memory_strained", "1 while this relay refuses new requests because it uses most of its memory limit (that of its control group, or GOMEMLIMIT), 0 otherwise.", func() float64 {
		if m.strained.Load() {
			return 1
		}
		return 0
	})
	return m
}

// run checks the memory until ctx ends. Without a limit there is nothing to decide.
func (m *memory) run(ctx context.Context) error {
	if m.limit == math.MaxInt64 {
		return nil
	}
	tick := time.NewTicker(memoryInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			m.update()
		}
	}
}

func (m *memory) update() {
	used, before := m.used(), m.strained.Load()
	if before && used > m.limit/100*strainedUntil {
		if n := m.collections(); n != m.seen {
			m.seen, m.since = n, time.Now()
		} else if time.Since(m.since) >= collectAfter {
			m.collect()
			m.since, used = time.Now(), m.used()
		}
	}
	now := used > m.limit/100*strainedAbove || before && used > m.limit/100*strainedUntil
	if now == before {
		return
	}
	m.strained.Store(now)
	if now {
		m.logger.Warn("this relay uses most of its memory and refuses new requests until some have ended: give it more memory, or lower --max-in-flight", "used_mib", used>>20, "limit_mib", m.limit>>20)
	} else {
		m.logger.Info("this relay has memory for new requests again", "used_mib", used>>20, "limit_mib", m.limit>>20)
	}
}

// usedMemory returns a function that returns how much memory the last collection could not free: the
// live heap, stacks, and what the runtime needs. While a process near its limit allocates, it collects
// often, so that the number is recent. The limit counts garbage as well, whose amount means
// nothing.
func usedMemory() func() int64 {
	const total, objects, unused, free, released, live = 0, 1, 2, 3, 4, 5
	samples := make([]metrics.Sample, 6)
	for i, name := range []string{
		total: "/memory/classes/total:bytes", objects: "/memory/classes/heap/objects:bytes", unused: "/memory/classes/heap/unused:bytes",
		free: "/memory/classes/heap/free:bytes", released: "/memory/classes/heap/released:bytes", live: "/gc/heap/live:bytes",
	} {
		samples[i].Name = name
	}
	return func() int64 {
		metrics.Read(samples)
		at := func(i int) int64 { return int64(samples[i].Value.Uint64()) }
		return at(total) - at(objects) - at(unused) - at(free) - at(released) + at(live)
	}
}

// collections returns how often the collector has run.
func collections() uint64 {
	sample := []metrics.Sample{{Name: "/gc/cycles/total:gc-cycles"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
