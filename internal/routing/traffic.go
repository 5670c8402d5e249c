package routing

import (
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/metric"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

// Reasons of ringway_relay_demand_refused_total.
const (
	refusedService = "unknown_service"
	refusedRole    = "not_affine"
)

// traffic is what the relays of the fleet state about their traffic. Only Run uses it.
type traffic struct {
	own     demand
	taken   *advertise.Relays                    // the last ones
	said    map[string]*advertise.RelayStatement // by relay
	of      map[string]map[string]int            // requests per second by service and relay
	refused *prometheus.CounterVec
	ratio   *prometheus.GaugeVec
}

func newTraffic(memory time.Duration, reg prometheus.Registerer) traffic {
	f := metric.With(reg)
	t := traffic{
		own: demand{memory: memory}, said: map[string]*advertise.RelayStatement{}, of: map[string]map[string]int{},
		refused: f.CounterVec("ringway_relay_demand_refused_total", "Rates in statements of relays that no plan uses, each counted when it arrives, by reason: unknown_service, not_affine (the relay does not serve the service).", "reason"),
		ratio:   f.GaugeVec("ringway_relay_demand_ratio", "Traffic that this relay states for a service that it serves, divided by the mean of what the relays of the service state; absent where it states none. At most 64 services.", "service"),
	}
	metric.StartAtZero(t.refused, refusedService, refusedRole)
	return t
}

// update takes the statements of a view. Those of relays that have vanished are kept while keep
// returns true. It returns the services in which a relay states another rate, and the statements
// that are new.
func (t *traffic) update(relays *advertise.Relays, keep func(relay string) bool) (services map[string][]string, fresh []string) {
	services = map[string][]string{}
	set := func(relay string, next *advertise.RelayStatement) {
		for _, s := range rates(t.said[relay]) {
			if !slices.Contains(rates(next), s) {
				delete(t.of[s.Service], relay)
				if len(t.of[s.Service]) == 0 {
					delete(t.of, s.Service)
				}
				services[s.Service] = append(services[s.Service], relay)
			}
		}
		for _, s := range rates(next) {
			if slices.Contains(rates(t.said[relay]), s) {
				continue
			}
			if t.of[s.Service] == nil {
				t.of[s.Service] = map[string]int{}
			}
			t.of[s.Service][relay] = int(s.Rate)
			services[s.Service] = append(services[s.Service], relay)
		}
	}
	for relay := range t.said {
		if relays.Of(relay) == nil && !keep(relay) {
			set(relay, nil)
			delete(t.said, relay)
		}
	}
	if relays == t.taken {
		return services, nil
	}
	t.taken = relays
	for relay, statement := range relays.All() {
		if t.said[relay] != statement {
			set(relay, statement)
			t.said[relay] = statement
			fresh = append(fresh, relay)
		}
	}
	return services, fresh
}

// rates returns the rates of a statement that may be nil.
func rates(s *advertise.RelayStatement) []advertise.Traffic {
	if s == nil {
		return nil
	}
	return s.Traffic
}

// updateTraffic takes the statements of the newest view and returns the services whose plans they
// change.
func (r *Router) updateTraffic() (replan map[string]bool, fresh []string) {
	changed, fresh := r.traffic.update(r.view.Relays(), func(relay string) bool {
		_, present := r.snapshot.Get(relay) // a relay that has restarted states what it carries now
		return !present && (hasMember(r.fleet.absent, relay) || hasMember(r.fleet.relays, relay))
	})
	replan = make(map[string]bool, len(changed))
	for service, relays := range changed {
		s, known := r.Service(service)
		if !known || s.Route().Plan == nil {
			continue
		}
		for _, relay := range relays { // a relay outside the plan must not cause one
			if _, affine := s.Route().Plan.Index(relay); affine {
				replan[service] = true
				break
			}
		}
	}
	return replan, fresh
}

// countRefused counts the rates in new statements that no plan uses.
func (r *Router) countRefused(fresh []string) {
	if !r.Settled() { // services that are unknown may come
		return
	}
	for _, relay := range fresh {
		for _, stated := range rates(r.traffic.said[relay]) {
			s, known := r.Service(stated.Service)
			if !known {
				r.traffic.refused.WithLabelValues(refusedService).Inc()
			} else if plan := s.Route().Plan; plan != nil {
				if _, affine := plan.Index(relay); !affine {
					r.traffic.refused.WithLabelValues(refusedRole).Inc()
				}
			}
		}
	}
}

// relaysFor returns the relays of the fleet for the plan of a service.
func (r *Router) relaysFor(service string) []affinity.Relay {
	if len(r.traffic.of[service]) == 0 {
		return r.fleet.candidates // all routes share it
	}
	return candidates(r.fleet.relays, r.traffic.of[service])
}

// candidates converts members for the plan of a service, with the traffic that they state.
func candidates(members []membership.Member, traffic map[string]int) []affinity.Relay {
	out := make([]affinity.Relay, len(members))
	for i, m := range members {
		out[i] = affinity.Relay{ID: m.ID, Place: affinity.Place{Datacenter: m.Datacenter, Region: m.Region}, Traffic: traffic[m.ID]}
	}
	return out
}

// trafficOf returns what the relays of a plan state.
func (r *Router) trafficOf(plan *affinity.Plan) map[string]int {
	var out map[string]int
	of := r.traffic.of[plan.Service()]
	for _, relay := range plan.Affine() {
		if rate := of[relay]; rate > 0 {
			if out == nil {
				out = make(map[string]int, len(of))
			}
			out[relay] = rate
		}
	}
	return out
}

// Traffic returns the requests per second that a relay states for the service, and how many times
// the mean of what the relays of the plan state that is; 0 if it states none.
func (r *Route) Traffic(relay string) (rate int, ratio float64) {
	rate = r.traffic[relay]
	if rate == 0 {
		return 0, 0
	}
	sum := 0
	for _, each := range r.traffic {
		sum += each
	}
	return rate, float64(rate) * float64(len(r.traffic)) / float64(sum)
}

// Share returns this relay's part of the requests to the service, by what the relays of the plan
// state; one that states nothing counts as it does for the plan. Relays that have
// vanished have no part. Without a plan, for an observer or in a test, this relay carries all.
func (r *Route) Share() float64 {
	if r.share == 0 {
		return 1
	}
	return r.share
}

// shareOf returns the share of a relay of the plan. As in the plan, what a relay states counts as at
// least the mean divided by affinity.MaxTrafficRatio: the mean contains what another one may have made
// up. So all shares together are at most 1 + 1 / MaxTrafficRatio.
func (r *Route) shareOf(relay string) float64 {
	stated, expected := 0.0, 0.0 // of the relays that state their traffic
	for i, each := range r.Plan.Affine() {
		if rate := r.traffic[each]; rate > 0 && r.counts(each, relay) {
			stated += float64(rate)
			expected += r.expectedOf(i)
		}
	}
	own, sum, present := 0.0, 0.0, 0
	for i, each := range r.Plan.Affine() {
		if !r.counts(each, relay) {
			continue
		}
		rate := float64(r.traffic[each])
		if rate == 0 {
			rate = r.expectedOf(i)
			if expected > 0 {
				rate *= stated / expected
			}
		}
		if each == relay {
			own = rate
		}
		sum += rate
		present++
	}
	if present == 0 || sum == 0 {
		return 1
	}
	return max(own/sum, 1/float64(affinity.MaxTrafficRatio*present))
}

// counts reports whether a relay of the plan has a share beside that of relay.
func (r *Route) counts(each, relay string) bool { return each == relay || !r.absentRelays[each] }

// expectedOf returns what the relay at an index of the plan carries, as a multiple of the mean, if all
// relays of the fleet get the same from clients.
func (r *Route) expectedOf(index int) float64 {
	if r.expected == nil {
		return 1
	}
	return r.expected[index]
}

// statedBy returns what the relay at an index states, for this relay.
func (r *Route) statedBy(index, rate int) statedRate {
	return statedRate{index, int(math.Round(float64(rate) * r.expectedOf(r.Index) / r.expectedOf(index)))}
}

// countedOf returns the absent relays that the plan still counts.
func countedOf(plan *affinity.Plan, absent []affinity.Relay) []affinity.Relay {
	return slices.DeleteFunc(slices.Clone(absent), func(r affinity.Relay) bool { _, counts := plan.Index(r.ID); return !counts })
}

// expectations returns expectedOf of each relay of a plan, nil if all carry the same: as the plan
// does, see affinity.Relay.
func expectations(plan *affinity.Plan, fleet []affinity.Relay) []float64 {
	if !slices.ContainsFunc(fleet, func(r affinity.Relay) bool { return r.Place != fleet[0].Place }) {
		return nil
	}
	all, places := map[affinity.Place]int{}, make(map[string]affinity.Place, len(fleet))
	for _, r := range fleet {
		places[r.ID] = r.Place
		all[r.Place]++
	}
	chosen := map[affinity.Place]int{}
	for _, relay := range plan.Affine() {
		chosen[places[relay]]++
	}
	out := make([]float64, len(plan.Affine()))
	for i, relay := range plan.Affine() {
		place := places[relay]
		out[i] = float64(all[place]*len(out)) / float64(chosen[place]*len(fleet))
	}
	return out
}

// states reports whether this relay is one that states its traffic.
func (r *Router) states() bool { return r.cfg.Role == identity.RoleRelay && r.cfg.StateTraffic != nil }

// stateTraffic measures the services that this relay serves and states what has changed.
func (r *Router) stateTraffic(now time.Time) {
	var services []served
	for name, s := range *r.services.Load() {
		route := s.Route()
		if route.Plan == nil || !route.Affine() {
			s.demand.Store(0)
			continue
		}
		own := served{service: name, sent: s.Endpoints.Sent() + s.Limited.Load(), index: route.Index}
		if of := r.traffic.of[name]; len(of) > 0 {
			for i, relay := range route.Plan.Affine() {
				if rate := of[relay]; rate > 0 && i != route.Index {
					own.others = append(own.others, route.statedBy(i, rate))
				}
			}
		}
		services = append(services, own)
	}
	before := r.traffic.own.stated
	statement, changed := r.traffic.own.update(now, services)
	for name, c := range r.traffic.own.services {
		if s, known := r.Service(name); known {
			s.demand.Store(math.Float64bits(c.rate()))
		}
	}
	if changed {
		r.cfg.StateTraffic(slices.Clone(statement))
		r.logTraffic(before, statement)
	}
	for _, stated := range before {
		if !slices.ContainsFunc(statement, func(t advertise.Traffic) bool { return t.Service == stated.Service }) {
			r.traffic.ratio.DeleteLabelValues(stated.Service)
		}
	}
	for _, stated := range statement {
		if s, known := r.Service(stated.Service); known {
			if _, ratio := s.Route().Traffic(r.cfg.Self); ratio > 0 { // the own statement has returned in a view
				r.traffic.ratio.WithLabelValues(stated.Service).Set(ratio)
			}
		}
	}
}

// logTraffic logs what this relay states anew.
func (r *Router) logTraffic(before, after []advertise.Traffic) {
	was := make(map[string]int32, len(before))
	for _, t := range before {
		was[t.Service] = t.Rate
	}
	for _, t := range after {
		if was[t.Service] != t.Rate {
			r.lines.Log(slog.LevelInfo, "this relay states its traffic", "service", t.Service, "requests_per_second", t.Rate, "before", was[t.Service])
		}
		delete(was, t.Service)
	}
	for service, rate := range was {
		r.lines.Log(slog.LevelInfo, "this relay states its traffic no longer", "service", service, "before", rate)
	}
}
