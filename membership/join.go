package membership

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
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
	for {
		half := n.cfg.RejoinInterval / 2
		select {
		case <-ctx.Done():
			return
		case <-time.After(half + rand.N(2*half)):
			n.rejoin(ctx)
		}
	}
}

// join tries seeds, a few at a time, until it is not alone. It slows down to 15 s
// and never stops: a seed that refuses today may be reconfigured tomorrow.
func (n *Node) join(ctx context.Context) {
	pause := discovery.Backoff()
	watch := n.Watch(ctx) // being found counts as much as finding
	for {
		// Forced: while this node is alone nothing is worth more than a fresh answer,
		// and the pauses keep the questions few.
		err := n.seeds.Refresh(ctx)
		targets := n.seeds.Addrs()
		if len(targets) == 0 && err == nil {
			n.status.set(Status{Joined: true})
			n.logger.Info("no other seed to look for: this node waits to be found")
			return
		}
		rand.Shuffle(len(targets), func(i, j int) { targets[i], targets[j] = targets[j], targets[i] })
		if len(targets) == 0 {
			// err says why
		} else if joinErr := n.joinAny(ctx, targets[:min(maxProbed, len(targets))]); joinErr != nil {
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
// that vanished without leaving.
func (n *Node) rejoin(ctx context.Context) {
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
	if len(seeds) > 0 {
		// Where a seed is missing, its name may mean another address by now.
		if err := n.seeds.Refresh(ctx); err != nil {
			n.logger.Debug("cannot resolve every seed", "err", err)
		}
		seeds = missing()
	}
	var relays, others []netip.AddrPort
	for _, m := range *n.lost.Load() {
		if addr, err := netip.ParseAddrPort(m.addr); err != nil || alive[m.addr] {
			continue
		} else if m.role == RoleWorker {
			others = append(others, addr)
		} else {
			relays = append(relays, addr)
		}
	}
	// One of each: in a large fleet nearly all of the lost are workers, and only a
	// relay or gate gives keys to who missed a rotation.
	var candidates []netip.AddrPort
	for _, kind := range [][]netip.AddrPort{seeds, relays, others} {
		if len(kind) == 0 {
			continue
		}
		if addr := kind[rand.IntN(len(kind))]; !slices.Contains(candidates, addr) {
			candidates = append(candidates, addr)
		}
	}
	if len(candidates) > 0 {
		_ = n.joinAny(ctx, candidates) // counted; the next round tries others
	}
}

// joinAny asks the addresses who they are, all at once, and joins a few of those
// that answered. One success is success.
func (n *Node) joinAny(ctx context.Context, addrs []netip.AddrPort) error {
	reached, errs := discovery.ProbeAll(ctx, addrs, n.probe)
	if ctx.Err() != nil {
		return nil
	}
	if len(reached) == 0 {
		// A member far away can need more than the half second of a probe.
		for _, addr := range addrs {
			var refusal *RefusalError
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
		return errors.Join(reasons...)
	}
	reached = reached[:min(fanout, len(reached))]
	joinErrs := make([]error, len(reached))
	var wg sync.WaitGroup
	for i, addr := range reached {
		wg.Go(func() { joinErrs[i] = n.joinOne(addr.String()) })
	}
	wg.Wait()
	if slices.Contains(joinErrs, nil) || ctx.Err() != nil {
		return nil
	}
	return errors.Join(joinErrs...)
}

// probe exchanges hellos with addr. Its error is typed, unlike that of a join.
func (n *Node) probe(ctx context.Context, addr netip.AddrPort) error {
	conn, _, err := n.transport.dial(ctx, addr.String(), protocolProbe)
	if err == nil {
		return conn.Close()
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
	return fmt.Errorf("join %s: %w", addr, err)
}
