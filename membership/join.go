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

	"github.com/ringway/ringway/internal/discovery"
	"github.com/ringway/ringway/membership/identity"
)

const (
	// fanout is how many of the addresses that answered are joined, so that many joining
	// members do not overload one seed.
	fanout = 3
	// againAfter, plus up to as much, is when a member that has joined exchanges states with
	// one more seed. Of members that start together each one has joined before others, and
	// gossip takes seconds for the last of these.
	againAfter = time.Second
	// maxProbed is how many seeds are contacted in one attempt.
	maxProbed = 10
	// lonelyInterval, plus up to half of it, is how often a worker looks for members while
	// it sees no relay: it gets no requests until it finds one.
	lonelyInterval = 2 * time.Second
	// urgentFor is how long a lost member is looked for at the full rate, so that a split
	// heals soon. Later it is treated like any address that does not answer.
	urgentFor = time.Hour
)

// WaitReady returns when another member was reached, and immediately if no other seed than
// this node itself is configured. It waits until ctx ends; its error then contains the last
// reason.
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

// keepJoined joins the cluster and then keeps it together: memberlist never contacts a member
// again that it has declared dead, so without this a split that outlives suspicion would last
// forever.
//
// A snapshot without a relay shortens the pause of a worker and begins no attempt: the new pause is
// random as well, so workers that lose their last relay together do not all try at the same time.
func (n *Node) keepJoined(ctx context.Context) {
	n.join(ctx)
	again := time.After(againAfter + rand.N(againAfter))
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
			if lonely = n.cfg.Role == identity.RoleWorker && len(s.WithRole(identity.RoleRelay)) == 0; lonely && !was {
				pause.Reset(n.rejoinPause(lonely))
			}
		case <-again:
			n.joinAgain()
		case <-pause.C:
			n.rejoin(ctx, lonely, tried)
			pause.Reset(n.rejoinPause(lonely))
		}
	}
}

// joinAgain exchanges states with one of the seeds that are seen alive. This node itself may be a seed.
func (n *Node) joinAgain() {
	alive := make(map[string]bool)
	for _, m := range n.Snapshot().Members() {
		alive[m.GossipAddr] = m.ID != n.cfg.ID
	}
	seeds := slices.DeleteFunc(n.seeds.Addrs(), func(addr netip.AddrPort) bool { return !alive[addr.String()] })
	if len(seeds) > 0 {
		_ = n.joinOne(seeds[rand.IntN(len(seeds))].String()) // errors are counted, and gossip goes on
	}
}

// rejoinPause returns the time until this node looks again for missing members. The pause is drawn
// between a half and one and a half of the interval.
func (n *Node) rejoinPause(lonely bool) time.Duration {
	half := n.cfg.RejoinInterval / 2
	pause := half + rand.N(2*half)
	if lonely {
		pause = min(pause, lonelyInterval+rand.N(lonelyInterval/2))
	}
	return pause
}

// join tries seeds, a few at a time, until this node is not alone. The interval grows to 15 s,
// and join never stops: a seed that refuses now may be reconfigured later.
func (n *Node) join(ctx context.Context) {
	pause := discovery.Backoff()
	watch := n.Watch(ctx) // another member may also join this node
	for {
		// The last DNS answer led to no member, so look the names up again.
		err := n.seeds.Recheck(ctx, n.cfg.RejoinInterval)
		targets := n.seeds.Addrs()
		if len(targets) == 0 && err == nil {
			n.joined()
			n.logger.Info("no other seed is configured: waiting until another member joins this node")
			return
		}
		rand.Shuffle(len(targets), func(i, j int) { targets[i], targets[j] = targets[j], targets[i] })
		if len(targets) == 0 {
			err = fmt.Errorf("%w: correct --join or the DNS", err)
		} else if _, joinErr := n.joinAny(ctx, targets[:min(maxProbed, len(targets))], fanout-1, n.probe); joinErr != nil {
			err = joinErr
		} else if ctx.Err() != nil {
			return // the attempt was cut off
		} else {
			n.awaitOthers(watch)
			n.joined()
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
					n.joined()
					n.logger.Info("joined the cluster: another member contacted this one", "members", len(s.Members()))
					return
				}
			case <-retry:
				waiting = false
			}
		}
	}
}

