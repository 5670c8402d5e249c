package advertise

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"

	"github.com/ringway/ringway/membership"
)

// digest is what one member tells another of its buckets: of each hash 32 bits,
// mixed with a salt that is drawn anew for every exchange. Two buckets that
// differ and look alike, once in four billion, do not look alike in the next
// exchange.
type digest struct {
	salt   uint64
	hashes [buckets]uint32
}

// digestBytes is the size of an encoded digest.
const digestBytes = 8 + 4*buckets

func (s *store) digest(salt uint64) digest {
	d := digest{salt: salt}
	for i, hash := range s.buckets {
		d.hashes[i] = shorten(hash, salt)
	}
	return d
}

func shorten(hash, salt uint64) uint32 {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], salt)
	binary.BigEndian.PutUint64(b[8:], hash)
	return uint32(xxhash.Sum64(b[:]))
}

func (d digest) encode() []byte {
	out := binary.BigEndian.AppendUint64(make([]byte, 0, digestBytes), d.salt)
	for _, h := range d.hashes {
		out = binary.BigEndian.AppendUint32(out, h)
	}
	return out
}

// differing marks the buckets that another member's digest says are not equal.
func (s *store) differing(theirs digest) (marked bitmap) {
	for i, h := range s.digest(theirs.salt).hashes {
		if h != theirs.hashes[i] {
			marked.set(i)
		}
	}
	return marked
}

// list is what the store holds of live workers in the marked buckets.
func (s *store) list(marked bitmap) []listed {
	var out []listed
	for _, m := range s.members.Members() {
		if m.Role != membership.RoleWorker || !marked.has(bucketOf(m.ID)) {
			continue
		}
		if e := s.entries[instance{m.ID, m.Epoch}]; e != nil {
			out = append(out, listed{e.instance(), e.stamp})
		}
	}
	return out
}

// compare sets another member's list against the store: the records that are
// newer here, and the instances that are newer there. What the floors refuse is
// not asked for.
func (s *store) compare(marked bitmap, theirs []listed) (newer [][]byte, wanted []instance) {
	mentioned := make(map[instance]struct{}, len(theirs))
	for _, l := range theirs {
		if _, twice := mentioned[l.instance]; twice {
			continue
		}
		mentioned[l.instance] = struct{}{}
		e := s.entries[l.instance]
		switch {
		case e == nil:
			if at, ok := s.floorAt[l.instance]; !ok || l.stamp.compare(at.Value.(floor).stamp) >= 0 {
				wanted = append(wanted, l.instance)
			}
		case l.stamp.compare(e.stamp) < 0:
			newer = append(newer, e.raw)
		case l.stamp.compare(e.stamp) > 0:
			wanted = append(wanted, l.instance)
		}
	}
	for _, l := range s.list(marked) {
		if _, known := mentioned[l.instance]; !known {
			newer = append(newer, s.entries[l.instance].raw)
		}
	}
	return newer, wanted
}
