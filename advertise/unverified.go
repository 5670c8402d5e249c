package advertise

import (
	"maps"
	"time"
)

// Limits of parked records. A node that joins receives most records before it knows the
// certificates of their authors.
const (
	parkedAge      = 10 * time.Minute
	maxParked      = 16_384
	maxParkedBytes = 16 << 20
)

// unverified holds records whose author's certificate is not known yet, the newest of each
// instance. These records are not trusted: they are kept separate from the store and never
// replace a verified record. When it is full, new records are dropped, and an exchange
// brings them later. Run's goroutine owns it.
//
// A forgery can take the place of a genuine record here. It is dropped when the certificate
// arrives, and an exchange brings the genuine record.
type unverified struct {
	records map[instance]unverifiedRecord
	bytes   int
}

type unverifiedRecord struct {
	entry *entry
	since time.Time
}

func newUnverified() *unverified { return &unverified{records: map[instance]unverifiedRecord{}} }

// put parks a record. The outcome is unproven if it was parked, else old or refused. Number and
// bytes are limited, because a record may have 256 kB.
func (p *unverified) put(e *entry, now time.Time) outcome {
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
	p.records[key] = unverifiedRecord{e, now}
	p.bytes += size
	return unproven
}

// raw returns the parked record of an instance, nil if there is none.
func (p *unverified) raw(key instance) []byte {
	if r, ok := p.records[key]; ok {
		return r.entry.raw
	}
	return nil
}

func (p *unverified) ids() (ids []string) {
	for key := range p.records {
		ids = append(ids, key.id)
	}
	return ids
}

func (p *unverified) drop(key instance) {
	if r, ok := p.records[key]; ok {
		p.bytes -= len(r.entry.raw)
		delete(p.records, key)
	}
}

func (p *unverified) expire(now time.Time) {
	maps.DeleteFunc(p.records, func(_ instance, r unverifiedRecord) bool {
		expired := now.Sub(r.since) >= parkedAge
		if expired {
			p.bytes -= len(r.entry.raw)
		}
		return expired
	})
}
