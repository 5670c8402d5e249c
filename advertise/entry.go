package advertise

import (
	"bytes"
	"cmp"
	"encoding/binary"

	"github.com/cespare/xxhash/v2"
)

// instance identifies one life of one member. The store never compares two lives: which of them is
// current is decided by membership alone.
type instance struct {
	id    string
	epoch uint64
}

// stamp orders the records of one instance. Two processes with one id and epoch may write different
// records with one sequence; then the hash decides, so that all members keep the same.
type stamp struct {
	sequence uint64
	hash     uint64 // see hashOf
}

// hashOf returns the xxhash of a record. The hash of a signed record covers only the
// signed part: the same statement can be signed and encoded in many ways, and a member
// that passes the record on must not be able to make a newer record of it.
func hashOf(raw []byte, signed signedPart) uint64 {
	if len(signed.signature) > 0 {
		return xxhash.Sum64(signed.statement)
	}
	return xxhash.Sum64(raw)
}

func (a stamp) compare(b stamp) int {
	if c := cmp.Compare(a.sequence, b.sequence); c != 0 {
		return c
	}
	return cmp.Compare(a.hash, b.hash)
}

// entry is one stored record. It is never changed, only replaced.
type entry struct {
	record origin
	raw    []byte // as its owner encoded it; unsigned parts of a signed record are left out
	stamp  stamp
}

// origin is the part of a record that the store needs. The services are kept only in the
// view: decoding them again costs microseconds, keeping them twice would cost half a
// kilobyte per record.
type origin struct {
	NodeID string
	Epoch  uint64
	Relay  bool // the record has the statement of a relay
}

func (e *entry) instance() instance { return instance{e.record.NodeID, e.record.Epoch} }

// services decodes the services of the record.
func (e *entry) services() []Service {
	record, _, _ := decodeRecord(e.raw) // cannot fail: the record was decoded or encoded before
	return record.Services
}

// statement decodes the statement of a relay, nil in the record of a worker.
func (e *entry) statement() *RelayStatement {
	if !e.record.Relay {
		return nil // without decoding the services of a worker
	}
	record, _, _ := decodeRecord(e.raw) // cannot fail, as in services
	return record.Relay
}

// newEntry copies raw, which may be part of a larger frame.
func newEntry(record Record, raw []byte, signed signedPart) *entry {
	e := &entry{record: origin{record.NodeID, record.Epoch, record.Relay != nil}, stamp: stamp{record.Sequence, hashOf(raw, signed)}}
	if len(signed.signature) > 0 {
		e.raw = withSignature(signed.statement, signed.signature)
	} else {
		e.raw = bytes.Clone(raw)
	}
	return e
}

// mix returns the contribution of an entry to the root. Plain hashes of similar records
// could cancel each other; a second hash that covers the instance makes the contributions
// independent.
func (e *entry) mix() uint64 {
	var b [24]byte
	binary.BigEndian.PutUint64(b[0:], e.record.Epoch)
	binary.BigEndian.PutUint64(b[8:], e.stamp.sequence)
	binary.BigEndian.PutUint64(b[16:], e.stamp.hash)
	var h xxhash.Digest
	h.Reset()
	_, _ = h.WriteString(e.record.NodeID)
	_, _ = h.Write(b[:])
	return h.Sum64()
}

func bucketOf(id string) int { return int(xxhash.Sum64String(id) % buckets) }
