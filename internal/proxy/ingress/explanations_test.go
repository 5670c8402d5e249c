package ingress_test

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/proxy/ingress"
	"github.com/ringway/ringway/internal/proxy/upstream"
)

func TestTheChoicesOfASampledRequestAreRememberedWithTheirReasons(t *testing.T) {
	explained := ingress.NewExplanations(10)
	good := worker(t, func(http.ResponseWriter, *http.Request) {})
	x := recording(t, func(c *ingress.Config) {
		c.Explanations, c.TrustedProxies = explained, []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	}, refusing(t), good, good)
	x.ask(t.Context(), clientOf(t, 1), "GET", "/", "", "X-Request-Id: mine")
	x.next()
	e, ok := explained.Of("mine")
	if !ok || e.Relay != "r1" || e.Service != "echo" || e.Status != 200 || e.Outcome != "2xx" || len(e.Attempts) != 2 {
		t.Fatalf("%+v", e)
	}
	first, second, why := e.Attempts[0], e.Attempts[1], e.Decisions
	if first.Endpoint != "w1" || first.Failure != "dial" || first.Chosen != "ordered" || why[0].Winner != "w1" || len(why[0].Candidates) != 3 || why[0].Reason == "" {
		t.Errorf("%+v, %+v", first, why[0])
	}
	if second.Endpoint != "w2" || second.Status != 200 || why[1].Winner != "w2" {
		t.Errorf("%+v, %+v", second, why[1])
	}
}

func TestAStreamThatGoesOnceMoreToTheOnlyWorkerIsExplainedByThat(t *testing.T) {
	explained := ingress.NewExplanations(10)
	x := recording(t, func(c *ingress.Config) {
		c.Explanations, c.TrustedProxies = explained, []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	}, upstream.Config{Address: refusingStreams(t, 1), Protocol: advertise.H2C})
	x.ask(t.Context(), clientOf(t, 1), "GET", "/", "", "X-Request-Id: mine")
	x.next()
	e, ok := explained.Of("mine")
	if !ok || e.Status != 200 || len(e.Attempts) != 2 || e.Attempts[0].Endpoint != "w1" || e.Attempts[1].Endpoint != "w1" {
		t.Fatalf("%+v", e)
	}
	first, again := e.Decisions[0], e.Decisions[1]
	if first.Winner != "w1" || again.Winner != "w1" || again.Strategy != first.Strategy || again.Range != 1 || !strings.Contains(again.Reason, "no other") {
		t.Errorf("%+v, then %+v", first, again)
	}
}

func TestARequestWithoutAnEndpointIsExplainedAndOneOutsideOfTheSampleIsNot(t *testing.T) {
	for sample, want := range map[float64]bool{0: false, 1: true} {
		explained := ingress.NewExplanations(10)
		x := recording(t, func(c *ingress.Config) { c.Explanations, c.Record.Sample, c.FromRelay = explained, sample, true })
		x.ask(t.Context(), clientOf(t, 1), "GET", "/", "", "X-Request-Id: mine")
		x.next()
		e, ok := explained.Of("mine")
		if ok != want {
			t.Fatalf("a sample of %v: remembered: %v", sample, ok)
		}
		if ok && (e.Code != "no_endpoint" || len(e.Attempts) != 1 || e.Attempts[0].Endpoint != "" || e.Decisions[0].Winner != "") {
			t.Errorf("%+v", e)
		}
	}
}

func TestOnlyTheNewestRequestsAndAFewCandidatesAreRemembered(t *testing.T) {
	const remembered, workers = 3, 40
	explained := ingress.NewExplanations(remembered)
	good := worker(t, func(http.ResponseWriter, *http.Request) {})
	var all []upstream.Config
	for range workers {
		all = append(all, good)
	}
	x := recording(t, func(c *ingress.Config) { c.Explanations, c.FromRelay = explained, true }, all...)
	client := clientOf(t, 1)
	for i := range 2 * remembered {
		x.ask(t.Context(), client, "GET", "/", "", fmt.Sprint("X-Request-Id: ", i))
		x.next()
	}
	x.ask(t.Context(), client, "GET", "/", "", "X-Request-Id: 5") // a second request of this ID
	x.next()
	for i := range 2 * remembered {
		e, ok := explained.Of(fmt.Sprint(i))
		if ok != (i >= remembered+1) {
			t.Errorf("request %d is remembered: %v", i, ok)
		}
		if ok && (len(e.Decisions[0].Candidates) != 16 || e.Decisions[0].Range != workers) {
			t.Errorf("%d candidates of %d", len(e.Decisions[0].Candidates), e.Decisions[0].Range)
		}
	}
	if none := ingress.NewExplanations(0); none != nil {
		t.Error("a relay that remembers nothing explains")
	} else if _, ok := none.Of("5"); ok {
		t.Error("it remembers")
	}
}
