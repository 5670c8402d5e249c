package membership

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
)

const (
	// fanout is how many seeds are tried at once while alone: one dead seed must
	// not cost a timeout, and a storm of joiners must not fall on one seed.
	fanout = 3
	// resolveTimeout bounds the lookup of one seed name.
	resolveTimeout = 2 * time.Second
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
	pause := &backoff.ExponentialBackOff{
		InitialInterval: 500 * time.Millisecond, RandomizationFactor: 0.25,
		Multiplier: 2, MaxInterval: 15 * time.Second,
	}
	pause.Reset()
	watch := n.Watch(ctx) // being found counts as much as finding
	for {
		targets, err := n.seedAddrs(ctx)
		if len(targets) == 0 && err == nil {
			n.status.set(Status{Joined: true})
			n.logger.Info("no other seed to look for: this node waits to be found")
			return
		}
		rand.Shuffle(len(targets), func(i, j int) { targets[i], targets[j] = targets[j], targets[i] })
		if joinErr := n.joinAny(ctx, targets[:min(fanout, len(targets))]); joinErr != nil {
			err = joinErr
		} else if len(targets) > 0 {
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

// rejoin joins one address that should be a member and is not: a seed, or a
// member that vanished without leaving.
func (n *Node) rejoin(ctx context.Context) {
	seeds, _ := n.seedAddrs(ctx)
	candidates := append(seeds, *n.lost.Load()...)
	alive := make(map[string]bool)
	for _, m := range n.Snapshot().Members() {
		alive[m.GossipAddr] = true
	}
	candidates = slices.DeleteFunc(candidates, func(addr string) bool { return alive[addr] })
	if len(candidates) == 0 {
		return
	}
	_ = n.joinAny(ctx, []string{candidates[rand.IntN(len(candidates))]})
}

// joinAny joins the addresses side by side; one success is success.
func (n *Node) joinAny(ctx context.Context, addrs []string) error {
	errs := make([]error, len(addrs))
	var wg sync.WaitGroup
	for i, addr := range addrs {
		wg.Go(func() { errs[i] = n.joinOne(ctx, addr) })
	}
	wg.Wait()
	if slices.Contains(errs, nil) || ctx.Err() != nil {
		return nil
	}
	return errors.Join(errs...)
}

func (n *Node) joinOne(ctx context.Context, addr string) error {
	_, err := n.list.Join([]string{addr})
	if err == nil {
		n.metrics.joins.WithLabelValues("ok").Inc()
		return nil
	}
	// memberlist's error is text; the typed reason is the transport's.
	if refusal := n.transport.refusals.get(addr); refusal != nil {
		if refusal.Field == fieldKey && n.cfg.Identity != nil && n.cfg.Keyring != nil {
			if err := n.catchUpKeys(ctx, addr); err != nil {
				n.logger.Warn("cannot catch up with the fleet's gossip keys", "addr", addr, "err", err)
			} else if _, err := n.list.Join([]string{addr}); err == nil {
				n.metrics.joins.WithLabelValues("ok").Inc()
				return nil
			}
		}
		n.metrics.joins.WithLabelValues("refused").Inc()
		return refusal
	}
	n.metrics.joins.WithLabelValues("failed").Inc()
	return fmt.Errorf("join %s: %w", addr, err)
}

// seedAddrs turns the seeds into IP:port, without this node's own.
func (n *Node) seedAddrs(ctx context.Context) ([]string, error) {
	var out []string
	var errs []error
	for _, seed := range n.cfg.Seeds {
		host, port, err := splitSeed(seed)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		addrs, err := lookup(ctx, host)
		if err != nil {
			errs = append(errs, fmt.Errorf("resolve seed %q: %w", seed, err))
			continue
		}
		for _, ip := range addrs {
			if addr := net.JoinHostPort(ip.String(), strconv.Itoa(int(port))); addr != n.Addr() {
				out = append(out, addr)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out), errors.Join(errs...)
}

func lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	if ip, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{ip.Unmap()}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	for i := range addrs {
		addrs[i] = addrs[i].Unmap()
	}
	return addrs, err
}
