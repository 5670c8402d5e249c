package presence

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/loglimit"
	"github.com/ringway/ringway/internal/metric"
	"github.com/ringway/ringway/internal/publish"
	"github.com/ringway/ringway/internal/session"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

const (
	// intervalPerMember times the number of members is the least time between two snapshots of a
	// burst, and longestInterval the most: with thousands of workers changes come all the time, and
	// for each snapshot a relay checks all members and plans again, which takes some milliseconds.
	// A worker counts after two snapshots: the first asks for its proof.
	intervalPerMember = 200 * time.Microsecond
	longestInterval   = 400 * time.Millisecond
	// recheckInterval is how often certificates are checked again, which can expire or be denied.
	recheckInterval = 5 * time.Second
	// askAgain is after how long a proof that did not come is wanted from another relay.
	askAgain = 2 * time.Second
	// departuresKept and departuresFor bound the departures of attached workers in snapshots.
	departuresKept = 1024
	departuresFor  = time.Hour
)

// Fleet is a node's view of the fleet with the attached workers. It has the methods of the node; of
// those that are declared here the answers contain attached workers.
type Fleet struct {
	*membership.Node
	cfg     membership.Config
	logger  *slog.Logger
	lines   *loglimit.Limiter // of log lines about workers that come and go
	metrics *metrics
	wake    chan struct{} // capacity 1: a list or a proof has changed

	snapshots publish.Value[membership.Snapshot]

	mu     sync.Mutex // guards the fields below
	take   func(ctx context.Context, raw []byte) (author string, epoch, sequence uint64, err error)
	own    log
	proofs map[string]proof // of the own list, by id
	lists  map[string]*foreign
	// certificates of listed workers; records has the sequences that the catalogue has.
	certificates map[keyID]*identity.Certified
	standing     map[keyID]bool // whether each was valid at the last recheck
	records      map[instance]uint64
	asked        map[instance]time.Time
	choices      // of all lists
	left         map[instance]struct{}
	departed     []membership.Departure // oldest first
	feeds        map[*feed]struct{}
	full         bool
	version      uint64
	merged       versions

	running sync.WaitGroup
}

// versions states which snapshot contains which one of the node.
type versions struct {
	base uint64 // the newest snapshot of the node that was merged
	at   uint64 // the version of the first snapshot with it
}

type metrics struct {
	workers *prometheus.GaugeVec
	failed  *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	f := metric.With(reg)
	m := &metrics{
		workers: f.GaugeVec("ringway_presence_workers", "Attached workers: listed by this relay (own), seen in all lists (seen), and of these left out for now, because their certificate or record is not here yet (unproven).", "state"),
		failed:  f.CounterVec("ringway_presence_problems_total", "Problems with the lists of attached workers, by reason: stream (one from another relay ended), places (none was left for one to another member), replaced (one to a member that opened more), malformed (a frame), gap (a change is missing, so the whole list is read again), hash (a list differs from that of its relay), certificate or record (of a listed worker, refused).", "reason"),
	}
	metric.StartAtZero(m.failed, problemStream, problemPlaces, problemReplaced, problemMalformed, problemGap, problemHash, problemCertificate, problemRecord)
	for _, state := range []string{"own", "seen", "unproven"} {
		m.workers.WithLabelValues(state)
	}
	return m
}

// New returns the fleet of a node that has not started.
func New(node *membership.Node, logger *slog.Logger, reg prometheus.Registerer) *Fleet {
	fleet := &Fleet{
		Node: node, cfg: node.Config(), logger: logger, lines: loglimit.New(logger), wake: make(chan struct{}, 1),
		own: log{list: *newList()}, proofs: map[string]proof{}, lists: map[string]*foreign{}, certificates: map[keyID]*identity.Certified{},
		records: map[instance]uint64{}, asked: map[instance]time.Time{}, choices: newChoices(), left: map[instance]struct{}{}, feeds: map[*feed]struct{}{},
		metrics: newMetrics(reg),
	}
	node.HandleStream(protocol, fleet.serve)
	return fleet
}

