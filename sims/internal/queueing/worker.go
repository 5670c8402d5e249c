package queueing

import "github.com/ringway/ringway/selection"

// worker serves up to Slots requests at once, in the order they came.
type worker struct {
	slow    float64 // times slower than normal, for good
	turn    Turn    // what has happened to it
	joined  selection.Instant
	running int
	waiting queue[int32] // requests
	// assigned is what clients have sent and the worker not answered yet: the omniscient
	// sees requests on their way.
	assigned int
	recent   *recentLatencies // nil unless somebody probes
}

// factor is how many times slower than normal the worker is.
func (w *worker) factor(now selection.Instant) float64 {
	factor := w.slow * w.turn.Slow
	if cold := w.joined + WarmAfter - now; w.joined > 0 && cold > 0 {
		factor *= 1 + (ColdBy-1)*float64(cold)/float64(WarmAfter)
	}
	return factor
}

func (w *worker) load() int { return w.running + w.waiting.len() }
