package membership

import (
	"cmp"
	"slices"
	"time"
)

// Reasons why an instance is not proven: the label values of a counter, a closed set.
const (
	unprovenUnsigned     = "unsigned"     // a release that does not sign, or a forged member
	unprovenCertificate  = "certificate"  // unknown, or refused: denied, ended, of another authority
	unprovenSignature    = "signature"    // forged or damaged
	unprovenDisagreement = "disagreement" // its metadata differs from its certificate
	unprovenAddress      = "address"      // gossiped at another address than it signed
	unprovenFuture       = "future_epoch"
	unprovenTooMany      = "too_many"
	unprovenSuperseded   = "superseded"     // older than two later boots of its node
	unprovenBoots        = "too_many_boots" // of one node in a minute
)

var unprovenReasons = []string{
	unprovenUnsigned, unprovenCertificate, unprovenSignature, unprovenDisagreement,
	unprovenAddress, unprovenFuture, unprovenTooMany, unprovenSuperseded, unprovenBoots,
}

// Unproven is an instance that gossip reports and that is in no snapshot, because its identity is
// not proven.
type Unproven struct {
	// ID, Epoch and GossipAddr are what gossip reports; any of them may be forged.
	ID         string `json:"id"`
	Epoch      uint64 `json:"epoch"`
	GossipAddr string `json:"gossip_addr,omitempty"`
	// Reason states what is missing and what to do.
	Reason string `json:"reason"`
	// Since is when the instance was first refused for that reason.
	Since time.Time `json:"since"`

	kind string
	last time.Time
}

// unprovenError is why an instance is not proven.
type unprovenError struct {
	kind   string // of unprovenReasons
	reason string
	// missing is the certificate to request, if only that is missing.
	missing *keyID
}

func (e *unprovenError) Error() string { return e.reason }

// maxUnproven limits the list that operators read.
const maxUnproven = 1024

// unprovenFor is how long an instance stays on the list after gossip last reported it.
const unprovenFor = 2 * time.Minute

// listUnproven lists an instance and reports whether the instance or its reason is new. The size
// of the list is limited: at the limit an arbitrary instance is removed. mu is held.
func (p *proofs) listUnproven(u Unproven) (news bool) {
	name := instanceName(u.ID, u.Epoch)
	old, known := p.unproven[name]
	u.Since, u.last = p.now(), p.now()
	if known && old.Reason == u.Reason {
		u.Since = old.Since
	}
	if !known && len(p.unproven) >= maxUnproven {
		for victim := range p.unproven { // an arbitrary one: during a flood none is more important
			delete(p.unproven, victim)
			break
		}
	}
	p.unproven[name] = u
	return !known || old.Reason != u.Reason
}

// listStranger lists an instance that was refused in its hello.
func (p *proofs) listStranger(u Unproven) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listUnproven(u)
}

// list returns the unproven instances, sorted by id and epoch.
func (p *proofs) list() []Unproven {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]Unproven, 0, len(p.unproven))
	for _, u := range p.unproven {
		out = append(out, u)
	}
	slices.SortFunc(out, func(a, b Unproven) int { return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Epoch, b.Epoch)) })
	return out
}

// Unproven lists the instances that gossip reports and that are in no snapshot, sorted by id. It
// is empty without certificates.
func (n *Node) Unproven() []Unproven {
	if n.proofs == nil {
		return nil
	}
	return n.proofs.list()
}
