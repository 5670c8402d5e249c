package relay

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/proxy/ingress"
	"github.com/ringway/ringway/internal/relay/check"
	"github.com/ringway/ringway/internal/wire"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
	"github.com/ringway/ringway/selection/router"
)

func TestRelaysExchangeFactsWithAndWithoutCertificates(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"certificates", "a gossip key", "nothing, on loopback"} {
		t.Run("with "+how, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			f.secure = secured(t, how)
			r1 := f.relay(func(s *Settings) { s.Plans.PeersPerTier = 7 })
			r2 := f.relay(func(s *Settings) {
				s.SkipRelays.Set("b=r9", "a=r9")
				s.Strategies.Set("slots", "echo=stable")
				s.SessionCookies.Set("echo=sid", "billing=b")
				s.KeySource.Set("echo=query:user", "cookie:sid;caller", "billing=header:X-User")
			})
			agree(t, r1, r2)
			r1.await(t, "r2", func() bool { _, there := r1.members.Snapshot().Get("r2"); return there })
			m, _ := r1.members.Snapshot().Get("r2")
			p := r1.askFacts(t.Context(), m, "back=r1")
			if p.Err != nil || p.Facts == nil {
				t.Fatalf("%+v", p)
			}
			got := p.Facts
			values := map[string]string{}
			for _, s := range got.Settings {
				values[s.Name] = s.Value
			}
			if got.Relay != "r2" || values["min-peers-per-tier"] != "3" || values["skip-relay"] != "a=r9,b=r9" || !strings.HasPrefix(values["selection"], "slots") || !strings.Contains(values["selection"], ",echo=stable") || values["session-cookie"] != "billing=b,echo=sid" {
				t.Errorf("%+v", got)
			}
			if values["key-source"] != "cookie:sid;caller,billing=header:X-User,echo=query:user" {
				t.Errorf("%+v", got.Settings)
			}
			keysOf := func() string {
				for _, s := range r1.facts().Settings {
					if s.Name == "key-source" {
						return s.Value
					}
				}
				return ""
			}
			if keys := keysOf(); keys != "header:Ringway-Key" {
				t.Errorf("the default is %q", keys)
			}
			reloaded := *r1.tuned.Load()
			reloaded.Keys, _ = parseKeySources([]string{"caller"})
			r1.tune(reloaded)
			if keys := keysOf(); keys != "caller" {
				t.Errorf("after a reload it is %q", keys)
			}
			if own := r1.facts(); own.Settings[2].Value != "7" || own.SharedKey == "" || own.SharedKey != got.SharedKey {
				t.Errorf("own %+v, theirs %+v", own, got)
			}
			if (got.Certificate != nil) != (how == "certificates") || (len(got.GossipKeys) > 0) != (how == "a gossip key") {
				t.Errorf("%+v", got)
			}
			if got.Back == nil || got.Back.Peer != "" {
				t.Errorf("the way back: %+v", got.Back)
			}
			if skew := got.Time.Sub(p.Asked); skew < -time.Second || skew > p.Took+time.Second {
				t.Errorf("asked at %v for %v, and answered at %v", p.Asked, p.Took, got.Time)
			}
		})
	}
}

func TestFactsAreForRelaysAndNothingElseIsTaken(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.relay(func(*Settings) {})
	_, _ = f.echo("w1")
	r.settled(t, "echo", 1)
	get := func(method, query string, header ...string) *http.Response {
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+r.PeerAddr()+factsPath+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(header) > 0 {
			req.Header.Set(header[0], header[1])
		}
		resp, _ := do(t, req)
		return resp
	}
	if got := get("POST", "").StatusCode; got != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", got)
	}
	if got := get("GET", "", wire.HopHeader, "r2"); got.StatusCode == http.StatusOK {
		t.Error("a request that a relay forwards was taken for a question")
	}
	if got := get("GET", "").StatusCode; got != http.StatusOK {
		t.Errorf("%d", got)
	}
	// No caller can make this relay connect to an address of its choice.
	for _, id := range []string{"", "127.0.0.1:1", "r9", "r1", "w1"} {
		if back := r.probeBack(t.Context(), id); back != nil {
			t.Errorf("back to %q: %+v", id, back)
		}
	}
}

func TestWithCertificatesAWorkerGetsNoFacts(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.secure = secured(t, "certificates")
	r := f.relay(func(*Settings) {})
	req, _ := http.NewRequestWithContext(t.Context(), "GET", "https://"+r.PeerAddr()+factsPath, nil)
	m := membership.Member{ID: "r1", Role: identity.RoleRelay, ForwardAddr: r.PeerAddr()}
	for _, c := range []struct {
		role identity.Role
		want bool
	}{{identity.RoleRelay, true}, {identity.RoleWorker, false}, {identity.RoleClient, false}} {
		resp, err := ingress.PeerClient(f.source(c.role, "other"), m, nil).Do(req)
		if resp != nil {
			_ = resp.Body.Close()
		}
		if told := err == nil && resp.StatusCode == http.StatusOK; told != c.want {
			t.Errorf("%s: %v %v", c.role, resp, err)
		}
	}
}

