package membership

import "net"

// prove decides whether an instance is what gossip reports, and lists it if it is not. metadata
// ends with the signature.
func (g *guard) prove(instance, addr string, metadata []byte) error {
	_, err := g.proofs.prove(announced{name: instance, addr: addr, metadata: metadata})
	return err
}

// lapsed returns why an instance that was proven is not proven any more, "" if it still is.
func (g *guard) lapsed(instance string) (reason string) {
	if instance == g.self {
		return ""
	}
	return g.proofs.lapsed(instance)
}

// leaveOut lists an instance that has lapsed.
func (g *guard) leaveOut(u leftOut) {
	g.proofs.mu.Lock()
	defer g.proofs.mu.Unlock()
	g.proofs.listUnproven(unprovenCertificate, u)
}

// unproven returns the instances that gossip reports and that are not proven, sorted by id.
func (g *guard) unproven() []leftOut { return g.proofs.list() }

// recordGone records whether memberlist takes an instance for dead.
func (g *guard) recordGone(instance string, gone bool) { g.proofs.recordGone(instance, gone) }

// serviceNames returns the services in the certificate that signed metadata. It does not use the
// newest proof of the instance, which an older copy of its metadata can replace.
func (g *guard) serviceNames(metadata []byte) string {
	key, _ := signer(metadata[max(0, len(metadata)-maxSignature):])
	return g.proofs.serviceNames(key)
}

// accepted returns a stream of memberlist that a member opened, as memberlist may read it. It
// returns nil if the member has too many.
func (g *guard) accepted(conn net.Conn, id string, epoch uint64) net.Conn {
	place := g.exchanges.open(id)
	if place == nil {
		g.count(dropStreams)
		return nil
	}
	by := announcer{id, g.proofs.addr(instanceName(id, epoch))}
	return &inspected{Conn: conn, guard: g, by: by, labelled: true, place: place}
}

// dialled returns a stream of memberlist that this node opened to a member, as memberlist may read
// it.
func (g *guard) dialled(conn net.Conn, id, addr string) net.Conn {
	return &inspected{Conn: conn, guard: g, by: announcer{id, addr}}
}
