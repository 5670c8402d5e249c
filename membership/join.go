package membership

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ringway/ringway/membership/discovery"
)

const (
	// fanout is how many of the seeds that answered are joined: a storm of joiners
	// must not fall on one seed.
	fanout = 3
	// maxProbed is how many seeds are asked in one attempt.
	maxProbed = 10
	// lonelyInterval, and up to half as long more, is how often a worker looks for
	// members while it sees no relay: no request reaches it until it is found.
	lonelyInterval = 2 * time.Second
	// urgentFor is how long a member that was lost is looked for at the full pace, so
	// that a split heals soon. Later it is one more address that does not answer.
	urgentFor = time.Hour
)

// Status says how this node stands with the cluster.
type Status struct {
	// Joined is set once another member was reached, or when there is nobody to
	// look for.
	Joined bool
	// Err is the last failure to join while Joined is false. It is, or wraps, a
	// *RefusalError when a seed said no.
	Err error
}

// statusBoard keeps the Status and wakes those who wait for Joined.
type statusBoard struct {
	mu     sync.Mutex
	status Status
	joined chan struct{}
}

func (b *statusBoard) get() Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.status
}

func (b *statusBoard) set(s Status) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.status = s
	if s.Joined {
		select {
		case <-b.channel():
		default:
			close(b.joined)
		}
	}
}

func (b *statusBoard) channel() chan struct{} {
	if b.joined == nil {
		b.joined = make(chan struct{})
	}
	return b.joined
}

// Status reports whether the cluster was found, and if not, why.
func (n *Node) Status() Status { return n.status.get() }

// WaitReady returns when another member was reached, at once when no seed other
// than this node itself is configured. It never gives up before ctx does; its
// error then carries the last reason.
func (n *Node) WaitReady(ctx context.Context) error {
	n.status.mu.Lock()
	joined := n.status.channel()
	n.status.mu.Unlock()
	select {
	case <-joined:
		return nil
	case <-ctx.Done():
		if err := n.Status().Err; err != nil {
			return fmt.Errorf("not joined: %w", err)
		}
		return fmt.Errorf("not joined: %w", ctx.Err())
	}
}

// keepJoined joins the cluster and then keeps it in one piece: memberlist never
// looks again for a member that it has declared dead, so a split that outlives
// suspicion would last for ever.
func (n *Node) keepJoined(ctx context.Context) {
	n.join(ctx)
	snapshots := n.Watch(ctx)
	lonely, tried := false, newAttempts(n.cfg.RejoinInterval)
	pause := time.NewTimer(n.rejoinPause(lonely))
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case s, open := <-snapshots:
			if !open {
				return
			}
			was := lonely
			if lonely = n.cfg.Role == RoleWorker && len(s.WithRole(RoleRelay)) == 0; lonely && !was {
				pause.Reset(n.rejoinPause(lonely))
			}
		case <-pause.C:
			n.rejoin(ctx, lonely, tried)
			pause.Reset(n.rejoinPause(lonely))
		}
	}
}

// rejoinPause is the time until this node looks again for members that it misses.
func (n *Node) rejoinPause(lonely bool) time.Duration {
	half := n.cfg.RejoinInterval / 2
	pause := half + rand.N(2*half)
	if lonely {
		pause = min(pause, lonelyInterval+rand.N(lonelyInterval/2))
	}
	return pause
}

// join tries seeds, a few at a time, until it is not alone. It slows down to 15 s
// and never stops: a seed that refuses today may be reconfigured tomorrow.
func (n *Node) join(ctx context.Context) {
	pause := discovery.Backoff()
	watch := n.Watch(ctx) // being found counts as much as finding
	for {
		// An answer that led to no member may be older than the cluster.
		err := n.seeds.Recheck(ctx, n.cfg.RejoinInterval)
		targets := n.seeds.Addrs()
		if len(targets) == 0 && err == nil {
			n.status.set(Status{Joined: true})
			n.logger.Info("no other seed to look for: this node waits to be found")
			return
		}
		rand.Shuffle(len(targets), func(i, j int) { targets[i], targets[j] = targets[j], targets[i] })
		if len(targets) == 0 {
			// err says why
		} else if _, joinErr := n.joinAny(ctx, targets[:min(maxProbed, len(targets))]); joinErr != nil {
			err = joinErr
		} else {
			n.status.set(Status{Joined: true})
			n.logger.Info("joined the cluster", "members", n.alive.Load())
			return
		}
		if ctx.Err() != nil {
			return
		}
		if first := n.status.get().Err; first == nil || first.Error() != err.Error() {
			n.logger.Warn("cannot join the cluster yet", "err", err)
		}
		n.status.set(Status{Err: err})

		retry := time.After(pause.NextBackOff())
		for waiting := true; waiting; {
			select {
			case <-ctx.Done():
				return
			case s := <-watch:
				if s != nil && len(s.Members()) > 1 {
					n.status.set(Status{Joined: true})
					n.logger.Info("joined the cluster: another member found this one", "members", len(s.Members()))
					return
				}
			case <-retry:
				waiting = false
			}
		}
	}
}

