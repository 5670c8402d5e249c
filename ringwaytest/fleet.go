package ringwaytest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/memnet"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
	"github.com/ringway/ringway/selection/router"
)

const (
	cluster, environment = "fleet", "test"
	// oneWay is the delay of a packet in a datacenter.
	oneWay = 500 * time.Microsecond
	// certificateLife is longer than the virtual time of any test.
	certificateLife = 365 * 24 * time.Hour
	forwardPort     = 7420
	servicePort     = 8080
	// settleTime is how long members may take to agree. A member that is cut off is detected within
	// half a minute; one that returns is found by the search for lost members within some minutes.
	settleTime = 10 * time.Minute
	// spread is the time for records, plans and connections to follow the members.
	spread = 10 * time.Second
	// ending is how long goroutines of memberlist run after the end of their member.
	ending = 10 * time.Minute
)

// Fleet is the relays and workers of one cluster on a network in memory. Its methods end the test
// if something fails, and may be called from the goroutine of the test only.
type Fleet struct {
	t         testing.TB
	network   *memnet.Network
	authority *identity.Authority
	key       []byte

	members map[string]*member // the newest of each id
	made    []*member
	relays  int // with an address in 10.0.1.0/24, which begins with the seed
	others  int // with one in 10.0.2.0/23
	cut     map[string]bool
}

// member is one life of a member.
type member struct {
	*host
	id   string
	role identity.Role
	// The fields below are of the members that the fleet runs.
	node *membership.Node // of a relay
	stop context.CancelFunc
	done chan struct{} // closed when Run has ended
	err  error         // of Run; set when done is closed
}

// New returns a fleet without members. It must be called in a bubble of testing/synctest. Under the
// race detector the program runs on one processor from then on, because the detector of Go 1.26
// crashes where goroutines of one bubble receive from tickers on two.
func New(t testing.TB) *Fleet {
	t.Helper()
	if time.Now().Year() > 2020 { // a bubble begins in 2000
		t.Fatalf("ringwaytest: New outside of a bubble: call it in the function of synctest.Test, otherwise every step takes minutes")
	}
	f := &Fleet{t: t, network: memnet.New(memnet.Config{Latency: oneWay, Jitter: oneWay}), members: map[string]*member{}}
	var err error
	f.authority, err = identity.NewAuthority(identity.AuthorityConfig{Name: "ringwaytest", Validity: certificateLife + time.Hour})
	f.must(err)
	f.key, err = membership.ParseKey(membership.GenerateKey())
	f.must(err)
	t.Cleanup(f.close)
	return f
}

func (f *Fleet) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatalf("ringwaytest: %v", err)
	}
}

// Member returns the configuration of a member that the program under test runs: its place on the
// network, certificate, gossip key and seeds. The program may change what is not of the network.
func (f *Fleet) Member(id string, role identity.Role) membership.Config {
	f.t.Helper()
	if m := f.members[id]; m != nil && m.alive() {
		f.t.Fatalf("ringwaytest: %s runs: stop or kill it, or take another id", id)
	}
	if !role.Member() {
		f.t.Fatalf("ringwaytest: the role %q of %s gossips nothing: take one of relay, gate, worker and observer", role, id)
	}
	cfg := membership.Config{Cluster: cluster, Environment: environment, ID: id, Role: role, Seeds: f.seeds()}
	m := &member{id: id, role: role}
	ip := netip.AddrFrom4([4]byte{10, 0, 1, byte(f.relays + 1)})
	if role == identity.RoleRelay {
		f.relays++
	} else {
		f.others++
		ip = netip.AddrFrom4([4]byte{10, 0, byte(2 + f.others>>8), byte(f.others)})
	}
	m.host = &host{Host: f.network.Host(ip.String())}
	if f.relays > 250 || f.others > 510 {
		f.t.Fatalf("ringwaytest: %s has no address left: a fleet has room for 250 relays and 510 other members", id)
	}
	if role.Relays() {
		cfg.ForwardAddr = m.addr(forwardPort)
	}
	cfg.BindAddr, cfg.Network = m.addr(membership.DefaultGossipPort), m.host
	claims := identity.Claims{Role: role, Cluster: cluster, Environment: environment, Node: id}
	if role == identity.RoleWorker {
		claims.Services = "*"
	}
	var err error
	cfg.Identity, err = f.authority.Source(claims, certificateLife)
	f.must(err)
	cfg.Keyring, err = membership.NewKeyring(f.key)
	f.must(err)
	f.members[id], f.made = m, append(f.made, m)
	f.partition()
	return cfg
}

// seeds are the addresses of the relays, else of other members, else of the first relay to come.
func (f *Fleet) seeds() []string {
	var relays, others []string
	for _, m := range f.made {
		switch {
		case !m.alive():
		case m.role == identity.RoleRelay:
			relays = append(relays, m.addr(membership.DefaultGossipPort))
		default:
			others = append(others, m.addr(membership.DefaultGossipPort))
		}
	}
	switch {
	case len(relays) > 0:
		return relays
	case len(others) > 0 && f.relays > 0: // all relays have ended
		return others
	}
	return []string{fmt.Sprintf("10.0.1.1:%d", membership.DefaultGossipPort)}
}

