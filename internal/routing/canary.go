package routing

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/metric"
	"github.com/ringway/ringway/internal/publish"
	"github.com/ringway/ringway/internal/strategy"
	"github.com/ringway/ringway/ring"
	"github.com/ringway/ringway/selection"
)

// KeyCanary is the key of the canary in the policy of a service.
const KeyCanary = "canary"

// Canary is a version of a service that gets a share of its requests, 0 to 1, whatever number of
// workers has it. A key is always on the same side, at each relay, and one that is in a share is
// also in each larger one. A request goes to the other side only if its own has no worker for it.
type Canary struct {
	Version string
	Share   float64
}

// Canaries are the operator's canaries by service.
type Canaries map[string]Canary

// Set reports whether c is one.
func (c Canary) Set() bool { return c.Version != "" }

// Has reports whether an endpoint has the version. Different texts can be the same version. Metadata of a
// build counts only if the operator names some.
func (c Canary) Has(e *advertise.Endpoint) bool {
	if e != nil && strings.Contains(c.Version, "+") {
		return strings.TrimPrefix(e.Version, "v") == strings.TrimPrefix(c.Version, "v")
	}
	return e != nil && strategy.CompareVersions(e.Version, c.Version) == 0
}

// String returns the form of the setting.
func (c Canary) String() string { return fmt.Sprintf("%s:%.5g%%", c.Version, 100*c.Share) }

// canaryRoute is a canary among the endpoints of one route. Its workers have no weight in the
// balancer, so that the strategy of the service picks among the others with all that it knows.
// What is sent to a canary still counts there, and failures evict as usual.
type canaryRoute struct {
	Canary
	seed    uint64    // of the hashes of keys
	targets []*Target // the workers of the version, those of the own zone first
	rest    []*Target // the others, at least one
	weights map[string]float64
	own     int     // how many of targets are of the own zone
	stay    float64 // the part of the requests without a key that these get
	counts  [len(canaryGroups)]prometheus.Counter
}

// canaryGroup is where a request goes.
type canaryGroup int

const (
	groupUndecided canaryGroup = iota
	groupCanary
	groupRest
	groupOther // the own one had no worker for it
)

var canaryGroups = [...]string{groupCanary: "canary", groupRest: "rest", groupOther: "failed_over"}

type canaryMetrics struct{ requests *prometheus.CounterVec }

func newCanaryMetrics(reg prometheus.Registerer) canaryMetrics {
	return canaryMetrics{metric.With(reg).CounterVec("ringway_relay_canary_requests_total", "Attempts of requests to services with a canary, by group: canary (to its version), rest (to the others), failed_over (the own group had no worker that could take it, and one of the other did).", "service", "group")}
}

// SetCanaries replaces the operator's canaries. Services whose canary changes get another route
// soon. It may be called from any goroutine, before Run too.
func (r *Router) SetCanaries(canaries Canaries) {
	r.canaries.Store(&canaries)
	publish.Notify(r.replan)
}

func (r *Router) canaryOf(service string) Canary {
	if canaries := r.canaries.Load(); canaries != nil {
		return (*canaries)[service]
	}
	return Canary{}
}

