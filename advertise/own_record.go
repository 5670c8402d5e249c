package advertise

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/ringway/ringway/internal/publish"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

// ownRecord is the state of this node's record. The loop owns it.
type ownRecord struct {
	instance      instance // known from the first snapshot on
	role          identity.Role
	attached      bool            // without a record, relays end its sessions
	services      []Service       // as last published
	relay         *RelayStatement // as last published
	sequence      uint64
	published     time.Time
	everPublished bool            // whether the record was ever published
	due           bool            // the record must be published
	heal          bool            // the record must be published even if its content did not change
	waiting       []chan struct{} // calls of Flush
}

func sameServices(a, b []Service) bool {
	return slices.EqualFunc(a, b, Service.equal)
}

// Offer replaces the services that this node offers. If it returns an error, which names
// the service, the value and the allowed values, nothing has changed; on members that are
// not workers it always fails. The record is published immediately, or a publish interval
// after the previous one; of several offers within the interval only the last is
// published, and none that equals the published services. Before Run the offer is kept for
// Run. An attached worker begins with a record without services if there is no offer yet; the
// first offer does not wait for that record. Safe for concurrent use.
func (c *Catalogue) Offer(services []Service) error {
	if id, role := c.self(); id != "" && role != identity.RoleWorker {
		return refuse("role", "member %q has the role %s: only workers offer services: give the node the role %s, with a certificate for that role", id, role, identity.RoleWorker)
	}
	if most := c.cfg.Rules.MaxServicesPerRecord; len(services) > most {
		return refuse("services", "%d services: other members take at most %d of one worker: offer fewer, or raise --max-services-per-record on all members", len(services), most)
	}
	raw, err := Record{NodeID: "this node", Services: services}.Encode()
	if err != nil {
		return err
	}
	const head = MaxNodeIDBytes + 2*9 // largest size of id, epoch and sequence
	if len(raw)+head > maxUnsignedBytes {
		return refuse("too_large", "the record takes %d bytes, more than %d: offer fewer services or shorter tags", len(raw), maxUnsignedBytes-head)
	}
	kept := make([]Service, len(services))
	for i, s := range services {
		kept[i] = s.withDefaults()
		kept[i].Tags = slices.Clone(s.Tags)
	}
	slices.SortFunc(kept, func(a, b Service) int { return strings.Compare(a.Name, b.Name) })
	c.mu.Lock()
	c.desired, c.offered = kept, true
	c.mu.Unlock()
	c.wakeOwn()
	return nil
}

// self returns this node's id and role, "" while they are not known.
func (c *Catalogue) self() (string, identity.Role) {
	if n, ok := c.cfg.Gossip.(interface{ Config() membership.Config }); ok { // has no snapshot before it has started
		return n.Config().ID, n.Config().Role
	}
	if s := c.cfg.Gossip.Snapshot(); s != nil {
		return s.Self().ID, s.Self().Role
	}
	return "", ""
}

// Drain marks every service of this node draining, now and in every later Offer: the node
// is about to stop and takes no new requests. Safe for concurrent use.
func (c *Catalogue) Drain() {
	c.mu.Lock()
	c.draining = true
	c.mu.Unlock()
	c.wakeOwn()
}

// Flush waits until the last Offer or Drain has been passed to gossip, or ctx
// ends. It does not wait until other members have received it. After Run it returns an error.
func (c *Catalogue) Flush(ctx context.Context) error {
	done := make(chan struct{})
	err := c.onLoop(ctx, func() {
		c.noteOwn()
		if !c.own.due {
			close(done)
			return
		}
		c.own.waiting = append(c.own.waiting, done)
	})
	if err != nil {
		return err
	}
	select {
	case <-done:
		return nil
	case <-c.stopped:
		return errStopped
	case <-ctx.Done():
		return ctx.Err()
	}
}

// leaveDelay is how long a leaving member still answers probes, until other members have stopped
// probing it. Otherwise it would be suspected, and the suspicion gossiped.
const leaveDelay = time.Second

// Leave is the end of a member: it offers its services as draining for the time drain, so that
// relays send nothing new before connections are refused, announces that the member leaves, and
// waits while it still answers probes, for the time stay (0 is 1 s). Requests in flight go on. The
// end of ctx ends the waits.
func (c *Catalogue) Leave(ctx context.Context, drain, stay time.Duration) {
	wait := func(d time.Duration) {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}
	c.Drain()
	_ = c.Flush(ctx) // takes a publish interval at most; fails only after Run
	wait(drain)
	if err := c.cfg.Gossip.Leave(ctx); err != nil { // it limits its own time
		c.logger.Warn("cannot announce to the other members that this one leaves", "err", err)
	}
	wait(cmp.Or(stay, leaveDelay))
}

