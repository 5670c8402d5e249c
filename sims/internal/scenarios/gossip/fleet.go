package gossip

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/memnet"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

const (
	service = "orders"
	// oneWay is the minimum network delay of a packet, plus jitter of up to the same time:
	// one datacenter.
	oneWay = 500 * time.Microsecond
	seeds  = 3
	// pollInterval is the interval of the checks of the members' views, and thus the precision of
	// all times.
	pollInterval = 10 * time.Millisecond
)

// member is one process: a real membership node with a real catalogue.
type member struct {
	id        string
	role      identity.Role
	host      *host
	node      *membership.Node
	catalogue *advertise.Catalogue
	registry  *prometheus.Registry
	stop      context.CancelFunc
}

// fleet holds the running members, on one network in memory, with a virtual clock.
type fleet struct {
	cfg     Config
	network *memnet.Network
	members []*member // relays first; the first three relays are the seeds
	hosts   int
	workers int // number of workers started so far
	tasks   sync.WaitGroup
	lossy   atomic.Bool // see form

	closing sync.Mutex // guards errs
	errs    []error
}

func newFleet(cfg Config) *fleet {
	return &fleet{cfg: cfg, network: memnet.New(memnet.Config{Seed: cfg.Seed, Latency: oneWay, Jitter: oneWay})}
}

// offer returns the services that a worker offers.
func offer(m *member, version string) []advertise.Service {
	return []advertise.Service{{
		Name: service, Address: netip.AddrPortFrom(m.host.IP(), 8080).String(), Slots: 100, Version: version, Tags: []string{"zone-1"},
	}}
}

