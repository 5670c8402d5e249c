package ingress

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/internal/wire"
	"github.com/ringway/ringway/selection"
)

func known(t *testing.T, name string) *routing.Service {
	t.Helper()
	s, err := routing.NewService(name, selection.DefaultConfig())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Names cost series only when they are asked for, and until they are gone, so that a
// flood of them leaves nothing.
func TestSeriesBeginWithTheFirstRequestAndEndWithTheService(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := NewMetrics(reg)
	series := func() int {
		t.Helper()
		n, err := testutil.GatherAndCount(reg)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	baseline := series()
	const names, asked = 16_000, 100
	services := make([]*routing.Service, names)
	for i := range services {
		services[i] = known(t, fmt.Sprintf("s%d", i))
	}
	h := New(Config{Services: byName(services), Epoch: time.Now(), Requests: Requests{Timeout: time.Minute, MaxAttempts: 1, MaxInFlight: 1}, Metrics: m, Logger: slog.New(slog.DiscardHandler)})
	ask := func(name string) {
		r := httptest.NewRequest("GET", "/", http.NoBody)
		r.Header.Set(wire.ServiceHeader, name)
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
	if n := series(); n != baseline {
		t.Errorf("%d series for %d services that get no requests, %d without them", n, names, baseline)
	}
	for _, s := range services[:asked] {
		ask(s.Name)
	}
	each := 1 + len(outcomes) + len(retryReasons()) + len(codesOfAService) + len(limitNames) + 1 // and the limit itself
	if n := series(); n != baseline+asked*each {
		t.Errorf("%d series for %d services that got requests, want %d and %d each", n, asked, baseline, each)
	}
	for _, s := range services {
		s.Retire()
		m.Vanished(s)
	}
	for _, s := range services[:2*asked] { // requests that found the service before it vanished
		ask(s.Name)
	}
	if n := series(); n != baseline {
		t.Errorf("%d series after all services have vanished, %d before they came", n, baseline)
	}
	m.services.Range(func(name, _ any) bool { t.Errorf("%v is remembered", name); return false })
}

type byName []*routing.Service

func (s byName) Service(name string) (*routing.Service, bool) {
	i := slices.IndexFunc(s, func(s *routing.Service) bool { return s.Name == name })
	return s[max(i, 0)], i >= 0
}

// Whichever comes first, a request or the end of its service, no series is left.
func TestARequestThatRacesWithTheEndOfItsServiceLeavesNoSeries(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := NewMetrics(reg)
	baseline, err := testutil.GatherAndCount(reg)
	if err != nil {
		t.Fatal(err)
	}
	for range 200 {
		s := known(t, "echo")
		var both sync.WaitGroup
		both.Go(func() { m.forService(s).finished(outcomeFailed, 1, 1) })
		both.Go(func() { s.Retire(); m.Vanished(s) })
		both.Wait()
	}
	if n, err := testutil.GatherAndCount(reg); n != baseline || err != nil {
		t.Errorf("%d series, want %d (%v)", n, baseline, err)
	}
}

// A rate sees nothing of a series that begins with its first event, so that one must
// not be what makes the series.
func TestTheFirstEventOfAKindIsNoNewSeries(t *testing.T) {
	m := NewMetrics(prometheus.NewRegistry())
	of := m.forService(known(t, "echo"))
	counts := func() [5]int {
		return [...]int{
			testutil.CollectAndCount(m.requests), testutil.CollectAndCount(m.durations), testutil.CollectAndCount(m.attempts),
			testutil.CollectAndCount(m.retries), testutil.CollectAndCount(m.rejections),
		}
	}
	before := counts()
	if slices.Contains(before[:], 0) {
		t.Fatalf("series at the start: %v", before)
	}
	for o := range outcomes {
		of.finished(outcome(o), 1, 1)
	}
	for stage := range upstream.Stage(100) {
		of.retried(stage.String())
	}
	for _, reason := range []string{stageMisdirected, stageOther, stageNoBudget} {
		of.retried(reason)
	}
	for code := range statusOf {
		if code == wire.CodeUnknownService || code == wire.CodeMethodNotAllowed {
			m.unnamed(code)
			continue
		}
		of.rejected(code)
	}
	m.unnamed(wire.CodeBadRequest)
	m.unnamed(wire.CodeNoEndpoint)
	if after := counts(); after != before {
		t.Errorf("series of requests, durations, retries and rejections: %v at the start, %v later", before, after)
	}
	for _, stage := range upstream.Stages() {
		if got := testutil.ToFloat64(m.retries.WithLabelValues("echo", stage.String())); got != 1 {
			t.Errorf("%v retries because of %s, want 1", got, stage)
		}
	}
	nameless := float64(100 - len(upstream.Stages()))
	if got := testutil.ToFloat64(m.retries.WithLabelValues("echo", stageOther)); got != nameless+1 {
		t.Errorf("%v retries for other reasons, want those of the %v stages that have no name, and one", got, nameless)
	}
}