// Reasons of ringway_presence_problems_total.
const (
	problemStream      = "stream"
	problemPlaces      = "places"
	problemReplaced    = "replaced"
	problemMalformed   = "malformed"
	problemGap         = "gap"
	problemHash        = "hash"
	problemCertificate = "certificate"
	problemRecord      = "record"
)

// HandleRecords registers the function that takes the records of attached workers. The catalogue calls
// the function kept with each record that it has, and with sequence 0 when it has dropped one.
func (f *Fleet) HandleRecords(take func(ctx context.Context, raw []byte) (author string, epoch, sequence uint64, err error)) (kept func(author string, epoch, sequence uint64)) {
	f.take = take
	return f.kept
}

// kept records what the catalogue has of a life of a worker: what it has dropped is wanted again once
// the worker is listed, as what was never here.
func (f *Fleet) kept(author string, epoch, sequence uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	of := instance{author, epoch}
	if before, had := f.records[of]; sequence == 0 && !had || sequence > 0 && sequence <= before {
		return
	}
	if f.changed(author); sequence > 0 {
		f.records[of] = sequence
		return
	}
	delete(f.records, of)
	f.notify()
}

// Snapshot returns the newest snapshot, nil before the node has started.
func (f *Fleet) Snapshot() *membership.Snapshot {
	if s := f.snapshots.Load(); s != nil {
		return s
	}
	return f.Node.Snapshot()
}

// Watch delivers the current snapshot, then always the newest.
func (f *Fleet) Watch(ctx context.Context) <-chan *membership.Snapshot { return f.snapshots.Watch(ctx) }

// epochOf returns the epoch of the life of a worker that this relay sees, 0 for none, and whether
// another kind of member has the id.
func (f *Fleet) epochOf(id string) (epoch uint64, taken bool) {
	s := f.Snapshot()
	if s == nil {
		return 0, false
	}
	m, there := s.Get(id)
	if !there {
		return 0, false
	}
	return m.Epoch, m.Role != identity.RoleWorker
}

// Status returns the status of the node, with the version of a snapshot of this fleet.
func (f *Fleet) Status() membership.Status {
	s := f.Node.Status()
	f.mu.Lock()
	defer f.mu.Unlock()
	s.Full = s.Full || f.full
	if s.Version > f.merged.base {
		s.Version = ^uint64(0) // no snapshot has it yet
	} else {
		s.Version = f.merged.at
	}
	return s
}

// Informed reports whether the lists of all live relays, and the records in them, have arrived. A
// relay that does not answer is not waited for longer than a few seconds.
func (f *Fleet) Informed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	waited := time.Duration(0)
	for _, l := range f.lists {
		since := time.Since(l.began)
		if !l.settled && since < settleTime {
			return false
		}
		waited = max(waited, since)
	}
	return f.missing == 0 || waited >= 2*settleTime
}

// Verify checks that the member with the given id made the statement: an attached worker by the
// certificate that came with its listing, any other as the node does.
func (f *Fleet) Verify(author string, kind membership.Statement, statement, signature []byte) error {
	if key, ok := session.Signer(signature); ok && kind == membership.StatementRecord && f.cfg.Identity != nil {
		f.mu.Lock()
		certificate := f.certificates[key]
		f.mu.Unlock()
		if certificate != nil {
			if err := f.cfg.Identity.Recheck(certificate); err != nil {
				return err
			}
			return session.Verify(certificate, f.label(), author, statement, signature)
		}
	}
	return f.Node.Verify(author, kind, statement, signature)
}

func (f *Fleet) label() string { return f.cfg.Cluster + "/" + f.cfg.Environment }

