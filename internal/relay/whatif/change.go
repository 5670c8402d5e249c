package whatif

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/settings"
	"github.com/ringway/ringway/ring"
)

const (
	// MaxRelays and MaxWorkers bound the members that are compared, before and after the change;
	// workers count once for each service. They are several times what one cluster holds.
	MaxRelays  = 2_000
	MaxWorkers = 100_000
	// maxText bounds the text of a change: room for a few dozen skipped relays.
	maxText = 4 << 10
)

// Change is a change of settings and of members. The zero value changes nothing.
type Change struct {
	strategy affinity.Strategy
	index    affinity.IndexSource
	m, p     int     // 0: unchanged
	tier     int     // 0: unchanged
	slack    float64 // 0: unchanged
	k        *int
	relays   amount
	workers  amount
	skip     []string
}

// amount is a new number of members. The zero value is the number that there is.
type amount struct {
	text    string
	sign    int // 0 for an absolute number
	n       int
	percent bool
}

// keys are the keys of a change with their values, in the order of the help.
var keys = []struct{ name, values string }{
	{"strategy", string(affinity.Projection) + " or " + string(affinity.Rendezvous)},
	{"index", string(affinity.IndexRank) + " or " + string(affinity.IndexSlot)},
	{"m", fmt.Sprintf("relays of each worker, %d to %d", affinity.LeastPeersPerWorker, MaxRelays)},
	{"p", fmt.Sprintf("workers of each relay, %d to %d", affinity.LeastPeersPerRelay, MaxWorkers)},
	{"k", fmt.Sprintf("relays of a service, auto or %d to %d", affinity.LeastPeersPerWorker, MaxRelays)},
	{"relays", "a number such as 20, +20, -20, +10% or -10%"},
	{"workers", "a number such as 20, +20, -20, +10% or -10%"},
	{"tier", fmt.Sprintf("workers of a tier, 1 to %d", MaxWorkers)},
	{"slack", fmt.Sprintf("the slack of zones, 1 to %d", affinity.MaxZoneSlack)},
	{"skip", "the id of a relay; may be repeated"},
}

// Parse reads a change such as "strategy=rendezvous,m=4,relays=+20,workers=-10%". An empty text
// changes nothing.
func Parse(text string) (Change, error) {
	var c Change
	if len(text) > maxText {
		return c, fmt.Errorf("what-if: %d bytes: at most %d are read", len(text), maxText)
	}
	if strings.TrimSpace(text) == "" {
		return c, nil
	}
	given := map[string]bool{}
	for part := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(part, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		if !ok {
			return c, fmt.Errorf("what-if: %.80q: want KEY=VALUE; allowed are %s", strings.TrimSpace(part), strings.Join(names(), ", "))
		}
		i := slices.Index(names(), key)
		if i < 0 {
			err := fmt.Errorf("what-if: unknown key %.80q: allowed are %s", key, strings.Join(names(), ", "))
			if meant := settings.Nearest(key, names()); meant != "" {
				err = fmt.Errorf("%w; did you mean %s?", err, meant)
			}
			return c, err
		}
		if given[key] && key != "skip" {
			return c, fmt.Errorf("what-if: %s is given twice: give it once", key)
		}
		given[key] = true
		if !c.set(key, value) {
			return c, fmt.Errorf("what-if: %s=%.80q: allowed is %s", key, value, keys[i].values)
		}
	}
	return c, nil
}

func names() []string {
	out := make([]string, len(keys))
	for i, key := range keys {
		out[i] = key.name
	}
	return out
}

// set takes the value of a key and reports whether it is allowed.
func (c *Change) set(key, value string) (ok bool) {
	whole := func(least, most int) (n int) {
		n, err := strconv.Atoi(value)
		ok = err == nil && n >= least && n <= most
		return n
	}
	switch key {
	case "strategy":
		c.strategy = affinity.Strategy(value)
		return c.strategy == affinity.Projection || c.strategy == affinity.Rendezvous
	case "index":
		c.index = affinity.IndexSource(value)
		return c.index == affinity.IndexRank || c.index == affinity.IndexSlot
	case "m":
		c.m = whole(affinity.LeastPeersPerWorker, MaxRelays)
	case "p":
		c.p = whole(affinity.LeastPeersPerRelay, MaxWorkers)
	case "tier":
		c.tier = whole(1, MaxWorkers)
	case "slack":
		slack, err := strconv.ParseFloat(value, 64)
		c.slack = slack
		return err == nil && slack >= 1 && slack <= affinity.MaxZoneSlack
	case "k":
		c.k = new(int)
		if value == "auto" {
			return true
		}
		*c.k = whole(affinity.LeastPeersPerWorker, MaxRelays)
	case "relays":
		c.relays, ok = parseAmount(value, MaxRelays)
	case "workers":
		c.workers, ok = parseAmount(value, MaxWorkers)
	case "skip":
		c.skip = append(c.skip, value)
		return value != ""
	}
	return ok
}

func parseAmount(text string, most int) (a amount, ok bool) {
	a.text = text
	digits := text
	switch {
	case strings.HasPrefix(digits, "+"):
		a.sign = 1
	case strings.HasPrefix(digits, "-"):
		a.sign = -1
	}
	if a.sign != 0 {
		digits = digits[1:]
	}
	digits, a.percent = strings.CutSuffix(digits, "%")
	n, err := strconv.ParseUint(digits, 10, 31) // takes no second sign
	a.n = int(n)
	return a, err == nil && a.n <= most && (a.sign != 0 || !a.percent)
}

