package queueing

// queue is a FIFO that reuses its array.
type queue[T any] struct {
	items []T // a ring, of a power of two
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