// rejoin joins addresses that should be members and are not: a seed, and members
// that vanished without leaving. A lonely one asks several seeds at once: any may be
// the one that has a relay behind it. One that sees others waits longer and longer
// for an address that never answers.
func (n *Node) rejoin(ctx context.Context, lonely bool, tried *attempts) {
	alive := make(map[string]bool)
	for _, m := range n.Snapshot().Members() {
		alive[m.GossipAddr] = true
	}
	missing := func() (out []netip.AddrPort) {
		for _, addr := range n.seeds.Addrs() {
			if !alive[addr.String()] {
				out = append(out, addr)
			}
		}
		return out
	}
	seeds := missing()
	alone := len(alive) <= 1
	if len(seeds) > 0 && (lonely || alone) {
		// The name may mean another address by now, whatever its TTL. In company it is
		// enough that the finder asks again when the TTL has passed.
		oldest := n.cfg.RejoinInterval
		if lonely {
			oldest = min(oldest, lonelyInterval)
		}
		if err := n.seeds.Recheck(ctx, oldest); err != nil {
			n.logger.Debug("cannot resolve every seed", "err", err)
		}
		seeds = missing()
	}
	now := time.Now()
	looked, urgent := make(map[netip.AddrPort]bool), make(map[netip.AddrPort]bool)
	for _, addr := range seeds {
		looked[addr] = true
	}
	var relays, others []netip.AddrPort
	for _, m := range *n.lost.Load() {
		addr, err := netip.ParseAddrPort(m.addr)
		if err != nil || alive[m.addr] {
			continue
		}
		looked[addr] = true
		urgent[addr] = urgent[addr] || now.Sub(m.since) < urgentFor
		if m.role == RoleWorker {
			others = append(others, addr)
		} else {
			relays = append(relays, addr)
		}
	}
	tried.keep(func(addr netip.AddrPort) bool { return looked[addr] })
	waits := func(addr netip.AddrPort) bool {
		return !lonely && !alone && !urgent[addr] && !tried.due(addr, n.seeds.Given(addr), now)
	}
	for _, kind := range []*[]netip.AddrPort{&seeds, &relays, &others} {
		*kind = slices.DeleteFunc(*kind, waits)
	}
	var candidates []netip.AddrPort
	if lonely {
		rand.Shuffle(len(seeds), func(i, j int) { seeds[i], seeds[j] = seeds[j], seeds[i] })
		candidates, seeds = seeds[:min(maxProbed, len(seeds))], nil
	}
	// One of each: in a large fleet nearly all of the lost are workers, and only a
	// relay or gate gives keys to who missed a rotation.
	for _, kind := range [][]netip.AddrPort{seeds, relays, others} {
		if len(kind) == 0 {
			continue
		}
		if addr := kind[rand.IntN(len(kind))]; !slices.Contains(candidates, addr) {
			candidates = append(candidates, addr)
		}
	}
	if len(candidates) == 0 {
		return
	}
	answered, _ := n.joinAny(ctx, candidates) // counted; the next round tries others
	if lonely || alone || ctx.Err() != nil {
		return
	}
	for _, addr := range candidates {
		if !urgent[addr] && !slices.Contains(answered, addr) {
			tried.silent(addr, n.seeds.Given(addr), time.Now())
		}
	}
}

// encounter is an instance that answered a nonce, at the address where it was asked.
type encounter struct {
	id    string
	epoch uint64
	addr  string
}

// newsDelay is how long the news of a member may take after its first packet.
const newsDelay = 2 * time.Second

// meet joins members that send packets to this node and that it does not see. A
// member that restarts without a living seed depends on it: the others know its
// address and have not noticed, so none of them looks for it, and their own news is
// old and not told again before the next exchange of full states.
func (n *Node) meet(ctx context.Context) {
	for {
		var e encounter
		select {
		case <-ctx.Done():
			return
		case e = <-n.guard.met:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(newsDelay):
		}
		addr, err := netip.ParseAddrPort(e.addr)
		m, seen := n.Snapshot().Get(e.id)
		if err != nil || seen && m.Epoch >= e.epoch || n.guard.saidGoodbye(instanceName(e.id, e.epoch)) {
			continue
		}
		n.logger.Debug("joining a member that sends packets and is not seen", "member", e.id, "addr", e.addr)
		_, _ = n.joinAny(ctx, []netip.AddrPort{addr}) // counted; the next one is tried after it
	}
}

