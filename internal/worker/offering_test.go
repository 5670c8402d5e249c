package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/process"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/worker/health"
)

const waitLimit = 30 * time.Second

// instance is a real service whose health a test decides.
type instance struct {
	addr string
	sick atomic.Bool
}

func startInstance(t *testing.T) *instance {
	i := &instance{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if i.sick.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(server.Close)
	i.addr = server.Listener.Addr().String()
	return i
}

// service is one with a check that a busy machine does not fail by chance: each probe has a
// second, which is the interval and so the most.
func (i *instance) service(t *testing.T, name, options string) Service {
	t.Helper()
	s, err := ParseService(name + "=" + i.addr + ";check=http:/;interval=1s;fall=2;rise=1" + options)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func unchecked(t *testing.T, name string) Service {
	t.Helper()
	s, err := ParseService(name + "=127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// relays hear the offer.
type relays struct {
	mu     sync.Mutex
	heard  []map[string]advertise.Service
	wake   chan struct{}
	refuse error

	drained atomic.Bool // as the worker reports it
}

func (r *relays) offer(services []advertise.Service) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refuse != nil {
		return r.refuse
	}
	view := map[string]advertise.Service{}
	for _, s := range services {
		view[s.Name] = s
	}
	r.heard = append(r.heard, view)
	close(r.wake)
	r.wake = make(chan struct{})
	return nil
}

func (r *relays) last() (view map[string]advertise.Service, heard int, next chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.heard) > 0 {
		view = r.heard[len(r.heard)-1]
	}
	return view, len(r.heard), r.wake
}

// await waits until exactly these services are offered; a name with a tilde is
// draining.
func (r *relays) await(t *testing.T, want ...string) {
	t.Helper()
	limit := time.After(waitLimit)
	for {
		view, _, next := r.last()
		if slices.Equal(spell(view), want) {
			return
		}
		select {
		case <-next:
		case <-limit:
			t.Fatalf("the relays know %v, want %v", spell(view), want)
		}
	}
}

func spell(view map[string]advertise.Service) []string {
	names := []string{}
	for _, name := range slices.Sorted(maps.Keys(view)) {
		if view[name].State == advertise.Draining {
			name += "~"
		}
		names = append(names, name)
	}
	return names
}

// always reports whether a service was on offer in everything that was heard from
// the n-th on.
func (r *relays) always(name string, from int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, view := range r.heard[from:] {
		if _, ok := view[name]; !ok {
			return false
		}
	}
	return true
}

func startOffering(t *testing.T, services ...Service) (*offering, *relays, *prometheus.Registry) {
	t.Helper()
	reg := prometheus.NewRegistry()
	r := &relays{wake: make(chan struct{})}
	o := newOffering(offeringConfig{Offer: r.offer, Drained: r.drained.Store, Logger: slog.New(slog.DiscardHandler), Checks: health.NewMetrics(reg), Metrics: newMetrics(reg)})
	mustReplace(t, o, services...)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- o.run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return o, r, reg
}

func mustReplace(t *testing.T, o *offering, services ...Service) api.WorkerReload {
	t.Helper()
	change, err := o.replace(services)
	if err != nil {
		t.Fatal(err)
	}
	return change
}

func TestAServiceIsOfferedWhileItsCheckPassesAndNoOtherIsTouched(t *testing.T) {
	t.Parallel()
	i := startInstance(t)
	i.sick.Store(true)
	o, r, _ := startOffering(t, i.service(t, "checked", ""), unchecked(t, "plain"))
	r.await(t, "plain")
	if s := o.status()[0]; s.State != string(Unhealthy) || s.Error == "" || s.Check != string(health.HTTP) {
		t.Errorf("%+v", s)
	}
	for range 2 {
		i.sick.Store(false)
		r.await(t, "checked", "plain")
		if s := o.status()[0]; s.State != string(Offered) || s.Error != "" || s.Since.IsZero() {
			t.Errorf("%+v", s)
		}
		i.sick.Store(true)
		r.await(t, "plain")
		if s := o.status()[0]; s.State != string(Unhealthy) || !strings.Contains(s.Error, "503") {
			t.Errorf("%+v", s)
		}
	}
	if !r.always("plain", 0) {
		t.Error("a service without a check was withdrawn")
	}
}

func TestAReloadTouchesOnlyWhatItChanges(t *testing.T) {
	i := startInstance(t)
	same, heavier, gone := i.service(t, "same", ""), i.service(t, "heavier", ""), i.service(t, "gone", "")
	o, r, reg := startOffering(t, same, heavier, gone, unchecked(t, "plain"))
	r.await(t, "gone", "heavier", "plain", "same")
	before, probe := o.status(), o.services["heavier"].probe
	_, heard, _ := r.last()

	heavier.Weight = 77
	change := mustReplace(t, o, i.service(t, "new", ""), heavier, same, unchecked(t, "plain"))
	if diff := cmp.Diff(api.WorkerReload{Added: []string{"new"}, Changed: []string{"heavier"}, Removed: []string{"gone"}}, change); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	r.await(t, "heavier", "new", "plain", "same")
	if view, _, _ := r.last(); view["heavier"].Weight != 77 {
		t.Errorf("%+v", view["heavier"])
	}
	if o.services["heavier"].probe != probe {
		t.Error("the check of a service that became heavier began anew")
	}
	for _, name := range []string{"same", "heavier", "plain"} {
		if !r.always(name, heard) {
			t.Errorf("%s was withdrawn for a moment", name)
		}
		at := func(list []api.WorkerService) time.Time {
			return list[slices.IndexFunc(list, func(s api.WorkerService) bool { return s.Name == name })].Since
		}
		if !at(before).Equal(at(o.status())) {
			t.Errorf("%s changed its state", name)
		}
	}
	if change := mustReplace(t, o, unchecked(t, "plain"), same, heavier, i.service(t, "new", "")); !change.Empty() {
		t.Errorf("the same in another order: %+v", change)
	}
	awaitForgotten(t, reg, "gone")
}

// awaitForgotten waits until no series names the service.
func awaitForgotten(t *testing.T, reg *prometheus.Registry, service string) {
	t.Helper()
	procs.Await(t, "no series of "+service, func() bool {
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		return !strings.Contains(fmt.Sprint(families), `"`+service+`"`)
	})
}

// awaitProbe waits until that many probes of a service have ended.
func awaitProbe(t *testing.T, o *offering, service string, n int) {
	t.Helper()
	procs.Await(t, fmt.Sprintf("%d probes of %s", n, service), func() bool { return o.services[service].probe.Status().Probes >= n })
}

func TestAChangedCheckDecidesWhenItHasAVerdict(t *testing.T) {
	t.Parallel()
	i, other := startInstance(t), startInstance(t)
	o, r, _ := startOffering(t, i.service(t, "s", ""))
	r.await(t, "s")
	old := o.services["s"].probe
	_, heard, _ := r.last()
	mustReplace(t, o, i.service(t, "s", ";expect=200"))
	if o.services["s"].probe == old {
		t.Fatal("the old check goes on")
	}
	r.await(t, "s")
	awaitProbe(t, o, "s", 2) // by then its first verdict counts: healthy, too
	if !r.always("s", heard) {
		t.Error("it was withdrawn although it was healthy all the time")
	}
	i.sick.Store(true)
	r.await(t) // reports the new check

	other.sick.Store(true)
	i.sick.Store(false)
	r.await(t, "s")
	mustReplace(t, o, other.service(t, "s", ""))
	r.await(t) // nothing is known of the other address yet
	other.sick.Store(false)
	r.await(t, "s")
	if view, _, _ := r.last(); view["s"].Address != other.addr {
		t.Errorf("%+v", view["s"])
	}
}

// Grace is for services that start. One that was healthy is withdrawn after fall failures, not later and
// not after one.
func TestAHealthyServiceWhoseCheckChangesHasNoGrace(t *testing.T) {
	t.Parallel()
	i := startInstance(t)
	o, r, _ := startOffering(t, i.service(t, "s", ";grace=1h"))
	r.await(t, "s")
	i.sick.Store(true)
	mustReplace(t, o, i.service(t, "s", ";grace=1h;timeout=200ms"))
	r.await(t)
}

func TestAServiceAtANewAddressIsCheckedAnewAlsoIfItsCheckHasAnAddressOfItsOwn(t *testing.T) {
	t.Parallel()
	i, other, checked := startInstance(t), startInstance(t), startInstance(t)
	s := i.service(t, "s", "")
	s.Check.Address = checked.addr
	o, r, _ := startOffering(t, s)
	r.await(t, "s")
	s.Address = other.addr
	mustReplace(t, o, s)
	procs.Await(t, "the service is offered at its new address", func() bool {
		view, _, _ := r.last()
		return view["s"].Address == other.addr
	})
}

func TestACheckComesAndGoesWithoutAMomentOfAbsence(t *testing.T) {
	i := startInstance(t)
	plain := i.service(t, "s", "")
	plain.Check = health.Check{}
	o, r, reg := startOffering(t, plain)
	r.await(t, "s")
	mustReplace(t, o, i.service(t, "s", ""))
	awaitProbe(t, o, "s", 2) // by then its first verdict counts
	mustReplace(t, o, plain)
	i.sick.Store(true) // which is no longer checked
	awaitForgotten(t, reg, "s")
	r.await(t, "s")
	if !r.always("s", 0) {
		t.Error("it was withdrawn although it was healthy all the time")
	}
}

func TestDrainedServicesAreAnnouncedAndUnknownOnesRefused(t *testing.T) {
	t.Parallel()
	i := startInstance(t)
	o, r, reg := startOffering(t, i.service(t, "a", ""), unchecked(t, "b"))
	r.await(t, "a", "b")
	drain := func(drained bool, names ...string) {
		t.Helper()
		if err := o.drain(drained, names); err != nil {
			t.Fatal(err)
		}
	}
	drain(true, "a")
	r.await(t, "a~", "b")
	if list := o.status(); list[0].State != string(Draining) || !list[0].Drained || list[1].Drained {
		t.Errorf("%+v", list)
	}
	var unknown *UnknownServiceError
	if err := o.drain(true, []string{"b", "z", "x", "z"}); !errors.As(err, &unknown) || err.Error() != `no such service: ["x" "z"]; this worker has a, b` {
		t.Errorf("%v", err)
	}
	r.await(t, "a~", "b")

	i.sick.Store(true) // health goes before drains
	r.await(t, "b")
	i.sick.Store(false)
	r.await(t, "a~", "b")
	if err := testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP ringway_worker_services Services of this worker, by what becomes of them: offered, unhealthy (relays do not know them), draining (relays send nothing new).
# TYPE ringway_worker_services gauge
ringway_worker_services{state="draining"} 1
ringway_worker_services{state="offered"} 1
ringway_worker_services{state="unhealthy"} 0
`), "ringway_worker_services"); err != nil {
		t.Error(err)
	}

	mustReplace(t, o, unchecked(t, "b"))
	mustReplace(t, o, unchecked(t, "b"), i.service(t, "a", ""))
	r.await(t, "a", "b") // a is another one
	if r.drained.Load() {
		t.Error("the worker is drained, and offers")
	}
	drain(true, "a", "b")
	if r.await(t, "a~", "b~"); !r.drained.Load() {
		t.Error("all services are drained, and the worker is not")
	}
	mustReplace(t, o, unchecked(t, "b"), i.service(t, "a", ""), unchecked(t, "c"))
	if r.await(t, "a~", "b~", "c"); r.drained.Load() {
		t.Error("the worker is drained with a service that is new")
	}
	mustReplace(t, o, unchecked(t, "b"), i.service(t, "a", ""))
	drain(true)
	r.await(t, "a~", "b~")
	mustReplace(t, o, unchecked(t, "b"), i.service(t, "a", ""), unchecked(t, "c"))
	r.await(t, "a~", "b~", "c~")
	drain(false, "c")
	r.await(t, "a~", "b~", "c")
	drain(false)
	if r.await(t, "a", "b", "c"); r.drained.Load() {
		t.Error("the worker stays drained")
	}
}

func TestReasonsExplainWhyNothingIsOffered(t *testing.T) {
	i := startInstance(t)
	i.sick.Store(true)
	o, r, _ := startOffering(t)
	if got := o.reasons(); !slices.Equal(got, []process.Reason{{Code: process.NoService, Text: "no service is configured yet"}}) {
		t.Errorf("%q", got)
	}
	if _, heard, _ := r.last(); heard > 0 {
		t.Error("the relays got no announcement")
	}
	mustReplace(t, o, i.service(t, "a", ""), unchecked(t, "b"))
	if got := o.reasons(); got != nil {
		t.Errorf("b is offered: %q", got)
	}
	if err := o.drain(true, []string{"b"}); err != nil {
		t.Fatal(err)
	}
	awaitProbe(t, o, "a", 1)
	got := o.reasons()
	if len(got) != 2 || got[0].Code != process.ServiceUnhealthy || !strings.HasPrefix(got[0].Text, "service a is not offered: unhealthy: ") || !strings.Contains(got[0].Text, "503") || got[1] != (process.Reason{Code: process.ServiceDrained, Text: "service b is drained"}) {
		t.Errorf("%q", got)
	}
	var dozens []Service
	for n := range 40 {
		dozens = append(dozens, i.service(t, fmt.Sprintf("s%02d", n), ""))
	}
	mustReplace(t, o, dozens...)
	if got := o.reasons(); len(got) != 11 || got[10].Text != "and 30 services more" {
		t.Errorf("%q", got)
	}
}

func TestAnOfferThatIsRefusedIsMadeAgainWithTheNextChange(t *testing.T) {
	o, r, _ := startOffering(t)
	r.mu.Lock()
	r.refuse = errors.New("no")
	r.mu.Unlock()
	mustReplace(t, o, unchecked(t, "a"))
	r.mu.Lock()
	r.refuse = nil
	r.mu.Unlock()
	mustReplace(t, o, unchecked(t, "a"), unchecked(t, "b"))
	r.await(t, "a", "b")
}

func TestRelaysAreSentToTheSidecarWhereItStandsInFront(t *testing.T) {
	for sidecar, want := range map[string]string{"": "127.0.0.1:1", "10.0.0.1:7421": "10.0.0.1:7421"} {
		r := &relays{wake: make(chan struct{})}
		o := newOffering(offeringConfig{
			Offer: r.offer, Drained: r.drained.Store, Logger: slog.New(slog.DiscardHandler), Checks: health.NewMetrics(nil), Metrics: newMetrics(nil), SidecarAddress: sidecar,
		})
		mustReplace(t, o, unchecked(t, "a"))
		view, _, _ := r.last()
		if a := view["a"]; a.Secured != (sidecar != "") || a.Address != want {
			t.Errorf("sidecar at %q: %+v", sidecar, view)
		}
		if list := o.status(); list[0].Address != "127.0.0.1:1" {
			t.Errorf("an operator is shown %+v, want the service itself", list[0])
		}
	}
}

// Whatever happens at the same time, the relays hear the true state last.
func TestTheLastNotificationIsTheLastState(t *testing.T) {
	instances := []*instance{startInstance(t), startInstance(t), startInstance(t)}
	o, r, _ := startOffering(t)
	var all []Service
	for n := range 9 {
		all = append(all, instances[n%3].service(t, fmt.Sprintf("s%d", n), ""))
	}
	var busy sync.WaitGroup
	for worker := range uint64(3) {
		busy.Go(func() {
			random := rand.New(rand.NewPCG(worker, 1))
			for range 100 {
				switch random.IntN(3) {
				case 0:
					some := slices.Clone(all)
					random.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
					if _, err := o.replace(some[:random.IntN(len(some)+1)]); err != nil {
						t.Error(err)
					}
				case 1:
					_ = o.drain(random.IntN(2) == 0, []string{all[random.IntN(len(all))].Name}) // it may not be there
				default:
					instances[random.IntN(3)].sick.Store(random.IntN(2) == 0)
				}
			}
		})
	}
	busy.Wait()
	instances[0].sick.Store(true)
	instances[1].sick.Store(false)
	instances[2].sick.Store(false)
	mustReplace(t, o, all...)
	if err := o.drain(false, nil); err != nil {
		t.Fatal(err)
	}
	if err := o.drain(true, []string{"s1", "s3"}); err != nil {
		t.Fatal(err)
	}
	r.await(t, "s1~", "s2", "s4", "s5", "s7", "s8")
}