// splitCanary divides the range of a route. Each relay must reach both groups, or a key would be on
// another side there: so it gets all workers of the version in addition to those that it was
// planned to have, and all others if it was planned to have none. The plan stays, and a canary
// can begin and end by a reload. If all workers have the version, or none, there is nothing to divide.
func (r *Router) splitCanary(route *Route, service string, ready *readyEndpoints) {
	of := r.canaryOf(service)
	if !of.Set() || !route.Affine() {
		return
	}
	split := &canaryRoute{Canary: of, seed: ring.Hash("canary "+service, 0), weights: map[string]float64{}}
	in := map[string]bool{}
	for _, t := range route.Range {
		in[t.Node] = true
		if of.Has(t.Endpoint) {
			split.targets = append(split.targets, t)
		} else {
			split.rest = append(split.rest, t)
		}
	}
	alone := len(split.rest) == 0
	var more []*Target
	for _, e := range route.Endpoints {
		_, refused := route.Refused[e.NodeID] // by targets, which has counted it
		if refused || !ready.has(e) || in[e.NodeID] || e.Unreachable || !of.Has(e) && !alone {
			continue
		}
		t, err := r.endpointTarget(e, route.TCP)
		if err != nil {
			r.leaveOut(route, e, err)
			continue
		}
		t.Weight = t.offeredWeight()
		if more = append(more, t); of.Has(e) {
			split.targets = append(split.targets, t)
		} else {
			split.rest = append(split.rest, t)
		}
	}
	if len(split.targets) == 0 || len(split.rest) == 0 {
		return
	}
	for _, t := range append(slices.Clone(split.targets), more...) { // all relays of the plan reach them
		if route.Plan != nil {
			t.Limit = r.slotShare(t.Endpoint, len(route.Plan.Affine()))
		}
	}
	for _, t := range split.targets {
		// The offer's own weight and not this relay's share: a worker that was added has none.
		split.weights[t.ID] = t.offeredWeight()
		t.Weight, t.Canary = 0, true
	}
	split.keepZone(route, r.cfg.Datacenter)
	for group := groupCanary; group <= groupOther; group++ {
		split.counts[group] = r.canaryMetrics.requests.WithLabelValues(service, canaryGroups[group])
	}
	route.Range, route.canary = append(route.Range, more...), split
}

// keepZone computes what stays in the own zone, as the plan does for the whole service: all, until the
// workers of the canary there would get the zone slack times the mean. An observer has no plan, by
// which it could know what the others send: all workers get the same from it.
func (c *canaryRoute) keepZone(route *Route, zone string) {
	if c.own, c.stay = len(c.targets), 1; route.Plan == nil {
		return
	}
	slices.SortStableFunc(c.targets, func(x, y *Target) int {
		switch {
		case x.OtherZone == y.OtherZone:
			return 0
		case x.OtherZone:
			return 1
		}
		return -1
	})
	own, all, traffic := 0.0, 0.0, 0.0
	for i, t := range c.targets {
		if all += c.weights[t.ID]; t.OtherZone {
			c.own = min(c.own, i)
		} else {
			own += c.weights[t.ID]
		}
	}
	if own == all {
		return
	}
	for _, flow := range route.Plan.Zones() {
		if flow.From.Datacenter == zone {
			traffic += flow.Share
		}
	}
	c.stay = route.Basis.WithDefaults().ZoneSlack * own / all / traffic
}

// logCanary logs the beginning, each change and the end of a canary.
func (r *Router) logCanary(service string, old, next *Route) {
	was, is := old.canary, next.canary
	switch {
	case is != nil && (was == nil || was.Canary != is.Canary || len(was.targets) != len(is.targets)):
		r.lines.Log(slog.LevelInfo, "canary", "service", service, "version", is.Version, "share", is.Share, "workers", len(is.targets), "others", len(is.rest))
	case was != nil && is == nil:
		r.lines.Log(slog.LevelInfo, "canary ended", "service", service, "version", was.Version)
	}
	if is == nil && !r.canaryOf(service).Set() {
		r.canaryMetrics.requests.DeletePartialMatch(prometheus.Labels{"service": service})
	}
}

// Canary returns the canary among the workers that this relay reaches, and how many have its version.
func (r *Route) Canary() (of Canary, workers int) {
	if r.canary == nil {
		return Canary{}, 0
	}
	return r.canary.Canary, len(r.canary.targets)
}

// picked lists the targets among which the strategy picks.
func (r *Route) picked() []*Target {
	if r.canary == nil {
		return r.Range
	}
	return r.canary.rest
}

// place returns where a key is between 0 and 1; the keys below the share belong to the canary.
func (c *canaryRoute) place(key string) float64 {
	if key == "" {
		return rand.Float64()
	}
	return float64(ring.Hash(key, c.seed)>>11) / (1 << 53)
}

