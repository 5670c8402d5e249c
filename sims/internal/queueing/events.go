package queueing

import "github.com/ringway/ringway/selection"

// timetable is a binary heap of events by time. container/heap would allocate for every
// event.
type timetable []event

type event struct {
	at      selection.Instant
	request int32
}

func (t *timetable) push(e event) {
	*t = append(*t, e)
	h := *t
	i := len(h) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if h[parent].at <= e.at {
			break
		}
		h[i] = h[parent]
		i = parent
	}
	h[i] = e
}

func (t *timetable) pop() event {
	h := *t
	first, last := h[0], h[len(h)-1]
	h = h[:len(h)-1]
	*t = h
	i := 0
	for {
		child := 2*i + 1
		if child >= len(h) {
			break
		}
		if child+1 < len(h) && h[child+1].at < h[child].at {
			child++
		}
		if last.at <= h[child].at {
			break
		}
		h[i] = h[child]
		i = child
	}
	if len(h) > 0 {
		h[i] = last
	}
	return first
}