// joined reports that this node is a member of the cluster.
func (n *Node) joined() {
	n.status.set(Status{Joined: true, Version: n.Snapshot().Version()})
}

// unseenFor is how long a member that was reached may be missing in the snapshots: its proof
// is checked first, and it may be refused.
const unseenFor = 5 * time.Second

// awaitOthers waits until a snapshot shows the members that were reached. Without that, a
// relay would believe for a moment that it is alone, and that all services are known.
func (n *Node) awaitOthers(snapshots <-chan *Snapshot) {
	limit := time.NewTimer(unseenFor)
	defer limit.Stop()
	for {
		select {
		case s := <-snapshots:
			if s == nil || len(s.Members()) > 1 { // nil: the node stops
				return
			}
		case <-limit.C:
			return
		}
	}
}

// rejoin joins addresses that should be members but are not: a seed, and members that vanished
// without leaving. A lonely node contacts several seeds at the same time, because any of them
// may lead to a relay. A node that sees others waits longer and longer for an address that
// never answers.
//
// For others a round has one address of each kind at most: a seed, a lost relay or gate, another
// lost member. One of them is enough to heal a split, because the exchange of states shows both
// sides to each other. A member that was lost in the last hour is always due, any other address
// when its pause is over.
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
	if alone || lonely && len(seeds) > 0 {
		// A lonely node looks the names up again, whatever their TTL. For others it is enough
		// that the finder does so when the TTL has passed. A seed that led to this node itself is
		// listed again only by a refresh.
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
	wanted, urgent := make(map[netip.AddrPort]bool), make(map[netip.AddrPort]bool)
	for _, addr := range seeds {
		wanted[addr] = true
	}
	var relays, others []netip.AddrPort
	for _, m := range *n.lost.Load() {
		addr, err := netip.ParseAddrPort(m.addr)
		if err != nil || alive[m.addr] || now.Sub(m.since) > lostTTL { // the table forgets it only when another fails
			continue
		}
		wanted[addr] = true
		urgent[addr] = urgent[addr] || now.Sub(m.since) < urgentFor
		if m.role.Relays() {
			relays = append(relays, addr)
		} else {
			others = append(others, addr)
		}
	}
	// An address that came back, or is not wanted any more, begins with short pauses the next time.
	tried.keep(func(addr netip.AddrPort) bool { return wanted[addr] })
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
	// One of each kind: in a large fleet nearly all lost members are workers, and only a
	// relay or gate gives keys to a member that missed a rotation.
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
	probe := n.probeUnseen
	if lonely {
		probe = n.probe // a member that is seen may know a relay
	}
	answered, _ := n.joinAny(ctx, candidates, fanout, probe) // errors are counted; the next round tries others
	if lonely || alone || ctx.Err() != nil {
		return
	}
	// Only silence makes pauses longer, and an address that leads to no other member. At one that
	// refuses there is a member, and its operator may correct what differs at any time.
	for _, addr := range candidates {
		if !urgent[addr] && !slices.Contains(answered, addr) {
			tried.silent(addr, n.seeds.Given(addr), time.Now())
		}
	}
}

