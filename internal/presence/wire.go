package presence

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/cespare/xxhash/v2"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/session"
)

// protocol names the streams between relays.
const protocol = "presence/1"

// The frames on a stream. The owner of the list sends the first four, the reader the others.
const (
	kindList   session.Kind = 1 // a part of the whole list
	kindChange session.Kind = 2 // what has changed since the sequence before
	kindBeat   session.Kind = 3 // sequence and hash of the list
	kindProof  session.Kind = 4 // certificate and record of a worker
	kindWant   session.Kind = 5 // workers whose proof is wanted
	kindAlive  session.Kind = 6 // nothing, every few seconds
)

// Bounds of the frames.
const (
	listedPerFrame = 256
	maxListed      = 8 + 1 + 17 + 4*256 + 8 + 8
	maxGone        = 256 + 8 + 1
	maxChange      = 8 + 1 + 2 + listedPerFrame*maxListed + 2 + listedPerFrame*maxGone
	maxChain       = 4
	maxChainBytes  = 16 << 10
	maxProof       = 256 + 8 + 1 + maxChain*2 + maxChainBytes + advertise.MaxRecordBytes
	maxOwnerFrame  = max(maxChange, maxProof)
	wantedPerFrame = 256
	maxReaderFrame = 2 + wantedPerFrame*(256+8)
)

type keyID = [8]byte

// instance is one life of one worker.
type instance struct {
	id    string
	epoch uint64
}

// listed is a worker in a list.
type listed struct {
	instance
	host               netip.Addr // from which its session comes
	datacenter, region string
	version            string
	draining           bool
	key                keyID  // of its certificate; zero without certificates
	sequence           uint64 // of its newest record here
}

func (l listed) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(session.AppendString(b, l.id), l.epoch)
	host := l.host.As16()
	b = append(b, host[:]...)
	for _, s := range []string{l.datacenter, l.region, l.version} {
		b = session.AppendString(b, s)
	}
	flags := byte(0)
	if l.draining {
		flags = session.FlagDraining
	}
	b = append(append(b, flags), l.key[:]...)
	return binary.BigEndian.AppendUint64(b, l.sequence)
}

func readListed(r *session.Reader) (l listed) {
	l.instance = readInstance(r)
	if b := r.Bytes(16); r.Err == nil {
		l.host = netip.AddrFrom16([16]byte(b)).Unmap()
	}
	l.datacenter, l.region, l.version = r.Name(), r.Name(), r.String()
	l.draining = r.Uint(1)&session.FlagDraining != 0
	if b := r.Bytes(8); r.Err == nil {
		l.key = keyID(b)
	}
	l.sequence = r.Uint(8)
	return l
}

func readInstance(r *session.Reader) (i instance) {
	i = instance{r.Name(), r.Uint(8)}
	if r.Err == nil && i.id == "" {
		r.Err = fmt.Errorf("a worker without an id")
	}
	return i
}

// hash is the contribution of a worker to the hash of its list.
func (l listed) hash() uint64 { return xxhash.Sum64(l.append(nil)) }

// gone is a worker that is not listed any more.
type gone struct {
	instance
	left bool // it announced this itself
}

// change is a part of a list, or what has changed in it.
type change struct {
	sequence uint64
	more     bool // of a whole list: other parts follow
	listed   []listed
	gone     []gone
}

func (c change) encode() []byte {
	more := byte(0)
	if c.more {
		more = 1
	}
	b := append(binary.BigEndian.AppendUint64(nil, c.sequence), more)
	b = binary.BigEndian.AppendUint16(b, uint16(len(c.listed)))
	for _, l := range c.listed {
		b = l.append(b)
	}
	b = binary.BigEndian.AppendUint16(b, uint16(len(c.gone)))
	for _, g := range c.gone {
		left := byte(0)
		if g.left {
			left = 1
		}
		b = append(binary.BigEndian.AppendUint64(session.AppendString(b, g.id), g.epoch), left)
	}
	return b
}

func decodeChange(b []byte) (c change, err error) {
	r := &session.Reader{Rest: b}
	c.sequence, c.more = r.Uint(8), r.Uint(1) == 1
	count := func() int {
		n := int(r.Uint(2))
		if n > listedPerFrame && r.Err == nil {
			r.Err = fmt.Errorf("%d workers in a frame, at most %d are read", n, listedPerFrame)
		}
		return n
	}
	for n := count(); n > 0 && r.Err == nil; n-- {
		c.listed = append(c.listed, readListed(r))
	}
	for n := count(); n > 0 && r.Err == nil; n-- {
		c.gone = append(c.gone, gone{readInstance(r), r.Uint(1) == 1})
	}
	if r.Err != nil {
		return change{}, r.Err
	}
	return c, nil
}

// proof is what makes others believe that a worker is who it is and offers what it offers.
type proof struct {
	instance
	chain  [][]byte // empty without certificates
	record []byte
}

func (p proof) encode() []byte {
	b := binary.BigEndian.AppendUint64(session.AppendString(nil, p.id), p.epoch)
	b = append(b, byte(len(p.chain)))
	for _, der := range p.chain {
		b = append(binary.BigEndian.AppendUint16(b, uint16(len(der))), der...)
	}
	return append(b, p.record...)
}

func decodeProof(b []byte) (p proof, err error) {
	r := &session.Reader{Rest: b}
	p.instance = readInstance(r)
	n := int(r.Uint(1))
	if n > maxChain && r.Err == nil {
		r.Err = fmt.Errorf("a chain of %d certificates, at most %d are read", n, maxChain)
	}
	for ; n > 0 && r.Err == nil; n-- {
		p.chain = append(p.chain, r.Bytes(int(r.Uint(2))))
	}
	if r.Err != nil {
		return proof{}, r.Err
	}
	p.record = r.Rest
	return p, nil
}

func encodeWant(wanted []instance) []byte {
	b := binary.BigEndian.AppendUint16(nil, uint16(len(wanted)))
	for _, w := range wanted {
		b = binary.BigEndian.AppendUint64(session.AppendString(b, w.id), w.epoch)
	}
	return b
}

func decodeWant(b []byte) (wanted []instance, err error) {
	r := &session.Reader{Rest: b}
	n := int(r.Uint(2))
	if n > wantedPerFrame && r.Err == nil {
		r.Err = fmt.Errorf("%d workers wanted, at most %d in a frame", n, wantedPerFrame)
	}
	for ; n > 0 && r.Err == nil; n-- {
		wanted = append(wanted, readInstance(r))
	}
	return wanted, r.Err
}

func encodeBeat(sequence, hash uint64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, sequence), hash)
}

func decodeBeat(b []byte) (sequence, hash uint64, err error) {
	r := &session.Reader{Rest: b}
	sequence, hash = r.Uint(8), r.Uint(8)
	return sequence, hash, r.Err
}
