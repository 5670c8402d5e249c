package requestlog

import (
	"slices"
	"sync/atomic"
)

const (
	// maxTaps bounds the concurrent readers: they are operators, and each costs every
	// request of its service a record.
	maxTaps = 4
	// tapLines is how many records wait for one reader.
	tapLines = 512
)

// Tap gets the records of one service, or of all, that match its filter. A reader that is too slow
// loses records.
type Tap struct {
	log     *Log
	service string // or AllServices
	where   Filter
	lines   chan []byte
	dropped atomic.Int64
}

// AllServices is the name for a tap of all requests. No service has this name.
const AllServices = "*"

// Tap begins to collect records of a service, or of AllServices. It returns false if there
// are as many taps as the log allows. The caller must Close it.
func (l *Log) Tap(service string, where Filter) (*Tap, bool) {
	l.tapping.Lock()
	defer l.tapping.Unlock()
	var taps []*Tap
	if old := l.taps.Load(); old != nil {
		taps = *old
	}
	if len(taps) >= maxTaps {
		return nil, false
	}
	t := &Tap{log: l, service: service, where: where, lines: make(chan []byte, tapLines)}
	taps = append(slices.Clone(taps), t)
	l.taps.Store(&taps)
	return t, true
}

// Close ends the tap. Records that are being added may still reach its queue.
func (t *Tap) Close() {
	l := t.log
	l.tapping.Lock()
	defer l.tapping.Unlock()
	taps := slices.DeleteFunc(slices.Clone(*l.taps.Load()), func(other *Tap) bool { return other == t })
	if len(taps) == 0 {
		l.taps.Store(nil)
		return
	}
	l.taps.Store(&taps)
}

// Lines returns the queue of lines.
func (t *Tap) Lines() <-chan []byte { return t.lines }

// Dropped returns how many records were dropped since the last call.
func (t *Tap) Dropped() int64 { return t.dropped.Swap(0) }

func (t *Tap) takes(service string) bool { return t.service == AllServices || t.service == service }

// Tapped reports whether there is a tap of the service.
func (l *Log) Tapped(service string) bool {
	taps := l.taps.Load()
	return taps != nil && slices.ContainsFunc(*taps, func(t *Tap) bool { return t.takes(service) })
}

// offer passes a copy of the line to the taps that want the record.
func (l *Log) offer(r *Record, line []byte) {
	taps := l.taps.Load()
	if taps == nil {
		return
	}
	var own []byte
	for _, t := range *taps {
		if !t.takes(r.Service) || !t.where.Matches(r) {
			continue
		}
		if own == nil {
			own = slices.Clone(line)
		}
		select {
		case t.lines <- own:
		default:
			t.dropped.Add(1)
			l.dropped[dropTap].Inc()
		}
	}
}