// joinAny asks the addresses who they are, all at once, and joins a few of those
// that answered, and says which answered, be it by a refusal. One success is success.
func (n *Node) joinAny(ctx context.Context, addrs []netip.AddrPort) (answered []netip.AddrPort, err error) {
	reached, errs := discovery.ProbeAll(ctx, addrs, n.probe)
	if ctx.Err() != nil {
		return nil, nil
	}
	var refusal *RefusalError
	answered = slices.Clone(reached)
	for _, addr := range addrs {
		if errors.As(errs[addr], &refusal) {
			answered = append(answered, addr)
		}
	}
	if len(reached) == 0 {
		// A member far away can need more than the half second of a probe.
		for _, addr := range addrs {
			if !errors.As(errs[addr], &refusal) {
				reached = append(reached, addr)
				break
			}
			n.metrics.joins.WithLabelValues(joinRefused).Inc()
		}
	}
	if len(reached) == 0 {
		// In one order, so that the same reasons are not logged as new ones.
		slices.SortFunc(addrs, netip.AddrPort.Compare)
		reasons := make([]error, len(addrs))
		for i, addr := range addrs {
			reasons[i] = errs[addr]
		}
		return answered, joinError(reasons)
	}
	reached = reached[:min(fanout, len(reached))]
	joinErrs := make([]error, len(reached))
	var wg sync.WaitGroup
	for i, addr := range reached {
		wg.Go(func() { joinErrs[i] = n.joinOne(addr.String()) })
	}
	wg.Wait()
	for i, addr := range reached {
		if joinErrs[i] == nil || errors.As(joinErrs[i], &refusal) {
			answered = append(answered, addr)
		}
	}
	if slices.Contains(joinErrs, nil) || ctx.Err() != nil {
		return answered, nil
	}
	return answered, joinError(joinErrs)
}

// probe exchanges hellos with addr. Its error is typed, unlike that of a join.
func (n *Node) probe(ctx context.Context, addr netip.AddrPort) error {
	conn, _, err := n.transport.dial(ctx, addr.String(), protocolProbe)
	if err == nil {
		_ = conn.Close() // the hello was all; the other end may have closed first, which TLS reports
		return nil
	}
	var refusal *RefusalError
	if errors.As(err, &refusal) && refusal.Field == fieldKey && n.cfg.Identity != nil && n.cfg.Keyring != nil {
		err := n.catchUpKeys(ctx, addr.String())
		if errors.Is(err, errOlderKeys) {
			err = n.bringKeys(ctx, addr.String())
		}
		if err != nil {
			n.logger.Debug("gossip keys stay different", "addr", addr, "err", err)
			return refusal // which is logged
		}
		return nil
	}
	return err
}

func (n *Node) joinOne(addr string) error {
	_, err := n.list.Join([]string{addr})
	if err == nil {
		n.metrics.joins.WithLabelValues(joinOK).Inc()
		return nil
	}
	// memberlist's error is text; the typed reason is the transport's.
	if refusal := n.transport.refusals.get(addr); refusal != nil {
		n.metrics.joins.WithLabelValues(joinRefused).Inc()
		return refusal
	}
	n.metrics.joins.WithLabelValues(joinFailed).Inc()
	return fmt.Errorf("join %s: %s", addr, oneLine(err, "failed to join "+addr+": "))
}

// oneLine writes memberlist's list of errors, which is text over several lines, on one.
func oneLine(err error, prefix string) string {
	var reasons []string
	for line := range strings.Lines(err.Error()) {
		line = strings.TrimPrefix(strings.TrimSpace(line), "* ")
		if line == "" || strings.HasSuffix(line, "occurred:") {
			continue
		}
		reasons = append(reasons, strings.TrimPrefix(line, prefix))
	}
	return strings.Join(reasons, "; ")
}

// joinError is why none of several seeds could be joined, on one line.
type joinError []error

func (e joinError) Error() string {
	reasons := make([]string, len(e))
	for i, err := range e {
		reasons[i] = err.Error()
	}
	return strings.Join(reasons, "; ")
}

// Unwrap gives the reasons to errors.Is and errors.As.
func (e joinError) Unwrap() []error { return e }