// of returns the number of members that there are then, given how many there are now. It may be out
// of bounds.
func (a amount) of(now int) int {
	n := a.n
	if a.percent {
		n = int(math.Round(float64(now) * float64(a.n) / 100))
	}
	switch {
	case a.text == "":
		return now
	case a.sign == 0:
		return n
	}
	return now + a.sign*n
}

// Service is a service with its plan.
type Service struct {
	// Plan is what the present plan is made from.
	Plan affinity.PlanConfig
	// RelaysAsked is how many relays its workers ask for, 0 if Plan.RelaysPerService is a
	// setting.
	RelaysAsked int
}

// apply returns what the plan of a service would be made from.
func (c *Change) apply(s Service) (affinity.PlanConfig, error) {
	cfg := s.Plan.WithDefaults()
	cfg.Strategy, cfg.IndexSource = cmp.Or(c.strategy, cfg.Strategy), cmp.Or(c.index, cfg.IndexSource)
	cfg.Minimums.PeersPerWorker, cfg.Minimums.PeersPerRelay = cmp.Or(c.m, cfg.Minimums.PeersPerWorker), cmp.Or(c.p, cfg.Minimums.PeersPerRelay)
	cfg.PeersPerTier, cfg.ZoneSlack = cmp.Or(c.tier, cfg.PeersPerTier), cmp.Or(c.slack, cfg.ZoneSlack)
	m := cfg.Minimums.PeersPerWorker
	switch k := cfg.RelaysPerService; {
	case c.k != nil && *c.k != 0 && *c.k < m:
		return cfg, fmt.Errorf("k=%d: each worker needs %d relays (m): allowed are auto, or %d or more", *c.k, m, m)
	case s.RelaysAsked > 0:
		cfg.RelaysPerService = max(s.RelaysAsked, m) // as relays do, which ignore the setting
	case c.k != nil:
		cfg.RelaysPerService = *c.k
	case k != 0 && k < m:
		return cfg, fmt.Errorf("m=%d: --relays-per-service is %d, and a service needs as many relays as each of its workers: add k=auto, or k=%d", m, k, m)
	}
	for _, id := range c.skip {
		if !slices.ContainsFunc(cfg.Relays, func(r affinity.Relay) bool { return r.ID == id }) {
			ids := make([]string, len(cfg.Relays))
			for i, r := range cfg.Relays {
				ids[i] = r.ID
			}
			err := fmt.Errorf("skip=%.80q: the fleet has no such relay", id)
			if meant := settings.Nearest(id, ids); meant != "" {
				err = fmt.Errorf("%w; did you mean %s?", err, meant)
			}
			return cfg, err
		}
	}
	cfg.Skip = slices.Concat(cfg.Skip, c.skip)
	var err error
	cfg.Relays, err = resize(cfg.Relays, c.relays, membersOf[affinity.Relay]{"relays", MaxRelays, func(r *affinity.Relay) *string { return &r.ID }})
	if err != nil {
		return cfg, err
	}
	if c.workers.text != "" {
		cfg.WorkersOrdered = false
		cfg.Workers, err = resize(cfg.Workers, c.workers, membersOf[affinity.Worker]{"workers", MaxWorkers, func(w *affinity.Worker) *string { return &w.ID }})
	}
	return cfg, err
}

// ignored describes the part of the change that has no effect on some of the services; empty if there
// is none.
func (c *Change) ignored(services []Service) string {
	var asking []Service
	for _, s := range services {
		if s.RelaysAsked > 0 {
			asking = append(asking, s)
		}
	}
	if c.k == nil || len(asking) == 0 {
		return ""
	}
	return fmt.Sprintf("k: it has no effect on %d of %d services, whose workers ask for a number of relays (%s, %d)", len(asking), len(services), asking[0].Plan.Service, asking[0].RelaysAsked)
}

// membersOf describes relays or workers.
type membersOf[M any] struct {
	name string
	most int
	id   func(*M) *string
}

// resize returns as many of the members as an amount states. Those that leave are the last in the
// order of a hash of their ids, so that they are spread over every ring and are the same for all
// services. Those that join are called +1, +2 and so on, and have the places and weights of those
// that there are, in turn.
func resize[M any](members []M, a amount, of membersOf[M]) ([]M, error) {
	n := a.of(len(members))
	if a.text == "" || n == len(members) {
		return members, nil
	}
	if n < 1 || n > of.most {
		return nil, fmt.Errorf("%s=%s: that makes %d of %d: allowed are 1 to %d", of.name, a.text, n, len(members), of.most)
	}
	byID := make(map[string]M, len(members))
	ids := make([]string, len(members))
	for i := range members {
		ids[i] = *of.id(&members[i])
		byID[ids[i]] = members[i]
	}
	ids = ring.Order("what-if", ids)
	out := make([]M, 0, n)
	for _, id := range ids[:min(n, len(ids))] {
		out = append(out, byID[id])
	}
	for next := 0; len(out) < n; {
		joins := out[next%len(ids)]
		next++
		id := of.id(&joins)
		*id = "+" + strconv.Itoa(next)
		if _, taken := byID[*id]; !taken {
			out = append(out, joins)
		}
	}
	return out, nil
}