func (c *Catalogue) wakeOwn() {
	publish.Notify(c.ownWake)
}

// noteOwn decides whether the record must be published, and returns its content. It compares what
// is wanted with what was published last, and keeps no list of changes: an offer that is taken back
// within the publish interval publishes nothing.
func (c *Catalogue) noteOwn() ([]Service, *RelayStatement) {
	c.mu.Lock()
	services, offered, draining, relay := slices.Clone(c.desired), c.offered, c.draining, c.stated
	c.mu.Unlock()
	if draining {
		for i := range services {
			services[i].State = Draining
		}
	}
	switch c.own.role {
	case identity.RoleWorker:
		relay = nil
		c.own.due = (offered || c.own.attached) && (!c.own.everPublished || !sameServices(services, c.own.services)) || c.own.heal
	case identity.RoleRelay:
		services = nil
		c.own.due = relay != nil && !relay.equal(c.own.relay) || c.own.heal
		relay = cmp.Or(relay, &RelayStatement{})
	default: // keep the content until the id of this node is known
		c.own.due = c.own.instance.id == "" && (offered || relay != nil)
	}
	return services, relay
}

// publishOwn publishes the record if that is due and the publish interval has passed. It
// returns how long to wait for the interval, 0 if there is nothing to wait for.
//
// The own record takes the same way as those of others, through the store and gossip, so exchanges
// repair it as well.
func (c *Catalogue) publishOwn() (wait time.Duration) {
	services, relay := c.noteOwn()
	defer c.releaseWaiting()
	if !c.own.due || c.own.instance.id == "" {
		return 0
	}
	now := c.cfg.Now()
	// The first services do not wait for the record without any, with which a worker attaches.
	begins := c.own.attached && c.own.sequence == 1 && len(c.own.services) == 0
	if wait := c.own.published.Add(c.cfg.PublishInterval).Sub(now); c.own.everPublished && !begins && wait > 0 {
		return wait
	}
	record := Record{NodeID: c.own.instance.id, Epoch: c.own.instance.epoch, Sequence: c.own.sequence + 1, Services: services, Relay: relay}
	raw, err := record.Encode()
	if err != nil {
		// Offer and State have checked the content; the only remaining error is a sequence at
		// its maximum.
		c.logger.Error("cannot publish the record of this member: restart it for a new epoch", "error", err)
		c.own.due, c.own.heal = false, false
		c.own.everPublished, c.own.services, c.own.relay, c.own.published = true, services, relay, now
		return 0
	}
	c.own.services, c.own.relay, c.own.sequence, c.own.published, c.own.everPublished = services, relay, record.Sequence, now, true
	c.own.due, c.own.heal = false, false
	c.metrics.published.Inc()
	signed := signedPart{statement: statementOf(raw)}
	signed.signature = c.cfg.Gossip.Sign(membership.StatementRecord, signed.statement)
	if e := c.store.write(newEntry(record, raw, signed), now); e != nil {
		c.touch(e.record.NodeID)
		c.spread(e)
	}
	return 0
}

func (c *Catalogue) releaseWaiting() {
	if c.own.due {
		return
	}
	for _, done := range c.own.waiting {
		close(done)
	}
	c.own.waiting = nil
}

// supersedeForeign handles a record in the name of this node that this process did not write: it
// publishes the own record with a higher sequence. A signed record of this kind comes from
// a process with the same key, id and epoch.
//
// The sequence is a Lamport clock of this record: it exceeds each one that was seen for this
// instance, so the own record wins at every member that has the other one.
func (c *Catalogue) supersedeForeign(e *entry) {
	if !writes(c.own.role) {
		return
	}
	c.own.sequence = max(c.own.sequence, e.stamp.sequence)
	c.own.heal = true
	c.wakeOwn()
}

// renewOwn publishes the record again after the certificate that signed it has been
// replaced: members that join later could not check the old signature, and a relay that
// restarts would have no endpoints.
func (c *Catalogue) renewOwn() {
	e := c.store.entries[c.own.instance]
	if e == nil || !writes(c.own.role) {
		return
	}
	if _, signed, err := decodeRecord(e.raw); err == nil && !c.cfg.Gossip.SignedNow(signed.signature) {
		c.own.heal = true
		c.wakeOwn()
	}
}
