package advertise

import (
	"maps"
	"time"
)

// Bounds of parked records. A node that joins hears most records before it knows
// who is behind them.
const (
	parkedAge      = 10 * time.Minute
	maxParked      = 16_384
	maxParkedBytes = 16 << 20
)

// parked holds records whose author's certificate is not known yet, the newest of
// each instance. Nothing in it is believed: it is apart from the store, so that it
// replaces no record that was checked. When it is full, new ones are turned away,
// and an exchange brings them later. Run's goroutine owns it.
type parked struct {
	records map[instance]parkedRecord
	bytes   int
}

type parkedRecord struct {
	entry *entry
	since time.Time
}

func newParked() *parked { return &parked{records: map[instance]parkedRecord{}} }

// put reports what became of the record: unproven, old or refused.
func (p *parked) put(e *entry, now time.Time) outcome {
	key := e.instance()
	before, known := p.records[key]
	size := len(e.raw)
	if known {
		if e.stamp.compare(before.entry.stamp) <= 0 {
			return old
		}
		size -= len(before.entry.raw)
	}
	if !known && len(p.records) >= maxParked || p.bytes+size > maxParkedBytes {
		return refused
	}
	p.records[key] = parkedRecord{e, now}
	p.bytes += size
	return unproven
}

// raw is the parked record of an instance, nil if there is none.
func (p *parked) raw(key instance) []byte {
	if r, ok := p.records[key]; ok {
		return r.entry.raw
	}
	return nil
}

func (p *parked) ids() (ids []string) {
	for key := range p.records {
		ids = append(ids, key.id)
	}
	return ids
}

func (p *parked) drop(key instance) {
	if r, ok := p.records[key]; ok {
		p.bytes -= len(r.entry.raw)
		delete(p.records, key)
	}
}

func (p *parked) expire(now time.Time) {
	maps.DeleteFunc(p.records, func(_ instance, r parkedRecord) bool {
		expired := now.Sub(r.since) >= parkedAge
		if expired {
			p.bytes -= len(r.entry.raw)
		}
		return expired
	})
}
