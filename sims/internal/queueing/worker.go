package queueing

import (
	"slices"

	"github.com/ringway/ringway/selection"
)

// worker serves up to Slots requests at a time, in the order of arrival.
type worker struct {
	slow    float64 // times slower than normal, during the whole run
	turn    Turn    // the last change of the worker
	joined  selection.Instant
	running int
	waiting queue[int32] // requests
	// assigned counts the requests that clients have sent and the worker has not answered.
	// The omniscient policy thus sees requests that are still on the network.
	assigned int
	recent   *recentLatencies // nil if the policy does not probe
}

// factor returns how many times slower than normal the worker is.
func (w *worker) factor(now selection.Instant) float64 {
	factor := w.slow * w.turn.Slow
	if cold := w.joined + WarmAfter - now; w.joined > 0 && cold > 0 {
		factor *= 1 + (ColdBy-1)*float64(cold)/float64(WarmAfter)
	}
	return factor
}

func (w *worker) load() int { return w.running + w.waiting.len() }

// queue is a FIFO that reuses its array.
type queue[T any] struct {
	items []T // a ring buffer; the length is a power of two
	head  int
	n     int
}

func (q *queue[T]) len() int { return q.n }

func (q *queue[T]) front() *T { return &q.items[q.head] }

func (q *queue[T]) push(item T) {
	if q.n == len(q.items) {
		grown := make([]T, max(8, 2*q.n))
		for i := range q.n {
			grown[i] = q.items[(q.head+i)&(q.n-1)]
		}
		q.items, q.head = grown, 0
	}
	q.items[(q.head+q.n)&(len(q.items)-1)] = item
	q.n++
}

func (q *queue[T]) pop() T {
	item := q.items[q.head]
	q.head = (q.head + 1) & (len(q.items) - 1)
	q.n--
	return item
}

// recentLatencies keeps the latencies of the last 8 requests for each load on arrival. A
// Prequal worker answers probes with these latencies.
type recentLatencies struct {
	samples [QueueBound + Slots][8]float32
	n       [QueueBound + Slots]uint32
}

func (r *recentLatencies) add(load int, latency float32) {
	r.samples[load][r.n[load]%8] = latency
	r.n[load]++
}

// near returns the median at the nearest load that has samples, 0 without any samples.
func (r *recentLatencies) near(load int) float64 {
	load = min(load, len(r.n)-1)
	for distance := range len(r.n) {
		for _, at := range [2]int{load - distance, load + distance} {
			if at < 0 || at >= len(r.n) || r.n[at] == 0 {
				continue
			}
			sorted := r.samples[at]
			known := sorted[:min(r.n[at], 8)]
			slices.Sort(known)
			return float64(known[len(known)/2])
		}
	}
	return 0
}
