package membership

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/membership/identity"
	"github.com/ringway/ringway/membership/internal/trust"
)

// fromFiles gives a member certificates that a test can replace, and a deny list.
// The returned function writes a new certificate and takes it up.
func fromFiles(t *testing.T, a *identity.Authority, c *Config) (renew func(services ...string), deny func(line string)) {
	t.Helper()
	dir := t.TempDir()
	files := identity.Files{
		Certificate: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem"),
		Authorities: filepath.Join(dir, "ca.pem"), Denied: filepath.Join(dir, "denied"),
	}
	claims := claimsOf(c)
	write := func(path string, content []byte) {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	issue := func() {
		cert, key, err := a.Issue(claims, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		write(files.Certificate, cert)
		write(files.Key, key)
	}
	issue()
	write(files.Authorities, a.CertificatePEM())
	write(files.Denied, nil)
	source, err := identity.NewSource(files, identity.SourceConfig{})
	if err != nil {
		t.Fatal(err)
	}
	c.Identity = source
	reload := func() {
		if replaced, err := source.Reload(); err != nil || !replaced {
			t.Fatalf("reload: %v, %v", replaced, err)
		}
	}
	renew = func(services ...string) {
		var err error
		if claims.Services, err = identity.ParseServiceNames(services...); err != nil {
			t.Fatal(err)
		}
		issue()
		reload()
	}
	deny = func(line string) { write(files.Denied, []byte(line+"\n")); reload() }
	return renew, deny
}

func TestARenewedCertificateIsTakenUpWithoutLeavingTheView(t *testing.T) {
	a := authority(t)
	seed := start(t, func(c *Config) { c.ID = "r1"; certified(t, a, c, nil); c.Keyring = keyring(t, 1) })
	var renew func(services ...string)
	start(t, func(c *Config) {
		c.ID, c.Role, c.Seeds, c.Keyring = "w1", identity.RoleWorker, []string{seed.Addr()}, keyring(t, 1)
		renew, _ = fromFiles(t, a, c)
	})
	seed.await(t, "w1", sees("r1", "w1"))
	gone := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer close(gone)
		for s := range seed.Watch(ctx) {
			if !sees("r1", "w1")(s) {
				t.Errorf("while the certificate was renewed the seed saw %v", s.Members())
			}
		}
	}()
	for _, services := range []string{"billing", "echo"} { // by them the seed shows which certificate it has
		renew(services)
		seed.await(t, "w1 by the renewed certificate", func(s *Snapshot) bool { m, _ := s.Get("w1"); return m.ServiceNames == services })
	}
	cancel()
	<-gone
}

// A new certificate of a live member changes its service names in all views, its own too, and
// nothing else.
func TestServiceNamesFollowTheCertificate(t *testing.T) {
	a := authority(t)
	seed := start(t, func(c *Config) { c.ID = "r1"; certified(t, a, c, nil); c.Keyring = keyring(t, 1) })
	var renew func(services ...string)
	w := start(t, func(c *Config) {
		c.ID, c.Role, c.Seeds, c.Keyring = "w1", identity.RoleWorker, []string{seed.Addr()}, keyring(t, 1)
		renew, _ = fromFiles(t, a, c)
	})
	born := start(t, func(c *Config) {
		c.ID, c.Role, c.Seeds, c.Keyring = "w2", identity.RoleWorker, []string{seed.Addr()}, keyring(t, 1)
		certified(t, a, c, func(claims *identity.Claims) { claims.Services = "billing" })
	})
	nodes := []*testNode{seed, w, born}
	named := func(id string, want string) func(*Snapshot) bool {
		return func(s *Snapshot) bool {
			m, ok := s.Get(id)
			return ok && m.ServiceNames == want
		}
	}
	for _, n := range nodes {
		n.await(t, "w1 without names", named("w1", ""))
		n.await(t, "w2 with the names of its start", named("w2", "billing"))
	}
	before, _ := seed.Snapshot().Get("w1")
	for _, services := range [][]string{{"echo"}, {"b", "a-*"}, {"*"}, nil} {
		renew(services...)
		want, _ := identity.ParseServiceNames(services...)
		for _, n := range nodes {
			n.await(t, "w1 with "+string(want), named("w1", want))
		}
	}
	if after, _ := seed.Snapshot().Get("w1"); after != before {
		t.Errorf("%+v became %+v", before, after)
	}
}

func TestADeniedMemberLeavesTheViewAndIsNamed(t *testing.T) {
	a := authority(t)
	var deny func(string)
	seed := start(t, func(c *Config) { c.ID = "r1"; _, deny = fromFiles(t, a, c); c.Keyring = keyring(t, 1) })
	for _, id := range []string{"w1", "w2"} {
		start(t, func(c *Config) {
			c.ID, c.Role, c.Seeds, c.Keyring = id, identity.RoleWorker, []string{seed.Addr()}, keyring(t, 1)
			certified(t, a, c, nil)
		})
	}
	seed.await(t, "both", sees("r1", "w1", "w2"))
	deny("node w1")
	seed.await(t, "w2 only", sees("r1", "w2"))
	list := seed.Unproven()
	if len(list) != 1 || list[0].ID != "w1" || !strings.Contains(list[0].Reason, "den") {
		t.Errorf("listed: %+v", list)
	}
	procs.Await(t, "its packets are dropped", func() bool {
		return testutil.ToFloat64(seed.metrics.dropped.WithLabelValues("certificate")) > 0
	})
	// The view is published before the event is counted.
	procs.Await(t, "it is counted once", func() bool {
		return testutil.ToFloat64(seed.metrics.events.WithLabelValues("unproven")) == 1
	})
}

func TestAMemberOfAReleaseThatDoesNotSignIsNamedAndLeftOut(t *testing.T) {
	a := authority(t)
	seed := start(t, func(c *Config) { c.ID = "r1"; certified(t, a, c, nil); c.Keyring = keyring(t, 1) })
	cfg := Config{
		Cluster: "test", Environment: "ci", ID: "old", Role: identity.RoleWorker, BindAddr: "127.0.0.1:0", Seeds: []string{seed.Addr()},
		Keyring: keyring(t, 1), Logger: slog.New(slog.DiscardHandler),
	}
	certified(t, a, &cfg, nil)
	old, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	greet := old.transport.hello
	old.transport.hello = func() hello { h := greet(); h.format = helloFormat; return h }
	if err := old.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	procs.Await(t, "the old member is listed", func() bool { return len(seed.Unproven()) > 0 })
	if u := seed.Unproven()[0]; u.ID != "old" || !strings.Contains(u.Reason, "upgrade it") {
		t.Errorf("listed: %+v", u)
	}
	procs.Await(t, "the old member learns why", func() bool {
		err := old.Status().Err
		return err != nil && strings.Contains(err.Error(), `ours "1 (gossip is not signed)", theirs "2 (gossip is signed)"`)
	})
	if !sees("r1")(seed.Snapshot()) {
		t.Errorf("the seed sees %v", seed.Snapshot().Members())
	}
}

func TestNoMoreMembersAreLetInThanTheLimitAllows(t *testing.T) {
	for _, limit := range []int{2, 3} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			seed := start(t, func(c *Config) { c.ID, c.MaxMembers = "r1", limit })
			for _, id := range []string{"w1", "w2"} {
				start(t, func(c *Config) { c.ID, c.Role, c.Seeds = id, identity.RoleWorker, []string{seed.Addr()} })
				if id == "w1" {
					seed.await(t, "the first", sees("r1", "w1"))
				}
			}
			if limit == 3 {
				seed.await(t, "all", sees("r1", "w1", "w2"))
				return
			}
			procs.Await(t, "the third is refused", func() bool {
				return testutil.ToFloat64(seed.metrics.refusals.WithLabelValues(inbound, fieldTooMany)) > 0
			})
			if !sees("r1", "w1")(seed.Snapshot()) {
				t.Errorf("the seed sees %v", seed.Snapshot().Members())
			}
		})
	}
}

