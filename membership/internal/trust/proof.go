package trust

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
	"golang.org/x/time/rate"

	"github.com/ringway/ringway/membership/identity"
	"github.com/ringway/ringway/membership/internal/gossip"
)

// keyID identifies a certificate: the first bytes of the SHA-256 of its DER form. A signature
// contains the id of its certificate.
type keyID = [keyIDSize]byte

const (
	// keepProof is how long a certificate, or the proof of an instance, is kept after its last
	// use. A member that was away for longer is proven again.
	keepProof = 10 * time.Minute
	// futureEpoch is how far ahead of this host's clock a boot time may be. It allows for
	// clocks that differ, and prevents a member under the control of an attacker from claiming
	// an id with a boot time that no honest restart can exceed.
	futureEpoch = 10 * time.Minute
)

// proofs holds the certificates of members and the instances that they prove, and checks gossip
// against them. Methods may be called from any goroutine.
type proofs struct {
	source *identity.Source
	label  string // cluster/environment
	now    func() time.Time
	// fleetTime returns the time by the clocks of other members; zero if there are none.
	fleetTime func() time.Time
	limit     int // most members; two certificates for each
	logger    *slog.Logger
	lines     *rate.Limiter // of log lines about instances that may be invented

	mu           sync.Mutex
	certificates map[keyID]*knownCertificate
	instances    map[string]provenInstance // by instance name
	nodes        map[string]*provenNode    // the nodes of these instances, by id
	ending       map[string]*displaced     // instances that memberlist must take for dead, by name
	addrs        map[string]struct{}       // gossip addresses of proven instances
	unproven     map[string]listed         // by instance name
}

type knownCertificate struct {
	*identity.Certified
	used time.Time
}

// provenInstance is the last verified state of an instance, so that equal metadata costs only a
// comparison when it is received again.
type provenInstance struct {
	metadata    []byte
	incarnation uint32 // that it signed with the metadata, 0 if it signs none
	addr        string
	key         keyID
	used        time.Time
	highest     uint32 // incarnation in gossip about it
	gone        bool   // memberlist takes it for dead
}

// provenNode is a node with proven instances.
type provenNode struct {
	epochs []uint64      // of its instances, at most instancesPerNode, oldest first
	boots  *rate.Limiter // new instances
}

// displaced is an instance that had to make room for a later boot of its node. It had proven
// itself, so only memberlist can end it.
type displaced struct {
	incarnation uint32 // the highest one that memberlist can know
	since       time.Time
	ended       bool // memberlist was asked to end it
}

func newProofs(cfg Config) *proofs {
	return &proofs{
		source: cfg.Identity, label: cfg.Label, now: cfg.Clock, limit: cfg.MaxMembers,
		fleetTime: func() time.Time { return time.Time{} },
		logger:    cfg.Logger, lines: rate.NewLimiter(1, 16),
		certificates: make(map[keyID]*knownCertificate), instances: make(map[string]provenInstance),
		nodes: make(map[string]*provenNode), ending: make(map[string]*displaced), addrs: make(map[string]struct{}), unproven: make(map[string]listed),
	}
}

// Prove decides whether an instance is what gossip reports, and lists it if it is not. metadata
// ends with the signature.
func (g *Guard) Prove(instance, addr string, metadata []byte) error {
	_, err := g.proofs.prove(announced{name: instance, addr: addr, metadata: metadata})
	return err
}

// Lapsed returns why an instance that was proven is not proven any more, "" if it still is.
func (g *Guard) Lapsed(instance string) (reason string) {
	if instance == g.self {
		return ""
	}
	return g.proofs.lapsed(instance)
}

// RecordGone records whether memberlist takes an instance for dead.
func (g *Guard) RecordGone(instance string, gone bool) { g.proofs.recordGone(instance, gone) }

// ServiceNames returns the services in the certificate that signed metadata. It does not use the
// newest proof of the instance, which an older copy of its metadata can replace.
func (g *Guard) ServiceNames(metadata []byte) string {
	key, _ := signer(metadata[max(0, len(metadata)-MaxSignature):])
	return g.proofs.serviceNames(key)
}