// Advertiser returns the configuration of a program that offers services itself, and the listener
// of its server.
func (f *Fleet) Advertiser(id string, services ...string) (advertise.AdvertiserConfig, net.Listener) {
	f.t.Helper()
	m := f.Member(id, identity.RoleWorker)
	socket, err := m.Network.Listen(f.members[id].addr(servicePort))
	f.must(err)
	cfg := advertise.AdvertiserConfig{
		Cluster: m.Cluster, Environment: m.Environment, ID: m.ID, Seeds: m.Seeds,
		BindAddr: m.BindAddr, Network: m.Network, Identity: m.Identity, Keyring: m.Keyring,
	}
	for _, name := range services {
		cfg.Services = append(cfg.Services, advertise.Service{Name: name, Address: socket.Addr().String(), Secured: true})
	}
	return cfg, socket
}

// StartRelay starts a relay. It does not wait until the relay has found the others; requests and
// picks wait for that.
func (f *Fleet) StartRelay(id string) *router.Router {
	f.t.Helper()
	node, err := membership.New(f.Member(id, identity.RoleRelay))
	f.must(err)
	relay, err := router.New(router.Config{Node: node})
	f.must(err)
	f.members[id].node = node
	f.run(id, relay.Run)
	return relay
}

// StartWorker starts a worker whose handler answers the requests of its services.
func (f *Fleet) StartWorker(id string, handler http.Handler, services ...string) {
	f.t.Helper()
	cfg, socket := f.Advertiser(id, services...)
	worker, err := advertise.NewAdvertiser(cfg)
	f.must(err)
	f.run(id, func(ctx context.Context) error { return worker.Serve(ctx, socket, &http.Server{Handler: handler}) })
}

func (f *Fleet) run(id string, run func(context.Context) error) {
	m := f.members[id]
	ctx, stop := context.WithCancel(context.Background())
	m.stop, m.done = stop, make(chan struct{})
	go func() {
		defer close(m.done)
		m.err = run(ctx)
	}()
}

// Stop ends a member that the fleet runs, as SIGTERM does: it drains, leaves the cluster, and ends
// its requests.
func (f *Fleet) Stop(id string) {
	f.t.Helper()
	m := f.member(id)
	if m.stop == nil {
		f.t.Fatalf("ringwaytest: the fleet does not run %s: end it in the program that runs it", id)
	}
	m.stop()
	<-m.done
	if m.err != nil && !m.killed.Load() {
		f.t.Errorf("ringwaytest: stop %s: %v", id, m.err)
	}
	m.kill()
}

// Kill ends a member as kill -9 does. Of a member that the program under test runs, the connections
// end and no new ones begin; the program itself ends the rest.
func (f *Fleet) Kill(id string) {
	f.t.Helper()
	m := f.member(id)
	m.kill()
	if m.stop != nil {
		m.stop()
	}
}

// Cut cuts members off from all others: what is sent between the two sides vanishes, and
// connections hang. It replaces an earlier Cut.
func (f *Fleet) Cut(ids ...string) {
	f.t.Helper()
	f.cut = map[string]bool{}
	for _, id := range ids {
		f.cut[f.member(id).id] = true
	}
	f.partition()
}

// Heal ends a Cut.
func (f *Fleet) Heal() {
	f.cut = nil
	f.network.Heal()
}

func (f *Fleet) partition() {
	if len(f.cut) == 0 {
		return
	}
	var sides [2][]netip.Addr
	for _, m := range f.made {
		side := 0
		if f.cut[m.id] {
			side = 1
		}
		sides[side] = append(sides[side], m.IP())
	}
	f.network.Partition(sides[:]...)
}

func (f *Fleet) member(id string) *member {
	f.t.Helper()
	m := f.members[id]
	if m == nil {
		f.t.Fatalf("ringwaytest: no member %q was made: there are %q", id, slices.Sorted(maps.Keys(f.members)))
	}
	return m
}

// Settle lets time pass until every relay that the fleet runs sees exactly the members that are
// alive on its side of a Cut, and then the ten seconds in which records, plans and connections
// follow.
func (f *Fleet) Settle() {
	f.t.Helper()
	for end := time.Now().Add(settleTime); ; time.Sleep(100 * time.Millisecond) {
		err := f.disagreement()
		if err == nil {
			time.Sleep(spread)
			return
		}
		if time.Now().After(end) {
			f.t.Fatalf("ringwaytest: the members do not agree after %v: %v", settleTime, err)
		}
	}
}

func (f *Fleet) disagreement() error {
	var errs []error
	for _, m := range f.made {
		if m.node == nil || !m.alive() {
			continue
		}
		var want, got []string
		for _, other := range f.members {
			if other.alive() && f.cut[other.id] == f.cut[m.id] {
				want = append(want, other.id)
			}
		}
		if s := m.node.Snapshot(); s != nil {
			got = membership.IDs(s.Members())
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			errs = append(errs, fmt.Errorf("%s sees %q, alive are %q", m.id, got, want))
		}
	}
	return errors.Join(errs...)
}

// close ends the members that the fleet runs.
func (f *Fleet) close() {
	for _, m := range f.made {
		m.kill()
		if m.stop != nil {
			m.stop()
		}
	}
	for _, m := range f.made {
		if m.done != nil {
			<-m.done
		}
	}
	_ = f.network.Close()
	time.Sleep(ending)
}
