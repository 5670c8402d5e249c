package trust

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/ringway/ringway/membership/identity"
	"github.com/ringway/ringway/membership/internal/gossip"
)

// With certificates the incarnation and the metadata of an instance are one statement, which the
// instance signs: its last field is the incarnation under which it is gossiped. So other
// metadata at that incarnation, or the same metadata at another incarnation, counts nowhere, and
// of two statements the one with the higher incarnation is newer.
//
//	memberlist: alive 7, metadata …|ffffffff|no signature
//	    │  Only memberlist knows when it raises the incarnation, so the statement is signed
//	    ▼  on its way out: in packets and in exchanges of states.
//	transport:  alive 7, metadata …|00000007|signature
//	    │
//	    ▼  Other members pass it on as it is.
//	receiver:   both incarnations are equal, and not below one that it knows
//
// A release before this one signs metadata without the incarnation. Its instances never state
// one, and those of this release always do.

// unstated is the incarnation in metadata that has not left yet.
const unstated = 1<<32 - 1

// ownStatement is what this node signed about itself.
type ownStatement struct {
	mu      sync.Mutex
	highest uint32 // incarnation that was signed
	// The last statement: the metadata as memberlist has it, the incarnation, and the result.
	metadata    []byte
	incarnation uint32
	signed      []byte
}

func (o *ownStatement) signedUpTo() uint32 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.highest
}

// Template returns this node's metadata as memberlist has it. In place of an incarnation and a
// signature, which only stateOwn knows, it ends with the id of the certificate.
func (g *Guard) Template(m gossip.Metadata) ([]byte, error) {
	m.GossipAddr, m.Incarnation = g.addr, unstated
	meta, err := m.Encode(MaxSignature)
	if err != nil {
		return nil, err
	}
	key := identity.KeyID(g.cfg.Identity.Chain()[0])
	return append(append(meta, key[:]...), make([]byte, signatureSize)...), nil
}

// stateOwn returns this node's metadata, signed for an incarnation. It signs once for each
// incarnation and not for each packet.
func (g *Guard) stateOwn(metadata []byte, incarnation uint32) ([]byte, error) {
	o := &g.own
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.incarnation != incarnation || !bytes.Equal(o.metadata, metadata) {
		end := len(metadata) - MaxSignature
		if end < 4 || binary.BigEndian.Uint32(metadata[end-4:]) != unstated {
			return nil, fmt.Errorf("own metadata of %d bytes has no place for the incarnation", len(metadata))
		}
		body := binary.BigEndian.AppendUint32(bytes.Clone(metadata[:end-4]), incarnation)
		signature := g.proofs.sign(statementMetadata, body)
		if len(signature) != MaxSignature {
			return nil, fmt.Errorf("own metadata cannot be signed")
		}
		o.metadata, o.incarnation, o.signed = bytes.Clone(metadata), incarnation, append(body, signature...)
	}
	o.highest = max(o.highest, incarnation)
	return o.signed, nil
}

// outgoing returns a packet of memberlist with this node's own announcement signed. Few packets
// have one: the search for the name saves the decoding of all others.
func (g *Guard) outgoing(message []byte) ([]byte, error) {
	inner := message
	if len(inner) > 5 && inner[0] == gossip.KindChecksum {
		inner = inner[5:]
	}
	parts, several := [][]byte{inner}, len(inner) > 0 && inner[0] == gossip.KindCompound
	if several {
		parts, _ = gossip.SplitCompound(inner)
	}
	changed := false
	for i, part := range parts {
		if len(part) == 0 || part[0] != gossip.KindAlive || !bytes.Contains(part, []byte(g.self)) {
			continue
		}
		var a gossip.Alive
		if err := gossip.Decode(part[1:], &a); err != nil {
			return nil, err
		}
		if a.Node != g.self {
			continue
		}
		var err error
		if a.Meta, err = g.stateOwn(a.Meta, a.Incarnation); err != nil {
			return nil, err
		}
		parts[i], changed = gossip.Encode(gossip.KindAlive, &a), true
	}
	switch {
	case !changed:
		return message, nil
	case several:
		return gossip.JoinCompound(parts), nil // the checksum is left out: the packet is signed
	}
	return parts[0], nil
}

// outgoingStates returns an exchange of states with this node's own state signed. memberlist
// writes an exchange in one piece.
func (g *Guard) outgoingStates(message []byte) ([]byte, error) {
	if len(message) == 0 || message[0] != gossip.KindExchange || !bytes.Contains(message, []byte(g.self)) {
		return message, nil
	}
	in := bufio.NewReader(bytes.NewReader(message[1:]))
	out := bytes.NewBuffer(make([]byte, 0, len(message)))
	out.WriteByte(gossip.KindExchange)
	var value bytes.Buffer
	for range len(message) { // each value has a byte at least
		if _, err := in.Peek(1); err != nil {
			break
		}
		value.Reset()
		if err := gossip.CopyValue(&value, in, 0); err != nil {
			return nil, err
		}
		var s gossip.State
		if !bytes.Contains(value.Bytes(), []byte(g.self)) || gossip.Decode(value.Bytes(), &s) != nil || s.Name != g.self {
			out.Write(value.Bytes())
			continue
		}
		var err error
		if s.Meta, err = g.stateOwn(s.Meta, s.Incarnation); err != nil {
			return nil, err
		}
		out.Write(gossip.Encode(gossip.KindExchange, &s)[1:])
	}
	return out.Bytes(), nil
}

// Write sends what memberlist writes to the stream.
func (c *inspected) Write(b []byte) (int, error) {
	out, err := c.guard.outgoingStates(b)
	if err != nil {
		return 0, fmt.Errorf("state exchange with %s: %w", c.by.id, err)
	}
	if _, err := c.Conn.Write(out); err != nil {
		return 0, err
	}
	return len(b), nil
}

// checkIncarnation returns why an announcement with proven metadata does not count; "" if it does.
func (g *Guard) checkIncarnation(a gossip.Alive, m gossip.Metadata) (reason string) {
	newest, _, _ := g.proofs.signedUpTo(a.Node)
	switch {
	case m.Incarnation < newest:
		return dropOld
	case m.Incarnation != 0 && m.Incarnation != a.Incarnation:
		return dropIncarnation
	}
	return ""
}

// checkOwn returns what prevents that memberlist receives an announcement of this node by another
// one: it would answer with a higher incarnation, because it has the metadata without the
// signature. At another address it is a process with the same name and certificate, which
// memberlist reports.
func (g *Guard) checkOwn(a gossip.Alive) (reason string) {
	addr := gossip.AddrPort(a.Addr, a.Port)
	if addr == g.addr {
		if a.Incarnation > g.own.signedUpTo() {
			return dropIncarnation
		}
		return dropIdle
	}
	_, _ = g.proofs.learn(g.cfg.Identity.Chain()) // if it is refused, so is the announcement
	if _, err := g.proofs.verifyInstance(announced{name: a.Node, addr: addr, metadata: a.Meta}); err != nil {
		return dropUnproven
	}
	return ""
}

// signedUpTo returns the highest incarnation that a proven instance has signed, 0 if it is of a
// release that signs none, and how many instances are proven.
func (p *proofs) signedUpTo(instance string) (incarnation uint32, proven bool, all int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	known, proven := p.instances[instance]
	return known.incarnation, proven, len(p.instances)
}
