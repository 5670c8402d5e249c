//go:build linux

package hostile

import (
	"context"
	"crypto/tls"
	"io"
	"log"
	"math"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

// turncoat is a member that was taken over, in most tests a worker: it holds a valid certificate and the
// gossip key, and announces anything in its own name.
type turncoat struct {
	node      *membership.Node
	catalogue *advertise.Catalogue
	source    *identity.Source
	id, host  string
	sidecar   string // where it serves over mutual TLS, as an honest worker does
	stop      func() // as a crash does
	silence   func() // ends its catalogue, which would answer records that it did not publish
	packets   signer
}

// own is the service that a turncoat offers honestly.
const own = "own"

// startTurncoat takes a worker over whose certificate names these services; without any, as those
// of older fleets. It waits until the fleet answers its own service.
func startTurncoat(t *testing.T, f *fleet, services ...string) *turncoat {
	t.Helper()
	c := launchTurncoat(t, f, services...)
	for _, r := range f.Relays {
		procs.Await(t, "the turncoat's own service is answered through "+r.ID, func() bool {
			status, body := f.ask(r, own, http.MethodGet, "/")
			return status == http.StatusOK && body == c.id
		})
	}
	return c
}

func launchTurncoat(t *testing.T, f *fleet, services ...string) *turncoat {
	t.Helper()
	return takeOver(t, f, procs.Claims{Role: string(identity.RoleWorker), Services: strings.Join(services, ",")})
}

// takeOver joins the fleet with a certificate of these claims. A worker offers its own service.
func takeOver(t *testing.T, f *fleet, claims procs.Claims) *turncoat {
	t.Helper()
	c, worker := &turncoat{id: "turncoat", host: "127.0.3.1"}, claims.Role == string(identity.RoleWorker)
	claims.Node = c.id
	if err := f.Security.Issue(claims); err != nil {
		t.Fatal(err)
	}
	var err error
	if c.source, err = identity.NewSource(identity.Files{Certificate: f.Security.Path(c.id + ".crt"), Key: f.Security.Path(c.id + ".key"),
		Authorities: f.Security.Path("ca/ca.crt")}, identity.SourceConfig{}); err != nil {
		t.Fatal(err)
	}
	keys, err := membership.OpenKeyring(f.Security.Path(c.id + ".keys"))
	if err != nil {
		t.Fatal(err)
	}
	if worker {
		c.serve(t)
	}
	booted, forward := time.Now(), ""
	if !worker { // a relay to which nothing can be forwarded has no place in plans
		forward = procs.FreeAddrOn(t, c.host)
	}
	if c.node, err = membership.New(membership.Config{
		Cluster: cluster, Environment: environment, ID: c.id, Role: identity.Role(claims.Role), Seeds: f.gossipOf(false),
		BindAddr: procs.FreeAddrOn(t, c.host), ForwardAddr: forward, Identity: c.source, Keyring: keys,
	}); err != nil {
		t.Fatal(err)
	}
	c.packets = signer{epoch: c.node.Epoch(), booted: booted, certified: true, sign: func(message []byte) []byte {
		key, signature, err := c.source.Sign(message)
		if err != nil {
			t.Error(err)
		}
		return append(key[:], signature...)
	}}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	c.stop = func() { stop(); running.Wait(); _ = c.node.Close() }
	t.Cleanup(c.stop)
	if c.catalogue, err = advertise.New(advertise.Config{Gossip: c.node}); err != nil {
		t.Fatal(err)
	}
	if worker {
		c.offer(t)
	}
	if err := c.node.Start(ctx); err != nil {
		t.Fatal(err)
	}
	publishing, silence := context.WithCancel(ctx)
	silenced := make(chan struct{})
	c.silence = func() { silence(); <-silenced }
	running.Go(func() { defer close(silenced); _ = c.catalogue.Run(publishing) })
	return c
}

// offer publishes lies in addition to what it may offer: itself, secured.
func (c *turncoat) offer(t *testing.T, lies ...advertise.Service) {
	t.Helper()
	if err := c.catalogue.Offer(append(lies, advertise.Service{Name: own, Address: c.sidecar, Secured: true})); err != nil {
		t.Fatal(err)
	}
}

// serve is a sidecar on its host that admits relays, as the real one does.
func (c *turncoat) serve(t *testing.T) { c.serveOn(t, c.host) }

func (c *turncoat) serveOn(t *testing.T, host string) {
	t.Helper()
	listener := c.listenAs(t, host, "http/1.1")
	c.sidecar = listener.Addr().String()
	server := &http.Server{ErrorLog: log.New(io.Discard, "", 0), Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, c.id) })}
	stopped := make(chan struct{})
	go func() { defer close(stopped); _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close(); <-stopped })
}