// group returns the group of a request, the same for all of its attempts.
func (c *canaryRoute) group(key string, tried *Tried) canaryGroup {
	if tried.canary == groupUndecided {
		tried.canary = groupRest
		if c.place(key) < c.Share {
			tried.canary = groupCanary
		}
	}
	return tried.canary
}

// pick is Pick for a service with a canary.
func (c *canaryRoute) pick(s *Service, key string, now selection.Instant, tried *Tried) (selection.Pick[*Target], error) {
	own := c.group(key, tried)
	if own == groupCanary {
		if p, ok := c.take(s, key, now, tried); ok {
			c.counts[groupCanary].Inc()
			return p, nil
		}
	}
	p, err := s.pick(key, now, tried)
	if err != nil && own == groupRest {
		if other, ok := c.take(s, key, now, tried); ok {
			p, err = other, nil
		}
	}
	c.count(own, p, err)
	return p, err
}

func (c *canaryRoute) count(own canaryGroup, p selection.Pick[*Target], err error) {
	switch {
	case err != nil:
	case own == groupRest && !p.Value().Canary:
		c.counts[groupRest].Inc()
	default:
		c.counts[groupOther].Inc()
	}
}

// take begins a request at a worker of the canary that can take it: with a strategy by key at that
// of the key, else at the one with the fewest requests in flight of two of a zone.
func (c *canaryRoute) take(s *Service, key string, now selection.Instant, tried *Tried) (selection.Pick[*Target], bool) {
	var skipped [maxCanarySkipped]*Target
	for n := range skipped {
		t := c.choose(s, key, now, tried, skipped[:n])
		if t == nil {
			break
		}
		if p, err := s.Endpoints.Take(t.ID, now); err == nil {
			return p, true
		}
		skipped[n] = t // another request took its last place, or it has just left
	}
	return selection.Pick[*Target]{}, false
}

const maxCanarySkipped = 4

// choose returns nil if no worker of the canary can take the request.
func (c *canaryRoute) choose(s *Service, key string, now selection.Instant, tried *Tried, skipped []*Target) *Target {
	can := func(t *Target) bool {
		return s.Endpoints.Usable(t.ID, now) && !slices.Contains(tried.ids[:tried.n], t.ID) && !slices.Contains(skipped, t)
	}
	if key != "" && s.Choice().Spec.ByKey() {
		var best *Target
		highest, of := uint64(0), ring.Hash(key, c.seed+1)
		for _, t := range c.targets {
			if h := ring.Hash(t.Node, of); can(t) && (best == nil || h > highest) {
				best, highest = t, h
			}
		}
		return best
	}
	here, there := c.targets[:c.own], c.targets[c.own:]
	if rand.Float64() >= c.stay {
		here, there = there, here
	}
	if len(here) > 1 && tried.n == 0 && len(skipped) == 0 {
		i := rand.IntN(len(here))
		j := (i + 1 + rand.IntN(len(here)-1)) % len(here)
		if one, other := here[i], here[j]; can(one) && can(other) {
			if c.load(s, other) < c.load(s, one) {
				return other
			}
			return one
		}
	}
	for _, zone := range [...][]*Target{here, there} {
		var best *Target
		least, from := 0.0, rand.IntN(max(len(zone), 1))
		for i := range zone {
			t := zone[(from+i)%len(zone)]
			if load := c.load(s, t); can(t) && (best == nil || load < least) {
				best, least = t, load
			}
		}
		if best != nil {
			return best
		}
	}
	return nil
}

// load is the number of requests in flight for the weight, in the middle of the step of one more.
func (c *canaryRoute) load(s *Service, t *Target) float64 {
	return (float64(s.Endpoints.InFlight(t.ID).Count()) + 0.5) / c.weights[t.ID]
}

// CanaryDecision is the part of a canary in a Decision.
type CanaryDecision struct {
	Canary
	Workers int
	// Place of the key between 0 and 1; keys below Share belong to the canary. 0 without a
	// key: then chance decides.
	Place float64
	// Chosen reports whether the request belongs to the canary.
	Chosen bool
}

