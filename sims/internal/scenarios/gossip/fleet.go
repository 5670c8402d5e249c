package gossip

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/memnet"
)

const (
	service = "orders"
	// oneWay is how long a packet travels, plus up to as much again: one datacenter.
	oneWay = 500 * time.Microsecond
	seeds  = 3
	// look is how often the members' views are looked at; all times are that exact.
	look = 10 * time.Millisecond
)

// member is one process: a real membership node with a real catalogue.
type member struct {
	id        string
	role      membership.Role
	host      *host
	node      *membership.Node
	catalogue *advertise.Catalogue
	registry  *prometheus.Registry
	stop      context.CancelFunc
}

// fleet is the members that run, on one network in memory. It lives under a virtual clock.
type fleet struct {
	cfg     Config
	network *memnet.Network
	members []*member // the first are relays, of which the first three are seeds
	hosts   int
	workers int // ever started
	tasks   sync.WaitGroup
	thin    atomic.Bool // see form

	closing sync.Mutex // guards errs
	errs    []error
}

func newFleet(cfg Config) *fleet {
	return &fleet{cfg: cfg, network: memnet.New(memnet.Config{Seed: cfg.Seed, Latency: oneWay, Jitter: oneWay})}
}

// offer is what a worker offers.
func offer(m *member, version string) []advertise.Service {
	return []advertise.Service{{
		Name: service, Address: netip.AddrPortFrom(m.host.IP(), 8080).String(), Slots: 100, Version: version, Tags: []string{"zone-1"},
	}}
}

// start makes a member, which joins through the seeds.
func (f *fleet) start(role membership.Role) (*member, error) {
	m := &member{
		id: fmt.Sprintf("relay-%d", f.hosts), role: role, registry: prometheus.NewRegistry(),
		host: &host{Host: f.network.Host(fmt.Sprintf("10.%d.%d.%d", f.hosts>>14, f.hosts>>7&127, 1+f.hosts&127)), thin: &f.thin},
	}
	f.hosts++
	if role == membership.RoleWorker {
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
	if role == membership.RoleWorker {
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

// kill ends a member as SIGKILL would; it is no member of the fleet any more.
func (f *fleet) kill(m *member) {
	m.host.Crash()
	m.stop()
	f.tasks.Go(func() { f.note(m.node.Close()) })
	f.members = slices.DeleteFunc(f.members, func(other *member) bool { return other == m })
}

// close ends everything and waits until memberlist's goroutines are gone, too: they end some
// time after its Shutdown.
func (f *fleet) close() error {
	for len(f.members) > 0 {
		f.kill(f.members[0])
	}
	f.tasks.Wait()
	err := f.network.Close()
	time.Sleep(10 * time.Minute)
	return errors.Join(append(f.errs, err)...)
}

// last is the worker that was started last.
func (f *fleet) last() *member { return f.members[len(f.members)-1] }

// await looks until every member has seen it, and returns when most and when the last one had.
// A member that has seen it once is not asked again.
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
		time.Sleep(look)
	}
}

// agree reports whether all members have one and the same view of the whole fleet.
func (f *fleet) agree() bool {
	first := f.members[0].catalogue.View()
	workers := 0
	for _, m := range f.members {
		if m.role == membership.RoleWorker {
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

// failures counts how often the members that run have taken another to have failed.
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