// learn checks a chain and stores it. It returns the verified certificate.
func (p *proofs) learn(chain [][]byte) (*identity.Certified, error) {
	if len(chain) == 0 {
		return nil, errors.New("no certificate in it")
	}
	key := identity.KeyID(chain[0])
	if c, err := p.certificate(key); err == nil {
		return c, nil
	}
	certified, err := p.source.Certify(chain)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, known := p.certificates[key]; !known && len(p.certificates) >= 2*p.limit {
		return nil, fmt.Errorf("%d certificates are known, more are not kept: raise the limit on members", len(p.certificates))
	}
	p.certificates[key] = &knownCertificate{certified, p.now()}
	return certified, nil
}

// certificate returns a certificate that is still valid. It is checked again at each use, because
// it may have expired or be denied since it was learned.
func (p *proofs) certificate(key keyID) (*identity.Certified, error) {
	p.mu.Lock()
	c, known := p.certificates[key]
	if known {
		c.used = p.now()
	}
	p.mu.Unlock()
	if !known {
		return nil, ErrUnproven
	}
	if err := p.source.Recheck(c.Certified); err != nil {
		return nil, err
	}
	return c.Certified, nil
}

// chain returns a certificate in the form in which it is passed on, nil if it is not known.
func (p *proofs) chain(key keyID) [][]byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c, known := p.certificates[key]; known {
		return c.Chain()
	}
	return nil
}

// serviceNames returns the services that a certificate names, none if it is not known.
func (p *proofs) serviceNames(key keyID) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c, known := p.certificates[key]; known {
		return c.Claims.Services
	}
	return ""
}

// addr returns the gossip address that an instance signed, empty if it is not proven.
func (p *proofs) addr(instance string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.instances[instance].addr
}

// gossipsAt reports whether a proven instance signed this gossip address.
func (p *proofs) gossipsAt(addr string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, known := p.addrs[addr]
	return known
}

// announced is what gossip reports about one instance.
type announced struct {
	name, addr  string
	metadata    []byte // followed by the signature
	incarnation uint32
}

