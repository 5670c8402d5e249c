package relay

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/logtest"
	"github.com/ringway/ringway/internal/relay/check"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

func relayOf(t *testing.T, f *api.Fleet, id string) api.FleetRelay {
	t.Helper()
	for _, r := range f.Relays {
		if r.ID == id {
			return r
		}
	}
	t.Fatalf("%s is not in %+v", id, f.Relays)
	return api.FleetRelay{}
}

// Four relays and a gate: one relay does not answer, one has left.
func TestTheViewOfTheFleetHasTheNumbersOfEachRelayAndTheReasonOfThoseThatDoNotAnswer(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	plain := func(s *Settings) { s.DrainTimeout, s.SessionDrainTimeout = 100*time.Millisecond, 100*time.Millisecond } // a closed listener is waited for
	r1, r2, r3, r4 := f.relay(plain), f.relay(plain), f.relay(plain), f.relay(plain)
	gate := f.relay(func(s *Settings) { plain(s); s.ID, s.Role = "g1", identity.RoleGate })
	held, release := make(chan struct{}), make(chan struct{})
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/fails":
			w.WriteHeader(http.StatusInternalServerError)
		case "/held":
			held <- struct{}{}
			<-release
		}
	}))
	t.Cleanup(backend.Close)
	f.worker("w1", service("echo", backend))
	all := []*runningRelay{r1, r2, r3, r4, gate}
	for _, r := range all {
		r.await(t, "all members", func() bool { s := r.members.Snapshot(); return s != nil && len(s.Members()) == len(all)+1 })
		r.settled(t, "echo", 1)
	}
	if err := r4.stop(); err != nil {
		t.Fatal(err)
	}
	r1.await(t, "r4 gone", func() bool { return len(r1.members.Snapshot().Members()) == len(all) })
	if err := r3.peer.server.Close(); err != nil {
		t.Fatal(err)
	}
	before, err := r1.survey(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	call := func(r *runningRelay, path string, times int) {
		for range times {
			r.call(t, http.MethodGet, path, nil, "Ringway-Service: echo")
		}
	}
	call(r1, "/", 4)
	call(r1, "/fails", 2)
	call(r2, "/", 3)
	r2.drain.set(true)
	r1.await(t, "that r2 is draining", func() bool { m, _ := r1.Fleet.Snapshot().Get("r2"); return m.Draining })
	done := make(chan struct{})
	go func() {
		defer close(done)
		call(r1, "/held", 1)
	}()
	<-held
	after, err := r1.survey(t.Context(), before)
	if err != nil {
		t.Fatal(err)
	}
	after.explain(before)
	close(release)
	<-done
	fleet := sumFleet("r1", before, after)
	for id, want := range map[string]api.Counts{"r1": {Requests: 6, Errors: 2, InFlight: 1}, "r2": {Requests: 3}, "g1": {}} {
		got := relayOf(t, fleet, id)
		if !got.Answered || got.Counts != want || got.Ready == (id == "r2") || got.Version == "" || !got.Measured || (got.State == api.MemberDraining) != (id == "r2") || got.Problem != "" {
			t.Errorf("%s: %+v, want %+v", id, got, want)
		}
		if got.RequestsPerSecond > 0 != (want.Requests > 0) || got.ErrorsPerSecond > 0 != (want.Errors > 0) {
			t.Errorf("%s: %+v", id, got.Rates)
		}
	}
	if got := relayOf(t, fleet, "r2"); len(got.Reasons) != 1 || got.Reasons[0] != "draining" {
		t.Errorf("%+v", got)
	}
	if got := relayOf(t, fleet, "r3"); got.Answered || got.State != api.MemberAlive || !strings.Contains(got.Problem, "refused") {
		t.Errorf("unreachable: %+v", got)
	}
	if got := relayOf(t, fleet, "r4"); got.Answered || got.State != api.MemberLeft || got.Problem != "it left" {
		t.Errorf("stopped: %+v", got)
	}
	if len(fleet.Services) != 1 {
		t.Fatalf("%+v", fleet.Services)
	}
	if got := fleet.Services[0]; got.Counts != (api.Counts{Requests: 9, Errors: 2, InFlight: 1}) || got.Relays != 3 || got.Workers != 1 || !got.Measured {
		t.Errorf("%+v", got)
	}
	if got := logtest.Series(t, r1.cfg.Registry, "ringway_relay_fleet_reports_missing_total")["unreachable"]; got != 1 { // r3, asked once
		t.Errorf("%v missing reports are counted", got)
	}

	// A request that the gate forwards counts at two relays and once for its service.
	call(gate, "/", 5)
	var answer api.Fleet
	if status, body := gate.api(t, "/api/v1/fleet?window=50ms", &answer); status != http.StatusOK || answer.Relay != "g1" || answer.WindowMs != 50 {
		t.Fatalf("%d %s", status, body)
	}
	forwarded := uint64(0)
	for _, id := range []string{"r1", "r2"} {
		forwarded += relayOf(t, &answer, id).Requests
	}
	if got := relayOf(t, &answer, "g1").Requests; got != 5 || forwarded != 15 || answer.Services[0].Requests != 15 { // ten of r1 and r2 themselves
		t.Errorf("g1 %d, r1 and r2 %d, echo %+v", got, forwarded, answer.Services[0])
	}
	for _, window := range []string{"1ms", "1h", "x"} {
		if status, body := gate.api(t, "/api/v1/fleet?window="+window, nil); status != http.StatusBadRequest || !strings.Contains(body, "allowed are") {
			t.Errorf("%s: %d %s", window, status, body)
		}
	}
}