// explain adds the canary's part of a decision: for a request to it the whole decision.
func (c *canaryRoute) explain(s *Service, key string, own canaryGroup, d Decision) Decision {
	d.Canary = &CanaryDecision{Canary: c.Canary, Workers: len(c.targets), Chosen: own == groupCanary}
	why := "drawn for this request"
	if key != "" {
		d.Canary.Place = c.place(key)
		why = fmt.Sprintf("the key's place is %.4f", d.Canary.Place)
	}
	side := "not among"
	if own == groupCanary {
		side = "among"
	}
	d.Reason = fmt.Sprintf("%s the %.5g %% of the canary %s (%s); %s", side, 100*c.Share, c.Version, why, d.Reason)
	return d
}

// decision describes the pick of a worker of the canary, winner.
func (c *canaryRoute) decision(s *Service, key string, winner *Target) Decision {
	choice := s.Choice()
	d := Decision{Strategy: choice.Spec.String(), Origin: choice.Origin, Range: len(s.Route().Range), Winner: winner.Node, Measure: "requests in flight for the weight; the fewest of two win", Reason: "it has the fewest requests in flight of two"}
	if c.own > 0 && c.own < len(c.targets) {
		if d.Reason += " of its zone"; winner.OtherZone {
			d.Reason += ", which is another one: those of this zone have no room or get their part"
		}
	}
	if key != "" && choice.Spec.ByKey() {
		d.Key, d.Measure, d.Reason = key, "requests in flight for the weight", "the key's worker among those of the canary"
	}
	for _, t := range c.targets {
		d.Candidates = append(d.Candidates, Candidate{Node: t.Node, ID: t.ID, Address: t.Address, Score: c.load(s, t)})
	}
	return d
}

// explained is Explain for a service with a canary.
func (c *canaryRoute) explained(s *Service, key string, now selection.Instant) Decision {
	var tried Tried
	own := c.group(key, &tried)
	if own == groupCanary {
		if t := c.choose(s, key, now, &tried, nil); t != nil {
			return c.explain(s, key, own, c.decision(s, key, t))
		}
	}
	return c.explain(s, key, own, s.explain(key, now))
}

// pickExplained is PickExplained for a service with a canary.
func (c *canaryRoute) pickExplained(s *Service, key string, now selection.Instant, tried *Tried) (selection.Pick[*Target], Decision, error) {
	own := c.group(key, tried)
	if own == groupCanary {
		if p, ok := c.take(s, key, now, tried); ok {
			c.counts[groupCanary].Inc()
			return p, c.explain(s, key, own, c.decision(s, key, p.Value())), nil
		}
	}
	p, d, err := s.pickExplained(key, now, tried)
	if err != nil && own == groupRest {
		if other, ok := c.take(s, key, now, tried); ok {
			p, d, err = other, c.decision(s, key, other.Value()), nil
		}
	}
	c.count(own, p, err)
	return p, c.explain(s, key, own, d), err
}

// ValidateCanary reports a canary that no worker can have.
func ValidateCanary(c Canary) error {
	switch {
	case c.Version == "":
		return errors.New("a version is missing in front of the share")
	case len(c.Version) > maxVersion || strings.ContainsFunc(c.Version, func(r rune) bool { return r < ' ' || r > '~' }):
		return fmt.Errorf("version %.80q of %d bytes: workers advertise at most %d, printable ASCII", c.Version, len(c.Version), maxVersion)
	case strings.TrimSpace(c.Version) != c.Version:
		return fmt.Errorf("version %.80q: leave the blanks around it out", c.Version)
	case !(c.Share >= 0 && c.Share <= 1):
		return fmt.Errorf("%.5g %% is not between 0 %% and 100 %%", 100*c.Share)
	}
	return nil
}

// maxVersion is how many bytes the version of a service may have.
const maxVersion = 64