func TestOneMemberAnnouncesNoMoreUnprovenOnesAMinuteThanTheLimitAllows(t *testing.T) {
	a := authority(t)
	worker := func(id, seed string, limit int) *testNode {
		return start(t, func(c *Config) {
			c.ID, c.Role, c.Seeds, c.MaxNewMembers = id, identity.RoleWorker, []string{seed}, limit
			certified(t, a, c, nil)
		})
	}
	seed := start(t, func(c *Config) { c.ID = "r1"; certified(t, a, c, nil) })
	for _, id := range []string{"w1", "w2", "w3"} {
		worker(id, seed.Addr(), 0)
	}
	seed.await(t, "all", sees("r1", "w1", "w2", "w3"))
	refused := func(n *testNode) float64 {
		return testutil.ToFloat64(n.metrics.dropped.WithLabelValues("too_many"))
	}
	limited := worker("limited", seed.Addr(), 1)
	procs.Await(t, "two of three are refused", func() bool { return refused(limited) >= 2 })
	free := worker("free", seed.Addr(), 0)
	free.await(t, "all", func(s *Snapshot) bool { return len(s.Members()) >= 5 })
	if n := refused(free); n > 0 {
		t.Errorf("%v are refused without a limit", n)
	}
}

// Without certificates a holder of the gossip key can claim that another member is
// leaving; that member contradicts.
func TestAMemberThatIsReportedToLeaveAnnouncesThatItStays(t *testing.T) {
	seed := start(t, func(c *Config) { c.ID = "r1" })
	w := start(t, func(c *Config) { c.ID, c.Role, c.Seeds = "w1", identity.RoleWorker, []string{seed.Addr()} })
	liar := start(t, func(c *Config) { c.ID, c.Seeds = "r2", []string{seed.Addr()} })
	for _, n := range []*testNode{seed, w, liar} {
		n.await(t, "all", sees("r1", "r2", "w1"))
	}
	leaving := func(s *Snapshot) bool { m, _ := s.Get("w1"); return m.Leaving }
	if err := liar.announce(leaveNotice{id: "w1", epoch: w.Epoch()}); err != nil {
		t.Fatal(err)
	}
	procs.Await(t, "w1 contradicts", func() bool { return strings.Contains(w.log.String(), "forged notice that this node is leaving") })
	// Either notice may arrive first, so a view may show w1 as leaving for a moment. A second
	// later none does.
	for range 2 {
		for _, n := range []*testNode{seed, w, liar} {
			n.await(t, "w1 staying", func(s *Snapshot) bool { return !leaving(s) })
		}
		time.Sleep(time.Second)
	}
}

