package strategy

import (
	"slices"
	"time"

	"github.com/ringway/ringway/selection"
)

// slotScan walks the ring for one pick: all samples share its budget.
type slotScan struct {
	ring     *slotRing
	request  *Request
	decision *Decision
	observe  func(*Endpoint)
	oldest   selection.Instant // not seen since: stale

	budget    int  // stale endpoints that may still be met
	exhausted bool // a walk ended because of it
	depth     int  // places looked at
	wraps     int
}

// next returns the first fresh endpoint at or after the pivot, around the end of
// the ring, or nil. Excluded endpoints are passed over at no cost.
func (w *slotScan) next(pivot uint64) *Endpoint {
	owners := w.ring.owners
	at, _ := slices.BinarySearch(w.ring.positions, pivot)
	for range owners {
		if at == len(owners) {
			at = 0
			w.wraps++
		}
		if w.budget == 0 {
			w.exhausted = true
			return nil
		}
		e := owners[at]
		at++
		w.depth++
		switch {
		case w.request.excludes(e):
			w.decision.consider(e, 0, noteExcluded)
		case e.stale(w.oldest):
			w.budget--
			w.decision.consider(e, 0, noteStale)
			if w.decision == nil {
				w.observe(e)
			}
		default:
			return e
		}
	}
	return nil
}

// count takes the scan into the metrics.
func (s *slots) count(w *slotScan, sampled, dedupes int, tied bool) {
	m, stale := s.metrics, s.spec.MaxScan-w.budget
	m.scanDepth.Observe(float64(w.depth))
	m.wraps.Add(float64(w.wraps))
	m.stale.Add(float64(stale))
	if s.spec.Samples > 1 {
		m.samplesEffective.Observe(float64(sampled))
		m.dedupes.Add(float64(dedupes))
		if tied {
			m.ties.Inc()
		}
	}
	if w.exhausted {
		m.budgetExhausted.Inc()
		s.warn(w.request.Now, w.ring.version, stale)
	}
}

// warn says that the budget was exhausted, now and then.
func (s *slots) warn(now selection.Instant, version string, stale int) {
	last := s.lastWarn.Load()
	if time.Duration(int64(now)-last) < warnInterval || !s.lastWarn.CompareAndSwap(last, int64(now)) {
		return
	}
	s.logger.Warn("a pick met as many stale endpoints as it may: raise maxscan if this lasts, or find out why they are not seen",
		"service", s.service, "version", version, "stale", stale, "maxscan", s.spec.MaxScan)
}
