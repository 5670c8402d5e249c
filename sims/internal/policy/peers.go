package policy

import (
	"math/rand/v2"

	"github.com/ringway/ringway/selection"
	"github.com/ringway/ringway/sims/internal/queueing"
)

// peers is a range with the statistics of a policy about each worker.
type peers[T any] struct {
	rand     *rand.Rand
	list     []*peer[T]
	byWorker map[int32]*peer[T]
	heaviest float64
}

type peer[T any] struct {
	worker int32
	weight float64
	known  T
}

// Update keeps the statistics of workers that stay.
func (p *peers[T]) Update(endpoints []queueing.Endpoint, _ selection.Instant) {
	old := p.byWorker
	p.list, p.byWorker, p.heaviest = nil, make(map[int32]*peer[T], len(endpoints)), 0
	for _, e := range endpoints {
		worker := int32(e.Worker)
		q := old[worker]
		if q == nil {
			q = &peer[T]{worker: worker}
		}
		q.weight = e.Weight
		p.list = append(p.list, q)
		p.byWorker[worker] = q
		p.heaviest = max(p.heaviest, e.Weight)
	}
}

// draw returns a random worker in proportion to its weight, by rejection sampling. Weights of
// a range are nearly equal, so few tries are needed.
func (p *peers[T]) draw() *peer[T] {
	for {
		q := p.list[p.rand.IntN(len(p.list))]
		if q.weight >= p.heaviest || p.rand.Float64()*p.heaviest < q.weight {
			return q
		}
	}
}

// pair draws two different workers, or the same worker twice if the range has only one.
func (p *peers[T]) pair() (a, b *peer[T]) {
	a, b = p.draw(), p.draw()
	for b == a && len(p.list) > 1 {
		b = p.draw()
	}
	return a, b
}

// of returns the statistics of the worker of a ticket, nil if the worker has left the range.
func (p *peers[T]) of(t queueing.Ticket) *T {
	if q := p.byWorker[t.Worker]; q != nil {
		return &q.known
	}
	return nil
}

func (q *peer[T]) ticket() queueing.Ticket { return queueing.Ticket{Worker: q.worker} }

// passive is for clients without periodic work and evictions.
type passive struct{}

func (passive) Refresh(selection.Instant) {}
func (passive) Evictions() int            { return 0 }
