package advertise

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"

	"github.com/ringway/ringway/membership/identity"
)

// digest is the summary of the buckets that one member sends to another: 32 bits of each
// hash, mixed with a salt that is random in every exchange. Two different buckets have
// equal short hashes once in four billion, and then not in the next exchange.
type digest struct {
	salt   uint64
	hashes [buckets]uint32
	relays bool // the hashes cover the records of relays, too
}

// digestBytes is the size of an encoded digest without its last byte, which states whether it
// covers relays and which earlier releases do not write.
const digestBytes = 8 + 4*buckets

// digest summarises the buckets. The sums of workers and of relays are kept apart and joined only
// here, so that a member of an earlier release gets a digest of the records that it keeps.
func (s *store) digest(salt uint64, relays bool) digest {
	d := digest{salt: salt, relays: relays}
	for i, hash := range s.buckets {
		if relays {
			hash ^= s.relays.buckets[i]
		}
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
	if d.relays {
		out = append(out, 1)
	}
	return out
}

// differing marks the buckets that differ from another member's digest. It uses the salt of that
// digest: only with one salt do equal buckets have equal short hashes.
func (s *store) differing(theirs digest) (marked bitmap) {
	for i, h := range s.digest(theirs.salt, theirs.relays).hashes {
		if h != theirs.hashes[i] {
			marked.set(i)
		}
	}
	return marked
}

// list returns the records of live workers, and of live relays if relays is true, in the marked
// buckets. Records of dead workers are in no bucket, so a difference in them is not repaired.
func (s *store) list(marked bitmap, relays bool) []listed {
	var out []listed
	for _, m := range s.members.Members() {
		if m.Attached || !relays && m.Role == identity.RoleRelay || !writes(m.Role) || !marked.has(bucketOf(m.ID)) {
			continue
		}
		if e := s.entries[instance{m.ID, m.Epoch}]; e != nil && mayWrite(m.Role, e) {
			out = append(out, listed{e.instance(), e.stamp})
		}
	}
	return out
}

// compare compares another member's list with the store. It returns the records that are
// newer here, and the instances whose records are newer there, except those that a floor
// would refuse.
//
// The list has all live records of the marked buckets, so what it does not mention is missing
// there. Floors refuse what they refuse in put: otherwise a record that put refuses would be wanted
// again in every exchange. An instance that is listed twice counts once, so that a list cannot make
// this node send a record several times.
func (s *store) compare(marked bitmap, theirs []listed, relays bool) (newer [][]byte, wanted []instance) {
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
	for _, l := range s.list(marked, relays) {
		if _, known := mentioned[l.instance]; !known {
			newer = append(newer, s.entries[l.instance].raw)
		}
	}
	return newer, wanted
}