func TestWithoutCertificatesStrangersLearnNothingThatGossipHides(t *testing.T) {
	f := public(check.Facts{
		Members: []string{"w1"}, MemberCount: 1, Missing: []check.Missing{{Service: "s", Worker: "w1"}}, MissingCount: 1, SharedKey: "ssss",
		Unproven: []check.Unproven{{Member: "w1"}}, Reasons: []string{"seed 10.0.0.1 refused"}, Certificate: &check.Certificate{Problem: "/etc/key", DenyProblem: "/etc/key"},
		Ingress: &check.IngressCertificate{Problem: "/etc/key"},
	})
	body, err := f.Encode()
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"w1", "ssss", "10.0.0.1", "/etc/key"} {
		if strings.Contains(string(body), secret) {
			t.Errorf("%q in %s", secret, body)
		}
	}
	if len(f.Reasons) != 1 || f.MissingCount != 1 || f.MemberCount != 1 {
		t.Errorf("that there is something wrong is told: %+v", f)
	}
}

// A program that only picks has the role of a relay and no address at which it could be asked. That
// it answers nothing is no fault.
func TestAProgramWithoutAnAddressIsAskedForNothing(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.relay(func(*Settings) {})
	node, err := membership.New(membership.Config{Cluster: "test", Environment: "ci", ID: "calls-1", Role: identity.RoleRelay, BindAddr: anyPort, Seeds: f.seeds()})
	if err != nil {
		t.Fatal(err)
	}
	calls, err := router.New(router.Config{Node: node, PickOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	f.run(calls)
	r.await(t, "the program", func() bool {
		s := r.Fleet.Snapshot()
		return s != nil && len(s.Members()) == 2 && len(r.Reasons()) == 0
	})
	report, err := r.Check(t.Context())
	if err != nil || report.Status != api.OK {
		t.Errorf("%v %+v", err, report)
	}
	survey, err := r.survey(t.Context(), nil)
	if err != nil || len(survey.relays) != 1 {
		t.Errorf("%v %+v", err, survey)
	}
}

// TestAMemberThatReportsNoFactsIsAFinding asks processes that are no relays of this version.
func TestAMemberThatReportsNoFactsIsAFinding(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.relay(func(*Settings) {})
	answering := func(status int, body string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		}))
		t.Cleanup(s.Close)
		return s.Listener.Addr().String()
	}
	silent := procs.Listen(t) // connects, and never answers
	other := r.PeerAddr()
	for _, c := range []struct {
		name, addr string
		older      bool
		want       string
	}{
		{"an older version", answering(404, "{}"), true, "404"},
		{"one that refuses", answering(403, "{}"), false, "403"},
		{"garbage", answering(200, "<html>"), false, "no facts"},
		{"too much", answering(200, `{"format":1,"relay":"`+strings.Repeat("x", check.MaxFacts)+`"}`), false, "more than"},
		{"absent", refusing(t), false, "refused"},
		{"no address", "", false, "no peer address"},
		{"another owner", other, false, "new owner"},
		{"silence", silent.Addr().String(), false, "deadline"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx := t.Context()
			if c.name == "silence" {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, 50*time.Millisecond)
				defer cancel()
			}
			p := r.askFacts(ctx, membership.Member{ID: "r9", Role: identity.RoleRelay, ForwardAddr: c.addr}, "back=r1")
			if p.Facts != nil || p.Err == nil || errors.Is(p.Err, check.ErrNoFacts) != c.older || !strings.Contains(p.Err.Error(), c.want) {
				t.Errorf("%+v", p)
			}
		})
	}
}

// asks is the peer listener of a member r9, and how often it was asked for facts.
type asks struct {
	asked  atomic.Int32
	answer func(w http.ResponseWriter, req *http.Request, n int32) // to the question of this number
}

func (a *asks) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.URL.Path != factsPath {
		http.NotFound(w, req)
		return
	}
	a.answer(w, req, a.asked.Add(1))
}

func factsOfR9(w http.ResponseWriter) {
	body, _ := check.Facts{Relay: "r9", Role: "relay", Time: time.Now()}.Encode()
	_, _ = w.Write(body)
}

// join makes the peer listener one of a member that r sees.
func (a *asks) join(f *fleet, r *runningRelay) {
	f.t.Helper()
	server := httptest.NewServer(a)
	f.t.Cleanup(server.Close)
	node, err := membership.New(membership.Config{Cluster: "test", Environment: "ci", ID: "r9", Role: identity.RoleRelay, BindAddr: anyPort, Seeds: f.seeds(), ForwardAddr: server.Listener.Addr().String()})
	if err != nil {
		f.t.Fatal(err)
	}
	if err := node.Start(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = node.Close() })
	r.await(f.t, "r9", func() bool { s := r.Fleet.Snapshot(); return s != nil && len(s.Members()) == 2 })
}

// answering returns the last finding about whether relays answer.
func answering(report *api.Report) (found api.Finding) {
	for _, one := range report.Findings {
		if one.Check == "relays-answer" {
			found = one
		}
	}
	return found
}

