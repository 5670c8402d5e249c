package trust

import (
	"cmp"
	"slices"
	"time"

	"github.com/ringway/ringway/membership/internal/gossip"
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

// UnprovenReasons returns them all.
func UnprovenReasons() []string {
	return []string{
		unprovenUnsigned, unprovenCertificate, unprovenSignature, unprovenDisagreement,
		unprovenAddress, unprovenFuture, unprovenTooMany, unprovenSuperseded, unprovenBoots,
	}
}

// Unproven is an instance that gossip reports and whose identity is not proven.
type Unproven struct {
	// ID, Epoch and GossipAddr are what gossip reports; any of them may be forged.
	ID         string
	Epoch      uint64
	GossipAddr string
	// Reason states what is missing and what to do.
	Reason string
	// Since is when the instance was first refused for that reason.
	Since time.Time
}

// listed is an entry of the list that operators read.
type listed struct {
	Unproven
	kind string
	last time.Time
}

// unprovenError is why an instance is not proven.
type unprovenError struct {
	kind   string // of UnprovenReasons
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
func (p *proofs) listUnproven(kind string, u Unproven) (news bool) {
	name := gossip.InstanceName(u.ID, u.Epoch)
	old, known := p.unproven[name]
	now := p.now()
	u.Since = now
	if known && old.Reason == u.Reason {
		u.Since = old.Since
	}
	if !known && len(p.unproven) >= maxUnproven {
		for victim := range p.unproven { // an arbitrary one: during a flood none is more important
			delete(p.unproven, victim)
			break
		}
	}
	p.unproven[name] = listed{u, kind, now}
	return !known || old.Reason != u.Reason
}

// ListUnsigned lists a certified member that was refused in its hello because it does not sign its
// gossip.
func (g *Guard) ListUnsigned(id, addr string) {
	g.cfg.Unproven.WithLabelValues(unprovenUnsigned).Inc()
	p := g.proofs
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listUnproven(unprovenUnsigned, Unproven{ID: id, GossipAddr: addr, Reason: "its release does not sign gossip, so its gossip is ignored: upgrade it"})
}

// list returns the unproven instances, sorted by id and epoch.
func (p *proofs) list() []Unproven {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]Unproven, 0, len(p.unproven))
	for _, u := range p.unproven {
		out = append(out, u.Unproven)
	}
	slices.SortFunc(out, func(a, b Unproven) int { return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Epoch, b.Epoch)) })
	return out
}

// LeaveOut lists an instance that has lapsed.
func (g *Guard) LeaveOut(u Unproven) {
	g.proofs.mu.Lock()
	defer g.proofs.mu.Unlock()
	g.proofs.listUnproven(unprovenCertificate, u)
}

// Unproven returns the instances that gossip reports and that are not proven, sorted by id.
func (g *Guard) Unproven() []Unproven { return g.proofs.list() }
