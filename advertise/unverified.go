package advertise

import (
	"cmp"
	"maps"
	"slices"
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
// author: one of an earlier life is of no use, and any member can invent lives of another one.
// These records are not trusted: they are kept separate from the store and never
// replace a verified record. When it is full, new records are dropped, and an exchange
// brings them later. Run's goroutine owns it.
//
// A forgery can take the place of a genuine record here. It is dropped when the certificate
// arrives, and an exchange brings the genuine record.
type unverified struct {
	records map[string]unverifiedRecord // by the id of the author
	bytes   int
}

type unverifiedRecord struct {
	entry *entry
	since time.Time
}

func newUnverified() *unverified { return &unverified{records: map[string]unverifiedRecord{}} }

// put parks a record. The outcome is unproven if it was parked, else old or refused. Number and
// bytes are limited, because a record may have 256 kB.
func (p *unverified) put(e *entry, now time.Time) outcome {
	author := e.record.NodeID
	before, known := p.records[author]
	size := len(e.raw)
	if known {
		if cmp.Or(cmp.Compare(e.record.Epoch, before.entry.record.Epoch), e.stamp.compare(before.entry.stamp)) <= 0 {
			return old
		}
		size -= len(before.entry.raw)
	}
	if !known && len(p.records) >= maxParked || p.bytes+size > maxParkedBytes {
		return refused
	}
	p.records[author] = unverifiedRecord{e, now}
	p.bytes += size
	return unproven
}

// raw returns the parked record of an instance, nil if there is none.
func (p *unverified) raw(key instance) []byte {
	if r, ok := p.records[key.id]; ok && r.entry.record.Epoch == key.epoch {
		return r.entry.raw
	}
	return nil
}

// authors returns the ids of all authors.
func (p *unverified) authors() []string { return slices.Collect(maps.Keys(p.records)) }

func (p *unverified) drop(author string) {
	if r, ok := p.records[author]; ok {
		p.bytes -= len(r.entry.raw)
		delete(p.records, author)
	}
}

func (p *unverified) expire(now time.Time) {
	maps.DeleteFunc(p.records, func(_ string, r unverifiedRecord) bool {
		expired := now.Sub(r.since) >= parkedAge
		if expired {
			p.bytes -= len(r.entry.raw)
		}
		return expired
	})
}