func TestAReportOfAnotherRelayThatIsImpossibleIsRefusedAndCounted(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.relay(func(*Settings) {})
	for name, c := range map[string]struct {
		status       int
		load         string
		want, reason string
	}{
		"a good one":              {200, `{"uptime_ms":5,"total":{"requests":3,"errors":1},"services":[{"service":"echo","requests":3,"errors":1,"evicted":["w1"]}],"service_count":1}`, "", ""},
		"no load":                 {200, "null", "reports no traffic", reportOlder},
		"an unknown question":     {404, "", "404", reportOlder},
		"an error":                {403, "", "403", reportRefused},
		"too much":                {200, `{"x":"` + strings.Repeat("x", check.MaxFacts) + `"}`, "more than", reportInvalid},
		"a negative number":       {200, `{"total":{"in_flight":-1}}`, "impossible load", reportInvalid},
		"too great a number":      {200, `{"total":{"requests":18446744073709551615}}`, "impossible load", reportInvalid},
		"more errors than all":    {200, `{"total":{"requests":1,"errors":2}}`, "impossible load", reportInvalid},
		"an uptime below zero":    {200, `{"uptime_ms":-1}`, "impossible load", reportInvalid},
		"a service twice":         {200, `{"services":[{"service":"a"},{"service":"a"}],"service_count":2}`, "listed twice", reportInvalid},
		"a name with an escape":   {200, `{"services":[{"service":"a\u001b"}],"service_count":1}`, "impossible load", reportInvalid},
		"a worker with an escape": {200, `{"services":[{"service":"a","evicted":["\u001b[2J"]}],"service_count":1}`, "impossible load", reportInvalid},
		"more than it counts":     {200, `{"services":[{"service":"a"}]}`, "impossible load", reportInvalid},
		"forwarded below zero":    {200, `{"services":[{"service":"a","forwarded":{"sessions":-4}}],"service_count":1}`, "impossible load", reportInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			peer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				if req.URL.Path != factsPath || !req.URL.Query().Has("load") {
					t.Errorf("asked for %s", req.URL)
				}
				w.WriteHeader(c.status)
				_, _ = fmt.Fprintf(w, `{"format":1,"relay":"r9","load":%s}`, c.load)
			}))
			defer peer.Close()
			counted := func() float64 {
				return logtest.Series(t, r.cfg.Registry, "ringway_relay_fleet_reports_missing_total")[c.reason]
			}
			before := counted()
			one := surveyed{ListedMember: api.ListedMember{Member: membership.Member{ID: "r9", Role: identity.RoleRelay, ForwardAddr: peer.Listener.Addr().String()}}}
			r.surveyOne(t.Context(), &one)
			if c.want == "" {
				if one.err != nil || one.facts.Load.Total.Requests != 3 {
					t.Errorf("%+v", one)
				}
				return
			}
			if one.facts != nil || one.err == nil || !strings.Contains(one.err.Error(), c.want) || counted() != before+1 {
				t.Errorf("%+v, counted %v after %v", one.err, counted(), before)
			}
		})
	}
}