// joinAny probes all addresses simultaneously and joins at most that many of those that
// answered. It returns all addresses that answered, including those that refused. It succeeds if one
// join succeeds.
//
// The hello comes before memberlist's join, because it is cheap and its errors have types:
// memberlist would exchange all states with each address, and returns only text.
func (n *Node) joinAny(ctx context.Context, addrs []netip.AddrPort, most int, probe probeFunc) (answered []netip.AddrPort, err error) {
	reached, errs := discovery.ProbeAll(ctx, addrs, probe)
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
	reached = append(reached, n.agreeOnKeys(errs, len(reached) > 0)...)
	if len(reached) == 0 {
		// Distant members can need more than the half second of a probe.
		for _, addr := range addrs {
			if errors.Is(errs[addr], errNoOther) {
				continue
			}
			if !errors.As(errs[addr], &refusal) {
				reached = append(reached, addr)
				break
			}
			n.metrics.joins.WithLabelValues(joinRefused).Inc()
		}
	}
	if len(reached) == 0 {
		// A fixed order, so that equal reasons are not logged again.
		slices.SortFunc(addrs, netip.AddrPort.Compare)
		reasons := make([]error, len(addrs))
		for i, addr := range addrs {
			reasons[i] = errs[addr]
		}
		return answered, joinError(reasons)
	}
	reached = reached[:min(most, len(reached))]
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

// agreeOnKeys returns the addresses that refused this member because of the keys and accept it now. If
// others were reached it immediately returns none, and its work for those that refused continues.
func (n *Node) agreeOnKeys(errs map[netip.AddrPort]error, others bool) (agreed []netip.AddrPort) {
	var mu sync.Mutex
	var asking sync.WaitGroup
	for addr, err := range errs {
		var refusal *RefusalError
		if !errors.As(err, &refusal) || refusal.Field != fieldKey {
			continue
		}
		if others {
			n.wg.Go(func() { n.agreeOnKeysWith(addr.String(), refusal) })
			continue
		}
		asking.Go(func() {
			if n.agreeOnKeysWith(addr.String(), refusal) {
				mu.Lock()
				defer mu.Unlock()
				agreed = append(agreed, addr)
			}
		})
	}
	asking.Wait()
	return agreed
}

// agreeOnKeysWith reports whether two members have the same keys now of which one has missed a rotation:
// the other refused this one because of the keys alone. Certificates prove the two to each other, so the
// one with the older use takes the keys of the other. That takes more round trips than a probe may.
func (n *Node) agreeOnKeysWith(addr string, refusal *RefusalError) bool {
	if refusal.Field != fieldKey || n.cfg.Identity == nil || n.cfg.Keyring == nil {
		return false
	}
	err := n.catchUpKeys(n.closing, addr)
	if errors.Is(err, errOlderKeys) {
		err = n.bringKeys(n.closing, addr)
	}
	if err != nil {
		n.logger.Debug("gossip keys stay different", "addr", addr, "err", err)
	}
	return err == nil
}

// joinOne has memberlist exchange all states with an address, in both directions. A distant member
// that no probe has reached may refuse because of the keys; then it joins once more if they agree.
func (n *Node) joinOne(addr string) error {
	_, err := n.list.Join([]string{addr})
	// memberlist returns only text; the transport has the typed reason.
	refusal := n.transport.refusals.get(addr)
	if err != nil && refusal != nil && n.agreeOnKeysWith(addr, refusal) {
		_, err = n.list.Join([]string{addr})
		refusal = n.transport.refusals.get(addr)
	}
	if err == nil {
		n.metrics.joins.WithLabelValues(joinOK).Inc()
		return nil
	}
	if refusal != nil {
		n.metrics.joins.WithLabelValues(joinRefused).Inc()
		return refusal
	}
	n.metrics.joins.WithLabelValues(joinFailed).Inc()
	return fmt.Errorf("join %s: %s: start a member there and open its port, or correct --join", addr, oneLine(err, "failed to join "+addr+": "))
}

// oneLine writes memberlist's list of errors, a text of several lines, on one line.
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

// joinError holds the errors of several seeds. Its text is one line.
type joinError []error

func (e joinError) Error() string {
	reasons := make([]string, len(e))
	for i, err := range e {
		reasons[i] = err.Error()
	}
	return strings.Join(reasons, "; ")
}

// Unwrap returns the errors for errors.Is and errors.As.
func (e joinError) Unwrap() []error { return e }
