package requestlog

import (
	"slices"
	"sync/atomic"
)

const (
	// maxTaps bounds the concurrent readers: they are operators, and each costs every
	// request of its service a record.
	maxTaps = 4
	// tapLines is how many records wait for one reader, who takes them 20 times a second: a
	// relay with 40,000 requests per second loses none.
	tapLines = 2048
)

// Tap gets the records of one service, or of all, that match its filter. A reader that is too slow
// loses records. A tap of [Log.Count] has no lines.
type Tap struct {
	log     *Log
	service string // or AllServices
	where   Filter
	lines   chan []byte
	dropped atomic.Int64
	count   func(*Record)
}

// AllServices is the name for a tap of all requests. No service has this name.
const AllServices = "*"

// Tap begins to collect records of a service, or of AllServices. It returns false if there
// are as many taps as the log allows. The caller must Close it.
func (l *Log) Tap(service string, where Filter) (*Tap, bool) {
	t := &Tap{log: l, service: service, where: where, lines: make(chan []byte, tapLines)}
	return t, l.add(t)
}

// Count begins to call count with each record, on the goroutine of the request: count must
// be fast and must not keep the record. The caller must Close the tap, whose calls may end
// later. It is none of those whose number is limited, and costs less than a line.
func (l *Log) Count(count func(*Record)) *Tap {
	t := &Tap{log: l, service: AllServices, count: count}
	l.add(t)
	return t
}

// add adds a tap, unless there are as many with lines as the log allows.
func (l *Log) add(t *Tap) bool {
	l.tapping.Lock()
	defer l.tapping.Unlock()
	taps := []*Tap{t}
	reading := 0
	if old := l.taps.Load(); old != nil {
		for _, other := range *old {
			taps = append(taps, other)
			if other.count == nil {
				reading++
			}
		}
	}
	if t.count == nil && reading >= maxTaps {
		return false
	}
	l.taps.Store(&taps)
	return true
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

// offer counts the record, and passes its line to the taps that want it. The line is that
// of the file, if it is not nil.
func (l *Log) offer(r *Record, line []byte) {
	taps := l.taps.Load()
	if taps == nil {
		return
	}
	var own []byte
	for _, t := range *taps {
		if t.count != nil {
			t.count(r)
			continue
		}
		if !t.takes(r.Service) || !t.where.Matches(r) {
			continue
		}
		if own == nil {
			if own = slices.Clone(line); own == nil {
				own = Append(make([]byte, 0, 1<<10), r)
			}
		}
		select {
		case t.lines <- own:
		default:
			t.dropped.Add(1)
			l.dropped[dropTap].Inc()
		}
	}
}