func TestALoadHasNoNamesWhereGossipHidesThem(t *testing.T) {
	f := public(check.Facts{Load: &check.Load{Total: api.Counts{Requests: 7}, Services: []api.ServiceTraffic{{Service: "billing", Evicted: []string{"w1"}}}, ServiceCount: 1}})
	body, err := f.Encode()
	if err != nil || strings.Contains(string(body), "billing") || strings.Contains(string(body), "w1") || f.Load.Total.Requests != 7 {
		t.Errorf("%s %v", body, err)
	}
	now := &survey{relays: []surveyed{{ListedMember: api.ListedMember{Member: membership.Member{ID: "r2"}}, facts: &f}}}
	if got := relayOf(t, sumFleet("r1", nil, now), "r2"); got.Requests != 7 || got.Problem != "1 of its 1 services are not in the sums of services" || got.Measured {
		t.Errorf("%+v", got)
	}
}

func loaded(id string, uptime int64, services ...api.ServiceTraffic) surveyed {
	load := &check.Load{UptimeMs: uptime, Services: services, ServiceCount: len(services)}
	for _, s := range services {
		load.Total.Add(s.Counts)
	}
	return surveyed{ListedMember: api.ListedMember{Member: membership.Member{ID: id}}, facts: &check.Facts{Relay: id, Load: load}}
}

func TestRatesAreThoseOfTheWindowAndARelayThatBeganInItHasNone(t *testing.T) {
	echo := func(requests, errors uint64, evicted ...string) api.ServiceTraffic {
		return api.ServiceTraffic{Service: "echo", Counts: api.Counts{Requests: requests, Errors: errors}, Workers: 4, Evicted: evicted}
	}
	before := &survey{relays: []surveyed{loaded("r2", 1000, echo(100, 10)), loaded("r10", 9000, echo(50, 0)), loaded("r3", 5000, echo(900, 900))}}
	now := &survey{relays: []surveyed{
		loaded("r10", 11_000, echo(70, 0, "w1", "w2")), loaded("r2", 3000, echo(140, 20, "w1")), loaded("r3", 500, echo(7, 7)), loaded("r4", 300, echo(1, 0)),
	}}
	f := sumFleet("r2", before, now)
	var ids []string
	for _, r := range f.Relays {
		ids = append(ids, r.ID)
	}
	if fmt.Sprint(ids) != "[r2 r3 r4 r10]" {
		t.Error(ids)
	}
	for id, want := range map[string]api.Rates{"r2": {Measured: true, RequestsPerSecond: 20, ErrorsPerSecond: 5}, "r10": {Measured: true, RequestsPerSecond: 10}, "r3": {}, "r4": {}} {
		if got := relayOf(t, f, id).Rates; got != want {
			t.Errorf("%s: %+v, want %+v", id, got, want)
		}
	}
	got := f.Services[0]
	if got.Requests != 218 || got.RequestsPerSecond != 30 || got.ErrorShare() != 5.0/30 || got.Relays != 4 || got.Workers != 4 {
		t.Errorf("%+v", got)
	}
	if fmt.Sprint(got.Evicted) != "[{w1 [r2 r10]} {w2 [r10]}]" {
		t.Errorf("%+v", got.Evicted)
	}
}

// A relay with more services than a report takes reports the first, and how many there are.
func TestAReportOfManyServicesIsCutAndMarkedSo(t *testing.T) {
	var services []api.ServiceTraffic
	for i := range check.MaxServices + 5 {
		services = append(services, api.ServiceTraffic{Service: fmt.Sprintf("s%05d", i), Latency: []api.LatencyBucket{{UpToMs: 1}}})
	}
	one := loaded("r2", 1, services...)
	body, err := one.facts.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if one.facts, err = check.DecodeFacts(strings.NewReader(string(body))); err != nil || len(one.facts.Load.Services) != check.MaxServices || one.facts.Load.Services[0].Latency != nil {
		t.Fatalf("%v", err)
	}
	if got := relayOf(t, sumFleet("r1", nil, &survey{relays: []surveyed{one}}), "r2"); !strings.HasPrefix(got.Problem, "5 of its 2005 services") {
		t.Errorf("%+v", got)
	}
}