// A relay answers eight questions at a time, and twelve relays may check in the same second.
func TestARelayThatIsBusyWithOtherChecksIsAskedAgain(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.relay(func(*Settings) {})
	(&asks{answer: func(w http.ResponseWriter, _ *http.Request, n int32) {
		if n <= checkRounds { // a new round alone is not enough: all checks have theirs at the same time
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		factsOfR9(w)
	}}).join(f, r)
	report, err := r.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := answering(report); got.Status != api.OK {
		t.Errorf("%+v", got)
	}

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	server := httptest.NewServer(&asks{answer: func(w http.ResponseWriter, req *http.Request, n int32) {
		if n == 3 { // the time of the check is over
			cancel()
			<-req.Context().Done()
		}
		w.WriteHeader(http.StatusTooManyRequests)
	}})
	t.Cleanup(server.Close)
	p := r.askFacts(ctx, membership.Member{ID: "r9", Role: identity.RoleRelay, ForwardAddr: server.Listener.Addr().String()}, "back=r1")
	if !errors.Is(p.Err, check.ErrBusy) || !errors.Is(p.Err, errRefuses) {
		t.Errorf("one that was busy all the time: %+v", p)
	}
}

func TestACheckWhoseTimeEndsReportsNothingThatItHasNotAsked(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.relay(func(*Settings) {})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	(&asks{answer: func(w http.ResponseWriter, req *http.Request, n int32) {
		if n == 1 { // what the check repeats, because it may pass
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		cancel()
		<-req.Context().Done()
	}}).join(f, r)
	report, err := r.Check(ctx)
	if err != nil || !strings.Contains(answering(report).Text, "500 Internal Server Error") {
		t.Errorf("the complete round before is not the result: %v %+v", err, report)
	}
	report, err = r.Check(ctx)
	if err == nil || !strings.Contains(err.Error(), "the check did not finish") {
		t.Errorf("%v %+v", err, report)
	}
	survey, err := r.survey(ctx, nil)
	if err != nil || len(survey.relays) != 2 {
		t.Fatalf("%v %+v", err, survey)
	}
	for _, one := range survey.relays {
		if one.ID == "r9" && (one.err == nil || !strings.Contains(one.err.Error(), "was not asked")) {
			t.Error(one.err)
		}
	}
}

func TestACheckIsAnsweredOverTheAdminAPI(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.relay(func(s *Settings) { s.Requests.MaxInFlight = 1 })
	_, _ = f.echo("w1")
	r.settled(t, "echo", 1)
	var report api.Report
	if status, body := r.api(t, "/api/v1/check", &report); status != http.StatusOK || report.Relay != "r1" || len(report.Findings) < len(check.Names()) {
		t.Fatalf("%d %s", status, body)
	}
	// One relay is fewer than three, and that is all.
	for _, one := range report.Findings {
		if one.Status != api.OK && one.Page != "docs/operations/too-few-relays.md" {
			t.Errorf("%+v", one)
		}
	}
}

// Of two processes with one id the cluster follows one. All relays name both, and the one
// that is left out blames no firewall.
func TestTheCheckNamesTwoProcessesWithOneIDAndTheLeftOutOneReportsOnlyThat(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r1 := f.relay(func(*Settings) {})
	older := f.relay(func(s *Settings) { s.ID = "twin" })
	r1.await(t, "the first twin", func() bool { s := r1.members.Snapshot(); return s != nil && len(s.Members()) == 2 })
	newer := f.relay(func(s *Settings) { s.ID = "twin" })
	older.await(t, "the second twin", func() bool { return older.members.Status().DuplicateAddr == newer.GossipAddr() })
	newer.await(t, "the first twin", func() bool { return newer.members.Status().DuplicateAddr == older.GossipAddr() })
	for _, r := range []*runningRelay{r1, newer, older} {
		// The older twin comes and goes in the views of the others until it is known to be one.
		r.await(t, "both twins in its report", func() bool {
			report, err := r.Check(t.Context())
			if err != nil {
				return false
			}
			got := report.Findings[0]
			return got.Check == "ids-unique" && got.Status == api.Failed && got.Subject == "twin" && strings.Contains(got.Text, newer.GossipAddr()) &&
				(r != older || len(report.Findings) == 1) // the one that is left out finds only that
		})
	}
	banner := func(r *runningRelay) string {
		source := &statusSource{Relay: r.Relay}
		for _, n := range source.document(t.Context(), "").Notices {
			if n.Runbook == "duplicate-id" {
				return n.Text
			}
		}
		return ""
	}
	if got := banner(newer); !strings.Contains(got, "has the id of this relay, at "+older.GossipAddr()) {
		t.Errorf("the page says %q while both live", got)
	}
	if err := older.stop(); err != nil {
		t.Fatal(err)
	}
	newer.await(t, "the first twin gone", func() bool { return newer.members.Status().DuplicateAddr == "" })
	if got := banner(newer); !strings.Contains(got, "had the id of this relay") {
		t.Errorf("the page says %q when one is gone", got)
	}
}