// prove decides whether an instance is what gossip reports. Its error is an *unprovenError, which
// is recorded in the list of the unproven.
func (p *proofs) prove(t announced) (gossip.Metadata, error) {
	m, err := p.verifyInstance(t)
	if err == nil {
		return m, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	id, epoch, ok := gossip.SplitInstance(t.name)
	if !ok || err.kind == unprovenSuperseded { // as after each restart: nothing for operators
		return gossip.Metadata{}, err
	}
	news := p.listUnproven(err.kind, Unproven{ID: id, Epoch: epoch, GossipAddr: t.addr, Reason: err.reason})
	if news && err.missing == nil && p.lines.Allow() {
		p.logger.Warn("member left out: its identity is not proven", "member", id, "addr", t.addr, "reason", err.reason)
	}
	return gossip.Metadata{}, err
}

// verifyInstance checks an announcement: what it states about itself, then its certificate, then
// that the two agree, and last the signature, which is the costly check. For the same bytes as last
// time the signature is known, but the certificate is checked again: it may have expired, or be
// denied by now.
func (p *proofs) verifyInstance(t announced) (gossip.Metadata, *unprovenError) {
	refuse := func(kind, format string, args ...any) (gossip.Metadata, *unprovenError) {
		return gossip.Metadata{}, &unprovenError{kind: kind, reason: fmt.Sprintf(format, args...)}
	}
	now := p.now()
	p.mu.Lock()
	checked := bytes.Equal(p.instances[t.name].metadata, t.metadata)
	p.mu.Unlock()

	if len(t.metadata) > memberlist.MetaMaxSize {
		return refuse(unprovenUnsigned, "its metadata is %d bytes, %d are allowed: give it a release of Ringway", len(t.metadata), memberlist.MetaMaxSize)
	}
	if len(t.metadata) <= MaxSignature {
		return refuse(unprovenUnsigned, "its metadata is not signed: give it a certificate and a release that signs its gossip")
	}
	body, signature := t.metadata[:len(t.metadata)-MaxSignature], t.metadata[len(t.metadata)-MaxSignature:]
	m, err := gossip.DecodeMetadata(body)
	switch {
	case err != nil:
		return refuse(unprovenUnsigned, "its metadata cannot be read: %v: give it a release that signs its gossip", err)
	case gossip.InstanceName(m.ID, m.Epoch) != t.name:
		return refuse(unprovenDisagreement, "it is gossiped as %q and its metadata has %q", t.name, gossip.InstanceName(m.ID, m.Epoch))
	case m.GossipAddr == "":
		return refuse(unprovenUnsigned, "its metadata is not signed: upgrade it to a release that signs its gossip")
	case m.GossipAddr != t.addr:
		return refuse(unprovenAddress, "it is gossiped at %s and signed for %s", t.addr, m.GossipAddr)
	case p.future(m.Epoch):
		return refuse(unprovenFuture, "its boot time is %s, which is more than %s ahead of this host and of most members: compare the clocks", time.UnixMilli(int64(min(m.Epoch, 1<<50))).UTC().Format(time.RFC3339), futureEpoch)
	}
	key, _ := signer(signature)
	certificate, err := p.certificate(key)
	if errors.Is(err, ErrUnproven) {
		_, e := refuse(unprovenCertificate, "no member has shown its certificate yet")
		e.missing = &key
		return gossip.Metadata{}, e
	}
	if err != nil {
		return refuse(unprovenCertificate, "its certificate is refused: %v", err)
	}
	if reason := disagreement(m, certificate.Claims); reason != "" {
		return refuse(unprovenDisagreement, "%s", reason)
	}
	if !checked {
		if err := p.verify(certificate, Claim{m.ID, statementMetadata, body, signature}); err != nil {
			return refuse(unprovenSignature, "%v", err)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	known, again := p.instances[t.name] // another goroutine may have added it
	if !again {
		if kind, reason := p.admit(m, now); kind != "" {
			return refuse(kind, "%s", reason)
		}
	}
	if m.Incarnation >= known.incarnation { // else it is an old statement, which replaces nothing
		if known.addr != t.addr {
			p.forgetAddr(known.addr)
		}
		if !bytes.Equal(known.metadata, t.metadata) {
			known.metadata = bytes.Clone(t.metadata)
		}
		known.incarnation, known.addr, known.key = m.Incarnation, t.addr, key
	}
	known.used, known.highest = now, max(known.highest, t.incarnation)
	p.instances[t.name], p.addrs[known.addr] = known, struct{}{}
	delete(p.unproven, t.name)
	return m, nil
}

// admit makes room for a new instance, or returns why there is none. A node has the instances of
// its last two boots: an instance that is gone gives way, else the oldest one. mu is held. Only
// statements with a valid signature come here, so no other member can use up the boots of a node.
// Late gossip about earlier boots is refused before it takes one.
func (p *proofs) admit(m gossip.Metadata, now time.Time) (kind, reason string) {
	node := p.nodes[m.ID]
	if node == nil {
		if len(p.nodes) >= 2*p.limit {
			return unprovenTooMany, fmt.Sprintf("%d nodes are known, more are not admitted: raise the limit on members", len(p.nodes))
		}
		node = &provenNode{boots: rate.NewLimiter(rate.Limit(bootsAMinute/60.0), bootsAtOnce)}
	}
	victim := -1
	if len(node.epochs) >= instancesPerNode {
		victim = slices.IndexFunc(node.epochs, func(epoch uint64) bool { return p.instances[gossip.InstanceName(m.ID, epoch)].gone })
		if victim < 0 && m.Epoch < node.epochs[0] {
			return unprovenSuperseded, "two later boots of its node are alive"
		}
		victim = max(victim, 0)
	}
	if !node.boots.AllowN(now, 1) {
		return unprovenBoots, fmt.Sprintf("its node has started more than %d times in a minute: find out why it ends, or whether a thief uses its certificate", bootsAMinute)
	}
	if victim >= 0 {
		p.displace(m.ID, node.epochs[victim], now)
		node.epochs = slices.Delete(node.epochs, victim, victim+1)
	}
	at, _ := slices.BinarySearch(node.epochs, m.Epoch)
	node.epochs = slices.Insert(node.epochs, at, m.Epoch)
	p.nodes[m.ID] = node
	return "", ""
}

// displace forgets an instance. mu is held.
func (p *proofs) displace(id string, epoch uint64, now time.Time) {
	name := gossip.InstanceName(id, epoch)
	old := p.instances[name]
	delete(p.instances, name)
	p.forgetAddr(old.addr)
	if !old.gone {
		p.ending[name] = &displaced{incarnation: old.highest, since: now}
	}
}

// forget removes an instance that was not used for keepProof. mu is held.
func (p *proofs) forget(name string, i provenInstance) {
	delete(p.instances, name)
	p.forgetAddr(i.addr)
	id, epoch, _ := gossip.SplitInstance(name)
	node := p.nodes[id]
	if node.epochs = slices.DeleteFunc(node.epochs, func(e uint64) bool { return e == epoch }); len(node.epochs) == 0 {
		delete(p.nodes, id)
	}
}

// forgetAddr removes the address of an instance. Another instance at the address is recorded again
// when gossip reports it. mu is held.
func (p *proofs) forgetAddr(addr string) { delete(p.addrs, addr) }

// displaced returns the instances that memberlist must take for dead: those that are new, and
// again also those that it was asked to end before.
func (p *proofs) displaced(again bool) (deaths []gossip.Doubt, news int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, d := range p.ending {
		if d.ended && !again {
			continue
		}
		if !d.ended {
			news++
		}
		d.ended = true
		deaths = append(deaths, gossip.Doubt{Incarnation: d.incarnation, Node: name})
	}
	return deaths, news
}

// recordGone records whether memberlist takes an instance for dead.
func (p *proofs) recordGone(name string, gone bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if gone {
		delete(p.ending, name)
	}
	if known, ok := p.instances[name]; ok {
		known.gone = gone
		p.instances[name] = known
	}
}

// count returns the number of proven instances.
func (p *proofs) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.instances)
}

// future reports whether a boot time is ahead of now, by this host's clock and by those of other
// members: this host's own clock may be behind.
func (p *proofs) future(epoch uint64) bool {
	ahead := func(now time.Time) bool { return epoch > uint64(max(0, now.Add(futureEpoch).UnixMilli())) }
	return ahead(p.now()) && ahead(p.fleetTime())
}

// disagreement returns how metadata and certificate differ; "" if they agree. A certificate
// without a datacenter agrees with any.
func disagreement(m gossip.Metadata, c identity.Claims) string {
	for _, f := range []struct{ name, gossiped, certified string }{
		{"cluster", m.Cluster, c.Cluster}, {"environment", m.Environment, c.Environment},
		{"id", m.ID, c.Node}, {"role", m.Role, string(c.Role)}, {"datacenter", m.Datacenter, c.Datacenter},
	} {
		if f.gossiped != f.certified && (f.name != "datacenter" || f.certified != "") {
			return fmt.Sprintf("it gossips the %s %q, its certificate has %q", f.name, f.gossiped, f.certified)
		}
	}
	return ""
}

// lapsed returns why an instance is not proven any more: its certificate expired or was put on the
// deny list. It returns "" if the instance is still proven. The event loop asks for each member
// every few seconds, which also keeps the proof of a live member from being swept.
func (p *proofs) lapsed(name string) (reason string) {
	p.mu.Lock()
	known, ok := p.instances[name]
	if ok {
		known.used = p.now()
		p.instances[name] = known
	}
	p.mu.Unlock()
	if !ok {
		return "its identity is not proven any more"
	}
	if _, err := p.certificate(known.key); err != nil {
		return "its certificate is refused: " + err.Error()
	}
	return ""
}

// sweep drops everything that was not used for keepProof. A certificate stays as long as an
// instance that it proves.
func (p *proofs) sweep() {
	now := p.now()
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, i := range p.instances {
		if now.Sub(i.used) > keepProof {
			p.forget(name, i)
		} else if c := p.certificates[i.key]; c != nil && c.used.Before(i.used) {
			c.used = i.used
		}
	}
	for key, c := range p.certificates {
		if now.Sub(c.used) > keepProof {
			delete(p.certificates, key)
		}
	}
	for name, d := range p.ending {
		if now.Sub(d.since) > displacedFor {
			delete(p.ending, name)
		}
	}
	for name, u := range p.unproven {
		if now.Sub(u.last) > unprovenFor {
			delete(p.unproven, name)
		}
	}
}