func TestTheTrafficOfARelayHasItsCountersItsLatencyAndItsPeers(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.relay(func(*Settings) {})
	f.echo("w1")
	r.settled(t, "echo", 1)
	for range 3 {
		r.call(t, http.MethodGet, "/", nil, "Ringway-Service: echo")
	}
	r.call(t, http.MethodGet, "/", nil, "Ringway-Service: echo", "Ringway-Timeout: 0") // the relay's own 504
	var got api.Traffic
	if status, body := r.api(t, "/api/v1/traffic?peers=1", &got); status != http.StatusOK || got.Relay != "r1" || len(got.Services) != 1 {
		t.Fatalf("%d %s", status, body)
	}
	s := got.Services[0]
	if s.Counts != (api.Counts{Requests: 4, Errors: 1}) || s.Workers != 1 || len(s.Peers) != 1 || s.Peers[0].Requests != 3 || len(s.Latency) == 0 || s.Latency[len(s.Latency)-1].Requests != 4 {
		t.Errorf("%+v", s)
	}
	got = api.Traffic{}
	if _, body := r.api(t, "/api/v1/traffic", nil); json.Unmarshal([]byte(body), &got) != nil || got.Services[0].Peers != nil {
		t.Error(body)
	}
}

// The page asks for the fleet when it is read; the answer is in a later update.
func TestTheStatusPageShowsTheRelaysOfTheFleet(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	plain := func(s *Settings) { s.DrainTimeout, s.SessionDrainTimeout = 100*time.Millisecond, 100*time.Millisecond } // a closed listener is waited for
	r1, r2 := f.relay(plain), f.relay(plain)
	f.echo("w1")
	for _, r := range []*runningRelay{r1, r2} {
		r.settled(t, "echo", 1)
		r.await(t, "three members", func() bool { return len(r.members.Snapshot().Members()) == 3 })
	}
	if r1.surveyor.newest.Load() != nil {
		t.Error("the fleet was asked without a reader")
	}
	r2.drain.set(true)
	fleetOf := func() string {
		_, page := r1.api(t, "/", nil)
		_, section, _ := strings.Cut(page, `<section id="fleet"`)
		section, _, _ = strings.Cut(section, "</section>")
		return section
	}
	r1.await(t, "both relays on the page, with rates", func() bool {
		section := fleetOf()
		return strings.Contains(section, `data-key="r1"`) && strings.Contains(section, `data-key="r2"`) && strings.Contains(section, "Rates over the last") && strings.Contains(section, ">draining<")
	})
	if err := r2.peer.server.Close(); err != nil {
		t.Fatal(err)
	}
	r1.await(t, "that r2 does not answer", func() bool {
		section := fleetOf()
		return strings.Contains(section, "no answer") && strings.Contains(section, "refused")
	})
}

// The page counts as relay top does, by service, worker and caller, and only while it is
// read: a record of each request has a cost.
func TestTheStatusPageShowsTheTrafficOfTheRelayWhileItIsRead(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.relay(func(*Settings) {})
	f.echo("w1")
	r.settled(t, "echo", 1)
	if r.records.Wants("echo") {
		t.Error("requests are counted without a reader")
	}
	row := func(section, key string) string {
		_, page := r.api(t, "/", nil)
		_, page, _ = strings.Cut(page, `<section id="`+section+`"`)
		page, _, _ = strings.Cut(page, "</section>")
		_, page, _ = strings.Cut(page, `<tr data-key="`+key+`"`)
		page, _, _ = strings.Cut(page, "</tr>")
		return page
	}
	rate := regexp.MustCompile(`<td class="n">[1-9][0-9.,]*</td><td class="n failing">[0-9.,]+</td><td class="n">[0-9.,]+</td>`)
	r.await(t, "its requests and errors by service and caller", func() bool {
		for range 5 {
			r.call(t, http.MethodGet, "/", nil, "Ringway-Service: echo")
		}
		r.call(t, http.MethodGet, "/", nil, "Ringway-Service: echo", "Ringway-Timeout: 0") // the relay's own 504
		return rate.MatchString(row("services", "echo")) && rate.MatchString(row("callers", "127.0.0.1")) && strings.Contains(row("peers", "w1"), `<td class="n">`)
	})
	if peer := row("peers", "w1"); !regexp.MustCompile(`<td>[a-z]+</td><td class="n">[1-9][0-9.,]*</td>`).MatchString(peer) {
		t.Errorf("no rate of the worker in %s", peer)
	}
	r.await(t, "the end of counting", func() bool { return !r.records.Wants("echo") })
}