// TestAWorkerOffersNothingButItself has a turncoat offer the admin addresses of
// relays, addresses of other hosts, loopback by other names, and a listener of its own
// that proves nothing.
func TestAWorkerOffersNothingButItself(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleetConfig{Relays: 2, Workers: 2})
	c := startTurncoat(t, f)
	otherHost, loopback, plain := listenBait(t, "127.0.9.1"), listenBait(t, "127.0.0.1"), listenBait(t, c.host)
	_, port, _ := net.SplitHostPort(loopback.addr)
	lies := []advertise.Service{
		{Name: "elsewhere", Address: otherHost.addr}, {Name: "elsewhere-secured", Address: otherHost.addr, Secured: true},
		{Name: "loopback", Address: loopback.addr}, {Name: "loopback-secured", Address: loopback.addr, Secured: true},
		{Name: "localhost", Address: net.JoinHostPort("localhost", port)},
		{Name: "mapped", Address: net.JoinHostPort("::ffff:127.0.0.1", port)},
		{Name: "plain", Address: plain.addr}, // its own host, but a relay with a certificate sends only to proven endpoints
	}
	for _, r := range f.Relays {
		lies = append(lies, advertise.Service{Name: "admin-of-" + r.ID, Address: r.Admin}, advertise.Service{Name: "admin-secured-of-" + r.ID, Address: r.Admin, Secured: true},
			advertise.Service{Name: "peer-of-" + r.ID, Address: r.Peer, Secured: true}, advertise.Service{Name: "ingress-of-" + r.ID, Address: r.Ingress})
	}
	// One record for each lie: if the first one spoilt the others, they would not be
	// tried.
	for _, lie := range lies {
		before := map[string]float64{}
		for _, r := range f.Relays {
			before[r.ID] = f.refusals(r.Admin)
		}
		c.offer(t, lie)
		for _, r := range f.Relays {
			procs.Await(t, "the offer "+lie.Name+" arrives at "+r.ID, func() bool {
				return f.offers(r, lie.Name) || f.refusals(r.Admin) > before[r.ID]
			})
			for _, asked := range []struct{ method, path string }{{http.MethodGet, "/api/v1/members"}, {http.MethodPost, "/api/v1/drain"}} {
				status, body := f.ask(r, lie.Name, asked.method, asked.path)
				if status == http.StatusOK || status == http.StatusAccepted || strings.Contains(body, f.Workers[0].ID) {
					t.Errorf("%s %s of service %s through %s: %d %.200s", asked.method, asked.path, lie.Name, r.ID, status, body)
				}
			}
		}
	}
	otherHost.untouched(t, "another host")
	loopback.untouched(t, "loopback")
	plain.untouched(t, "a listener that proves nothing")
	for _, r := range f.Relays {
		if status, body := f.get(r.Admin, "/readyz"); status != http.StatusOK {
			t.Errorf("%s was drained or is not ready: %s", r.ID, body)
		}
		if n := f.endpoints(r, echo); n != len(f.Workers) {
			t.Errorf("%s has %d endpoints of %s", r.ID, n, echo)
		}
	}
	f.serves(10)
}

// TestAMemberSpeaksForNoOther has a turncoat, whose packets are in order, pass on
// goodbyes and a record that it made up in the names of others.
func TestAMemberSpeaksForNoOther(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleetConfig{Relays: 2, Workers: 2})
	c, listener := startTurncoat(t, f), listenBait(t, "127.0.9.1")
	raw, err := advertise.Record{NodeID: "w1", Epoch: f.instances("w1")[0].epoch, Sequence: 1 << 53,
		Services: []advertise.Service{{Name: echo, Address: listener.addr}, {Name: "hijacked", Address: listener.addr}}}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	victims := append(f.instances("w"), f.instances("r")...)
	f.arrives(func() {
		if err := c.node.Broadcast(recordTopic, "w1", append([]byte{kindRecord}, raw...)); err != nil {
			t.Error(err)
		}
		for _, v := range victims {
			if err := c.node.Broadcast(topicLeave, v.id, leaveNotice(v)); err != nil {
				t.Error(err)
			}
		}
	}, func(r *relay) bool { return f.offers(r, "hijacked") || f.allThere() != nil })
	f.wellDuring(watching)
	for _, r := range f.Relays {
		if f.offers(r, "hijacked") {
			t.Errorf("%s takes what was made up for an offer", r.ID)
		}
	}
	listener.untouched(t, "the turncoat")
}