// Run merges the snapshots of the node with the lists, until ctx ends and all goroutines have.
func (f *Fleet) Run(ctx context.Context) error {
	defer f.lines.Stop()
	defer f.running.Wait()
	nodes := f.Node.Watch(ctx)
	recheck := time.NewTicker(recheckInterval)
	defer recheck.Stop()
	again := time.NewTicker(askAgain)
	defer again.Stop()
	pacer, pending := publish.NewPacer(), false
	var base *membership.Snapshot
	for {
		select {
		case <-ctx.Done():
			return nil
		case s, ok := <-nodes:
			if !ok {
				return nil
			}
			base, pending = s, true
			f.follow(ctx, s)
		case <-f.wake:
			pending = true
		case <-recheck.C:
			f.mu.Lock()
			f.recheck()
			f.mu.Unlock()
			pending = true
		case <-again.C:
			f.mu.Lock()
			pending = pending || f.missing > 0 || len(f.asked) > 0
			f.mu.Unlock()
		case <-pacer.C:
		}
		if pending && base != nil && pacer.May() {
			pending = false
			n := f.merge(ctx, base)
			pacer.Begin(interval(n))
		}
	}
}

// interval returns the least time between two snapshots of n members.
func interval(n int) time.Duration { return min(time.Duration(n)*intervalPerMember, longestInterval) }

func (f *Fleet) notify() {
	publish.Notify(f.wake)
}

// merge publishes a snapshot if it differs from the last one, and asks for what is missing. It
// returns the number of members.
func (f *Fleet) merge(ctx context.Context, base *membership.Snapshot) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	wants := f.choose(now)
	members := f.join(base.Members())
	f.metrics.workers.WithLabelValues("own").Set(float64(len(f.own.workers)))
	f.metrics.workers.WithLabelValues("seen").Set(float64(len(f.best) + f.missing))
	f.metrics.workers.WithLabelValues("unproven").Set(float64(f.missing))
	for relay, wanted := range wants {
		if l := f.lists[relay]; l != nil {
			l.want(wanted)
		} else { // the own list: the catalogue has dropped what a session brought
			f.proveOwn(ctx, wanted)
		}
	}
	f.publish(base, members, now)
	f.sweep(now)
	return len(members)
}

// member returns a listed worker, whose certificate is here, as a member.
func (f *Fleet) member(w listed) membership.Member {
	m := membership.Member{
		ID: w.id, Epoch: w.epoch, Role: identity.RoleWorker, Cluster: f.cfg.Cluster, Environment: f.cfg.Environment,
		Datacenter: w.datacenter, Region: w.region, GossipAddr: netip.AddrPortFrom(w.host, 0).String(), Version: w.version,
		Draining: w.draining, Attached: true,
	}
	if f.cfg.Identity != nil {
		m.ServiceNames = f.certificates[w.key].Claims.Services
	}
	return m
}

// publish publishes a snapshot if it differs from the last one. mu is held.
func (f *Fleet) publish(base *membership.Snapshot, members []membership.Member, now time.Time) {
	old := f.snapshots.Load()
	next := membership.NewSnapshot(max(f.version+1, base.Version()), f.cfg.ID, members)
	f.departed = slices.DeleteFunc(f.departed, func(d membership.Departure) bool {
		_, back := next.Get(d.Member.ID)
		return back || now.Sub(d.At) > departuresFor
	})
	changes := membership.Diff(old, next)
	for _, m := range slices.Concat(changes.Left, changes.Failed) {
		if m.Attached {
			f.departs(m, now)
		}
	}
	if over := len(f.departed) - departuresKept; over > 0 {
		f.departed = slices.Delete(f.departed, 0, over)
	}
	joined := changes.Joined
	for _, r := range slices.Concat(changes.Superseded, changes.Changed) {
		if !r.Old.Attached || r.Old.Epoch != r.New.Epoch {
			joined = append(joined, r.New)
		}
	}
	for _, m := range joined {
		if m.Attached {
			f.lines.Log(slog.LevelInfo, "member joined", "member", m.ID, "role", m.Role, "addr", m.GossipAddr, "attached", true)
		}
	}
	changed := old == nil || old.Degraded() != base.Degraded() ||
		len(changes.Joined)+len(changes.Left)+len(changes.Failed)+len(changes.Superseded)+len(changes.Changed) > 0
	if !changed && base.Version() <= f.merged.base {
		return
	}
	f.version = next.Version()
	if base.Version() > f.merged.base {
		f.merged = versions{base.Version(), f.version}
	}
	departures := slices.Clone(base.Departures())
	for _, d := range f.departed {
		if _, twice := base.Departed(d.Member.ID); !twice {
			departures = append(departures, d)
		}
	}
	f.snapshots.Store(next.WithDepartures(departures, base.Degraded()))
}