func TestALeaveNoticeThatItsAuthorDidNotSignChangesNothing(t *testing.T) {
	a := authority(t)
	seed := start(t, func(c *Config) { c.ID = "r1"; certified(t, a, c, nil) })
	var others []*testNode
	for _, id := range []string{"w1", "w2"} {
		others = append(others, start(t, func(c *Config) {
			c.ID, c.Role, c.Seeds = id, identity.RoleWorker, []string{seed.Addr()}
			certified(t, a, c, nil)
		}))
	}
	seed.await(t, "all", sees("r1", "w1", "w2"))
	forged := leaveNotice{id: "w1", epoch: others[0].Epoch()}
	payload := forged.payload()
	for _, signature := range [][]byte{nil, make([]byte, MaxSignature), others[1].Sign(statementLeave, payload), others[0].Sign(statementStay, payload)} {
		forged.signature = signature
		before := testutil.ToFloat64(seed.metrics.dropped.WithLabelValues(trust.DropForged))
		seed.receiveNotice(append(forged.payload(), signature...), false)
		procs.Await(t, "the notice is counted", func() bool {
			return testutil.ToFloat64(seed.metrics.dropped.WithLabelValues(trust.DropForged)) > before
		})
	}
	if m, _ := seed.Snapshot().Get("w1"); m.Leaving {
		t.Error("the forged goodbye was believed")
	}
	seed.receiveNotice(append(forged.payload(), others[0].Sign(statementLeave, payload)...), false)
	seed.await(t, "its own goodbye", func(s *Snapshot) bool { m, _ := s.Get("w1"); return m.Leaving })
}
