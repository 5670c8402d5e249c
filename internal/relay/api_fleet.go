package relay

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/process"
	"github.com/ringway/ringway/internal/relay/check"
)

const (
	// The window of rates: long enough for a number that does not jump, short enough to wait.
	defaultWindow, leastWindow, longestWindow = 2 * time.Second, 50 * time.Millisecond, 10 * time.Second
	// surveysAtOnce bounds the concurrent requests for the whole fleet.
	surveysAtOnce = 4
	// mostServices bounds the services of the whole fleet, because a compromised relay can
	// report any names.
	mostServices = 10_000
)

// showTraffic answers with the counters of this relay.
func (r *Relay) showTraffic(w http.ResponseWriter, req *http.Request) {
	process.WriteJSON(w, http.StatusOK, r.readTraffic(req.URL.Query().Get("peers") == "1"))
}

// readTraffic reads the counters of all services, with those of their peers if it is asked
// to.
func (r *Relay) readTraffic(peers bool) *api.Traffic {
	now := &api.Traffic{Relay: r.cfg.Membership.ID, UptimeMs: time.Since(r.Epoch()).Milliseconds(), Services: []api.ServiceTraffic{}}
	for _, s := range r.Routes.Services() {
		t := r.traffic(s)
		if peers {
			if route := s.Route(); route.Affine() {
				t.Peers = r.describeWorkers(s, route)
			} else {
				_, t.Peers = describeForwarding(s)
			}
		}
		now.Services = append(now.Services, t)
	}
	return now
}

// showFleet asks all relays twice, a window apart, and answers with their traffic.
func (r *Relay) showFleet(w http.ResponseWriter, req *http.Request) {
	window := defaultWindow
	if text := req.URL.Query().Get("window"); text != "" {
		var err error
		if window, err = time.ParseDuration(text); err != nil || window < leastWindow || window > longestWindow {
			process.WriteError(w, http.StatusBadRequest, fmt.Sprintf("window %.40q: allowed are %s to %s", text, leastWindow, longestWindow))
			return
		}
	}
	select {
	case r.surveying <- struct{}{}:
		defer func() { <-r.surveying }()
	default:
		process.WriteError(w, http.StatusServiceUnavailable, fmt.Sprintf("%d others ask for the whole fleet at the moment: try again later", surveysAtOnce))
		return
	}
	fleet, err := r.measure(req.Context(), window)
	if err != nil {
		process.WriteError(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	process.WriteJSON(w, http.StatusOK, fleet)
}

func (r *Relay) measure(ctx context.Context, window time.Duration) (*api.Fleet, error) {
	before, err := r.survey(ctx, nil)
	if err != nil {
		return nil, err
	}
	select {
	case <-time.After(window):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	after, err := r.survey(ctx, before)
	if err != nil {
		return nil, err
	}
	after.explain(before)
	fleet := sumFleet(r.cfg.Membership.ID, before, after)
	fleet.WindowMs = window.Milliseconds()
	return fleet, nil
}

// explain adds the reasons of an earlier survey for the relays that were not asked again.
func (s *survey) explain(earlier *survey) {
	for i := range s.relays {
		one := &s.relays[i]
		if one.facts != nil || one.err != nil {
			continue
		}
		for _, before := range earlier.relays {
			if before.ID == one.ID {
				one.err = before.err
			}
		}
		if one.err == nil {
			one.err = errors.New("it has just joined")
		}
	}
}

// sumFleet adds up a survey. The earlier one, which may be nil, gives the rates.
func sumFleet(self string, earlier, now *survey) *api.Fleet {
	f := &api.Fleet{Relay: self, Relays: []api.FleetRelay{}, Services: []api.FleetService{}}
	sums := map[string]*api.FleetService{}
	for _, one := range slices.SortedFunc(slices.Values(now.relays), func(a, b surveyed) int { return process.Natural(a.ID, b.ID) }) {
		relay := api.FleetRelay{ID: one.ID, Role: string(one.Role), State: one.State}
		if one.err != nil {
			relay.Problem = check.Clean(one.err.Error())
		}
		if one.facts != nil {
			fillRelay(&relay, one.facts)
			missed := addLoad(sums, relayLoad{one.ID, one.facts.Load, earlier.find(one.ID)}, &relay.Rates)
			if missed += one.facts.Load.ServiceCount - len(one.facts.Load.Services); missed > 0 {
				relay.Problem = fmt.Sprintf("%d of its %d services are not in the sums of services", missed, one.facts.Load.ServiceCount)
			}
		}
		f.Relays = append(f.Relays, relay)
	}
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		slices.SortFunc(sums[name].Evicted, func(a, b api.EvictedWorker) int { return process.Natural(a.Worker, b.Worker) })
		f.Services = append(f.Services, *sums[name])
	}
	return f
}

func fillRelay(relay *api.FleetRelay, facts *check.Facts) {
	relay.Answered, relay.Ready, relay.Version = true, len(facts.Reasons) == 0, check.Clean(facts.Version)
	for _, reason := range facts.Reasons {
		relay.Reasons = append(relay.Reasons, check.Clean(reason))
	}
	relay.UptimeMs, relay.Counts = facts.Load.UptimeMs, facts.Load.Total
}

// relayLoad is the load of a relay, and its earlier one if it is known.
type relayLoad struct {
	relay        string
	now, earlier *check.Load
}

// addLoad adds the services of one relay to the sums and returns how many it left out,
// because there are too many. rates has the rates of that relay.
func addLoad(sums map[string]*api.FleetService, of relayLoad, rates *api.Rates) (missed int) {
	seconds := 0.0
	if of.earlier != nil && of.now.UptimeMs > of.earlier.UptimeMs { // otherwise it was started again
		seconds = float64(of.now.UptimeMs-of.earlier.UptimeMs) / 1000
		rates.Add(of.now.Total.Since(of.earlier.Total), seconds)
	}
	for i := range of.now.Services {
		s := &of.now.Services[i]
		sum := sums[s.Service]
		if sum == nil {
			if len(sums) >= mostServices {
				missed++
				continue
			}
			sum = &api.FleetService{Service: s.Service, Evicted: []api.EvictedWorker{}}
			sums[s.Service] = sum
		}
		sum.Relays++
		sum.Workers = max(sum.Workers, s.Workers)
		clients := s.OfClients()
		sum.Counts.Add(clients)
		if seconds > 0 {
			sum.Rates.Add(clients.Since(of.earlier.OfClients(s.Service)), seconds)
		}
		for _, worker := range s.Evicted {
			addEvicted(sum, worker, of.relay)
		}
	}
	return missed
}

func addEvicted(sum *api.FleetService, worker, relay string) {
	for i := range sum.Evicted {
		if e := &sum.Evicted[i]; e.Worker == worker {
			if !slices.Contains(e.Relays, relay) {
				e.Relays = append(e.Relays, relay)
			}
			return
		}
	}
	sum.Evicted = append(sum.Evicted, api.EvictedWorker{Worker: worker, Relays: []string{relay}})
}