// TestSignedPacketsOfAMemberSpeakForNoOther has a turncoat sign packets with its own
// certificate, in which it makes up members and boots of others, and declares others
// dead beyond refuting.
func TestSignedPacketsOfAMemberSpeakForNoOther(t *testing.T) {
	t.Parallel()
	const future = 9_999_999_999_999
	f := startFleet(t, fleetConfig{Relays: 2, Workers: 2})
	c, listener := startTurncoat(t, f), listenBait(t, "127.0.9.1")
	o := newSender(t, f, c.packets)
	var lies [][]byte
	for _, m := range append(f.instances("w"), f.instances("r")...) {
		role := identity.RoleWorker
		if strings.HasPrefix(m.id, "r") {
			role = identity.RoleRelay
		}
		lies = append(lies, o.isAlive(instance{m.id, future}, role), o.isAlive(instance{m.id, m.epoch + 1}, role),
			message(msgDead, dead{Incarnation: math.MaxUint32, Node: m.name(), From: m.name()}),
			message(msgDead, dead{Incarnation: math.MaxUint32, Node: m.name(), From: c.id}))
	}
	ghost := instance{"ghost", uint64(time.Now().UnixMilli())}
	lies = append(lies, o.isAlive(ghost, identity.RoleWorker), o.offers(ghost, 1, advertise.Service{Name: echo, Address: listener.addr, Secured: true}))
	f.arrives(func() {
		for n := 0; n < len(lies); n += 4 {
			o.send(f.gossipOf(true), lies[n:min(n+4, len(lies))]...)
		}
	}, func(*relay) bool { return f.allThere() != nil })
	f.wellDuring(watching)
	listener.untouched(t, "the turncoat")
	for _, r := range f.Relays {
		if got := f.IDs(r); len(got) != len(f.ids())+1 {
			t.Errorf("%s lists %v", r.ID, got)
		}
	}
}

// TestALiveMemberRefutesItsEnd has a turncoat declare every member dead, as failure
// detection allows, or gone by its own will, and then lets them answer.
func TestALiveMemberRefutesItsEnd(t *testing.T) {
	t.Parallel()
	for _, end := range []struct {
		name string
		from func(victim instance) string
	}{
		{"dead", func(instance) string { return "turncoat.1" }},
		{"gone by its own will", instance.name},
	} {
		t.Run(end.name, func(t *testing.T) {
			t.Parallel()
			f := startFleet(t, fleetConfig{Relays: 2, Workers: 2})
			o := newSender(t, f, startTurncoat(t, f).packets)
			var ends [][]byte
			for _, m := range append(f.instances("w"), f.instances("r")...) {
				ends = append(ends, message(msgDead, dead{Incarnation: 1000, Node: m.name(), From: end.from(m)}))
			}
			joined := func() float64 {
				return f.metrics(f.Relays[0].Admin, "ringway_membership_events_total", func(series string) bool { return strings.Contains(series, `"joined"`) })
			}
			before, refused := joined(), f.refusals(f.Relays[0].Admin)
			for range 10 {
				o.send(f.gossipOf(false), ends...)
			}
			procs.Await(t, "the ends are refuted, or refused", func() bool { return joined() > before || f.refusals(f.Relays[0].Admin) > refused })
			procs.AwaitFor(t, 10*time.Second, "all members are there", func() bool { return f.allThere() == nil })
			f.wellDuring(watching)
		})
	}
}

// TestADeniedCertificateStopsCounting has a stolen certificate of a worker in use when
// its serial number is written into the deny file of the fleet.
func TestADeniedCertificateStopsCounting(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleetConfig{Relays: 2, Workers: 2})
	c := startTurncoat(t, f)

	if err := f.Security.Deny("serial " + c.source.Info().Serial + " # stolen"); err != nil {
		t.Fatal(err)
	}
	for _, r := range f.Relays {
		procs.Await(t, r.ID+" does not list the thief any more", func() bool { return !slices.Contains(f.IDs(r), c.id) })
		procs.Await(t, r.ID+" does not send the thief requests any more", func() bool {
			status, _ := f.ask(r, own, http.MethodGet, "/")
			return status != http.StatusOK
		})
		procs.Await(t, "the gossip port of "+r.ID+" refuses the denied certificate", func() bool { return f.handshake(r.Gossip, c.id, "probe/1") != nil })
	}
	for _, w := range f.Workers { // each instance reads the file at its own pace
		procs.Await(t, "the gossip port of "+w.ID+" refuses the denied certificate", func() bool { return f.handshake(w.Gossip, c.id, "probe/1") != nil })
	}
	f.wellDuring(watching)
}

// handshake connects with the certificate of a holder and reads until it knows whether
// it was admitted: in TLS 1.3 a client learns of a refusal at its first read.
func (f *fleet) handshake(addr, holder, protocol string) error {
	dialer := tls.Dialer{NetDialer: &net.Dialer{Timeout: handshakeTime}, Config: f.Security.TLSConfig(f.t, holder, protocol)}
	ctx, cancel := context.WithTimeout(context.Background(), handshakeTime)
	defer cancel()
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetReadDeadline(time.Now().Add(refusalTime))
	_, err = conn.Read(make([]byte, 1))
	if timeout, ok := err.(net.Error); ok && timeout.Timeout() {
		return nil // it waits for what this client would send
	}
	return err
}

const (
	handshakeTime = 10 * time.Second
	// refusalTime is enough for a refusal, which follows the handshake immediately.
	refusalTime = 2 * time.Second
)
