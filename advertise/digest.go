package advertise

import "encoding/binary"

// list is what the store holds of live workers in the marked buckets.
func (s *store) list(marked bitmap) []listed {
	var out []listed
	for id, m := range s.alive {
		if !marked.has(bucketOf(id)) {
			continue
		}
		if e := s.entries[instance{id, m.Epoch}]; e != nil {
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

func packHashes(hashes [buckets]uint64) []byte {
	out := make([]byte, 0, 8*buckets)
	for _, h := range hashes {
		out = binary.BigEndian.AppendUint64(out, h)
	}
	return out
}