// departs remembers and logs the end of an attached worker. mu is held.
func (f *Fleet) departs(m membership.Member, now time.Time) {
	d, level := membership.Departure{Member: m, Reason: membership.Failed, At: now}, slog.LevelWarn
	if _, said := f.left[instance{m.ID, m.Epoch}]; said {
		d.Reason, level = membership.Left, slog.LevelInfo
	}
	f.lines.Log(level, "member "+string(d.Reason), "member", m.ID, "role", m.Role, "addr", m.GossipAddr, "attached", true)
	f.departed = append(f.departed, d)
}

// spare is how many entries of no worker are kept.
const spare = 1024

// sweep forgets what belongs to workers that no list has. mu is held.
func (f *Fleet) sweep(now time.Time) {
	current := func(i instance) bool { return f.best[i.id].epoch == i.epoch }
	if len(f.records) > 2*len(f.best)+spare { // a worker that attaches is in no list for a moment
		maps.DeleteFunc(f.records, func(i instance, _ uint64) bool { return !current(i) })
	}
	if len(f.asked) > 0 {
		maps.DeleteFunc(f.asked, func(i instance, at time.Time) bool { return now.Sub(at) >= askAgain })
	}
	if len(f.left) > departuresKept { // those that are gone have been logged
		maps.DeleteFunc(f.left, func(i instance, _ struct{}) bool { return !current(i) })
	}
	if n := len(f.certificates); n > 2*len(f.best)+spare || n/2 > f.cfg.MaxMembers { // far below what learn takes
		used := make(map[keyID]struct{}, len(f.best))
		for _, c := range f.best {
			used[c.key] = struct{}{}
		}
		maps.DeleteFunc(f.certificates, func(key keyID, _ *identity.Certified) bool { _, in := used[key]; return !in })
	}
}

// learn checks a chain and remembers its certificate.
func (f *Fleet) learn(id string, chain [][]byte) (key keyID, err error) {
	if f.cfg.Identity == nil {
		return key, nil
	}
	if len(chain) == 0 {
		return key, errors.New("no certificate")
	}
	key = identity.KeyID(chain[0])
	f.mu.Lock()
	certificate := f.certificates[key]
	f.mu.Unlock()
	if certificate == nil {
		if certificate, err = f.cfg.Identity.Certify(chain); err != nil {
			return key, err
		}
	}
	if certificate.Claims.Node != id || certificate.Claims.Role != identity.RoleWorker {
		return key, fmt.Errorf("the certificate is of %s", certificate.Claims)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.certificates[key] == nil && len(f.certificates) >= 4*f.cfg.MaxMembers {
		return key, errors.New("too many certificates: raise --max-members")
	}
	f.certificates[key] = certificate
	f.changed(id)
	return key, nil
}

// takeRecord passes a record to the catalogue, and checks whose it is.
func (f *Fleet) takeRecord(ctx context.Context, of instance, raw []byte) (sequence uint64, err error) {
	author, epoch, sequence, err := f.take(ctx, raw)
	if err != nil {
		return 0, err
	}
	if author != of.id || epoch != of.epoch {
		return 0, fmt.Errorf("the record is of %s, epoch %d", author, epoch)
	}
	return sequence, nil
}