// start starts a member, which joins through the seeds.
func (f *fleet) start(role identity.Role) (*member, error) {
	m := &member{
		id: fmt.Sprintf("relay-%d", f.hosts), role: role, registry: prometheus.NewRegistry(),
		host: &host{Host: f.network.Host(fmt.Sprintf("10.%d.%d.%d", f.hosts>>14, f.hosts>>7&127, 1+f.hosts&127)), lossy: &f.lossy},
	}
	f.hosts++
	if role == identity.RoleWorker {
		f.workers++
		m.id = fmt.Sprintf("worker-%d", f.workers)
	}
	addr := func(m *member) string { return netip.AddrPortFrom(m.host.IP(), membership.DefaultGossipPort).String() }
	cfg := membership.Config{
		Cluster: "sims", Environment: "virtual", ID: m.id, Role: role, Datacenter: "dc-1",
		BindAddr: addr(m), ForwardAddr: netip.AddrPortFrom(m.host.IP(), 7420).String(), Version: "v1.0.0",
		Network: m.host, Registerer: m.registry, Logger: slog.New(slog.DiscardHandler),
	}
	for _, s := range f.members[:min(seeds, len(f.members))] {
		cfg.Seeds = append(cfg.Seeds, addr(s))
	}
	if f.cfg.Encrypted {
		ring, err := membership.NewKeyring(make([]byte, 32))
		if err != nil {
			return nil, err
		}
		cfg.Keyring = ring
	}
	var err error
	if m.node, err = membership.New(cfg); err != nil {
		return nil, err
	}
	if m.catalogue, err = advertise.New(advertise.Config{Gossip: m.node, Interval: f.cfg.Interval, Seed: f.cfg.Seed + uint64(f.hosts)}); err != nil {
		return nil, errors.Join(err, m.node.Close())
	}
	if role == identity.RoleWorker {
		if err := m.catalogue.Offer(offer(m, "v1.0.0")); err != nil {
			return nil, errors.Join(err, m.node.Close())
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	m.stop = stop
	if err := m.node.Start(ctx); err != nil {
		stop()
		return nil, errors.Join(err, m.node.Close())
	}
	f.tasks.Go(func() { f.note(m.catalogue.Run(ctx)) })
	f.members = append(f.members, m)
	return m, nil
}

func (f *fleet) note(err error) {
	if err != nil {
		f.closing.Lock()
		defer f.closing.Unlock()
		f.errs = append(f.errs, err)
	}
}

// kill stops a member as SIGKILL would, and removes the member from the fleet.
func (f *fleet) kill(m *member) {
	m.host.Crash()
	m.stop()
	f.tasks.Go(func() { f.note(m.node.Close()) })
	f.members = slices.DeleteFunc(f.members, func(other *member) bool { return other == m })
}

// close stops all members and waits for the end of memberlist's goroutines, which run for some
// time after Shutdown.
func (f *fleet) close() error {
	for len(f.members) > 0 {
		f.kill(f.members[0])
	}
	f.tasks.Wait()
	err := f.network.Close()
	time.Sleep(10 * time.Minute)
	return errors.Join(append(f.errs, err)...)
}

// last returns the worker that was started last.
func (f *fleet) last() *member { return f.members[len(f.members)-1] }

// await waits until seen is true for every member, and returns the times at which 95 % of the
// members and the last member have seen the event. A member for which seen was true is not
// checked again.
func (f *fleet) await(seen func(*member) bool) (most, last time.Duration) {
	began := time.Now()
	waiting := slices.Clone(f.members)
	few := len(waiting) / 20
	most = limit
	for {
		waiting = slices.DeleteFunc(waiting, seen)
		took := min(time.Since(began), limit)
		if len(waiting) <= few {
			most = min(most, took)
		}
		if len(waiting) == 0 || took == limit {
			return most, took
		}
		time.Sleep(pollInterval)
	}
}

// agree reports whether all members have the same view of the whole fleet.
func (f *fleet) agree() bool {
	first := f.members[0].catalogue.View()
	workers := 0
	for _, m := range f.members {
		if m.role == identity.RoleWorker {
			workers++
		}
	}
	for _, m := range f.members {
		v := m.catalogue.View()
		if v.Members() == nil || len(v.Members().Members()) != len(f.members) || v.EndpointCount() != workers || v.Checksum() != first.Checksum() {
			return false
		}
	}
	return true
}

// failures counts how often the running members considered another member failed.
func (f *fleet) failures() (n int, err error) {
	for _, m := range f.members {
		families, err := m.registry.Gather()
		if err != nil {
			return 0, err
		}
		for _, family := range families {
			if family.GetName() != "ringway_membership_events_total" {
				continue
			}
			for _, metric := range family.GetMetric() {
				if metric.GetLabel()[0].GetValue() == "failed" {
					n += int(metric.GetCounter().GetValue())
				}
			}
		}
	}
	return n, nil
}

// host is one machine of the network in memory. A host counts the bytes of its streams in both
// directions, which for a joiner are its downloads and uploads.
type host struct {
	*memnet.Host
	streamed atomic.Uint64
	// lossy, if true, drops two of three large packets: see form.
	lossy *atomic.Bool
	large atomic.Uint64
}

// largePacket is a size in bytes above that of a probe and below that of a packet with many
// gossip messages.
const largePacket = 400

// ListenPacket opens a socket that drops large packets while lossy is true.
func (h *host) ListenPacket(addr string) (net.PacketConn, error) {
	c, err := h.Host.ListenPacket(addr)
	if err != nil {
		return nil, err
	}
	return lossyConn{c, h}, nil
}

type lossyConn struct {
	net.PacketConn
	host *host
}

func (c lossyConn) WriteTo(b []byte, to net.Addr) (int, error) {
	if len(b) > largePacket && c.host.lossy.Load() && c.host.large.Add(1)%3 != 0 {
		return len(b), nil
	}
	return c.PacketConn.WriteTo(b, to)
}

// Dial opens a stream and counts its bytes.
func (h *host) Dial(ctx context.Context, addr string) (net.Conn, error) {
	c, err := h.Host.Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	return countedConn{c, h}, nil
}

// Listen accepts streams and counts their bytes.
func (h *host) Listen(addr string) (net.Listener, error) {
	l, err := h.Host.Listen(addr)
	if err != nil {
		return nil, err
	}
	return countedListener{l, h}, nil
}

type countedListener struct {
	net.Listener
	host *host
}

func (l countedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return countedConn{c, l.host}, nil
}

type countedConn struct {
	net.Conn
	host *host
}

func (c countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.host.streamed.Add(uint64(n))
	return n, err
}

func (c countedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.host.streamed.Add(uint64(n))
	return n, err
}

// virtually runs f and every goroutine that f starts with a virtual clock, which advances when
// all of these goroutines wait. All of them must have ended when f returns.
//
// Only package testing/synctest has such a clock. synctest.Test needs a *testing.T, but does
// not use it unless something fails, so an empty one is enough.
func virtually(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("virtual clock: %v", r)
		}
	}()
	synctest.Test(new(testing.T), func(*testing.T) { err = f() })
	return err
}
