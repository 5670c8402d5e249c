package worker

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/settings"
	"github.com/ringway/ringway/internal/worker/health"
)

// offering keeps the condition of every service and has the catalogue offer what
// follows from it: the running half of Offers.
type offering struct {
	cfg offeringConfig

	mu       sync.Mutex
	services map[string]*offered
	drains   drains
	told     bool         // the catalogue was told something
	begin    func(*probe) // starts a check; nil while run does not run
	probes   sync.WaitGroup
}

type offeringConfig struct {
	// Offer tells the relays; the catalogue's.
	Offer func([]advertise.Service) error
	// SidecarAddress is where the agent itself takes requests for a service, empty
	// where relays connect to the service. Nil: they always do.
	SidecarAddress func(advertise.Service) string
	Logger         *slog.Logger
	Checks         *health.Metrics
	Metrics        *metrics
}

// offered is one service, and what became of it.
type offered struct {
	Service
	healthy bool   // of the newest verdict; true without a check
	probe   *probe // nil without a check
	state   State
	since   time.Time // when state became what it is
}

// probe is the check of a service at work. It outlives changes of the service
// that leave the check as it is.
type probe struct {
	*health.Checker
	name string
	stop context.CancelFunc // nil before it runs
}

func newOffering(cfg offeringConfig) *offering {
	return &offering{cfg: cfg, services: map[string]*offered{}}
}

// Change is what a reload did. All lists are sorted.
type Change struct {
	Added   []string `json:"added"`
	Changed []string `json:"changed"`
	Removed []string `json:"removed"`
	// Settings are those, besides the services, that a reload changed.
	Settings []settings.Change `json:"settings,omitempty"`
	// NeedsRestart names the settings whose change takes effect at the next start.
	NeedsRestart []string `json:"needs_restart,omitempty"`
}

// Empty reports that no service was touched.
func (c Change) Empty() bool { return len(c.Added)+len(c.Changed)+len(c.Removed) == 0 }

// replace makes these the services, which were checked together. Services that
// stay as they are are not touched. A service whose check changes, but not its
// address, keeps its verdict until the new check has one. On an error nothing has
// changed.
func (o *offering) replace(services []Service) (Change, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	change := Change{Added: []string{}, Changed: []string{}, Removed: []string{}}
	next := make(map[string]*offered, len(services))
	var fresh, stale []*probe
	for _, s := range services {
		old := o.services[s.Name]
		if old != nil && reflect.DeepEqual(old.Service, s) {
			next[s.Name] = old
			continue
		}
		entry := &offered{Service: s, healthy: !s.Checked()}
		if old == nil {
			change.Added = append(change.Added, s.Name)
		} else {
			change.Changed = append(change.Changed, s.Name)
			entry.state, entry.since = old.state, old.since
			if old.Address == s.Address && (old.Check.Address == s.Check.Address || !old.Checked()) {
				entry.healthy = entry.healthy || old.healthy
			}
		}
		switch {
		case old != nil && old.Check == s.Check:
			entry.probe = old.probe
		case s.Checked():
			var err error
			if entry.probe, err = o.newProbe(s); err != nil {
				return Change{}, fmt.Errorf("service %q: %w", s.Name, err)
			}
			fresh = append(fresh, entry.probe)
		}
		next[s.Name] = entry
	}
	for name, old := range o.services {
		kept := next[name]
		if kept == nil {
			change.Removed = append(change.Removed, name)
			o.drains.forget(name)
		}
		if old.probe != nil && (kept == nil || kept.probe != old.probe) {
			stale = append(stale, old.probe)
		}
	}
	o.services = next
	for _, p := range stale {
		if p.stop != nil {
			p.stop()
		}
	}
	if o.begin != nil {
		for _, p := range fresh {
			o.begin(p)
		}
	}
	o.apply()
	slices.Sort(change.Added)
	slices.Sort(change.Changed)
	slices.Sort(change.Removed)
	return change, nil
}

func (o *offering) newProbe(s Service) (*probe, error) {
	p := &probe{name: s.Name}
	var err error
	p.Checker, err = health.New(health.Config{
		Name: s.Name, Check: s.Check, Logger: o.cfg.Logger, Metrics: o.cfg.Checks,
		OnChange: func(status health.Status) {
			o.mu.Lock()
			defer o.mu.Unlock()
			if now := o.services[p.name]; now != nil && now.probe == p { // else its last words
				now.healthy = status.Healthy
				o.apply()
			}
		},
	})
	return p, err
}

// run runs the checks until ctx ends, and returns when none runs any more.
func (o *offering) run(ctx context.Context) error {
	o.mu.Lock()
	o.begin = func(p *probe) {
		probing, stop := context.WithCancel(ctx)
		p.stop = stop
		o.probes.Go(func() {
			defer stop()
			if err := p.Run(probing); err != nil {
				o.cfg.Logger.Error("the health check ended: the service keeps its last state", "service", p.name, "err", err)
			}
			o.forget(p)
		})
	}
	for _, s := range o.services {
		if s.probe != nil {
			o.begin(s.probe)
		}
	}
	o.mu.Unlock()
	<-ctx.Done()
	o.mu.Lock()
	o.begin = nil
	o.mu.Unlock()
	o.probes.Wait()
	return nil
}

// forget drops the series of a check that has ended, unless another check of that
// service goes on with them.
func (o *offering) forget(p *probe) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if now := o.services[p.name]; now == nil || now.probe == nil {
		o.cfg.Checks.Forget(p.name)
	}
}

// apply offers what follows from the conditions. o.mu is held.
func (o *offering) apply() {
	conditions := make([]Condition, 0, len(o.services))
	count := map[State]int{}
	became := map[State][]string{}
	for _, name := range slices.Sorted(maps.Keys(o.services)) {
		s := o.services[name]
		c := Condition{Service: s.Service.Service, Healthy: s.healthy, Drained: o.drains.drained(name)}
		if o.cfg.SidecarAddress != nil {
			c.SidecarAddress = o.cfg.SidecarAddress(s.Service.Service)
		}
		if state := c.State(); s.state != state {
			s.state, s.since = state, time.Now()
			became[state] = append(became[state], name)
		}
		count[s.state]++
		conditions = append(conditions, c)
	}
	o.cfg.Metrics.count(count)
	offers := Offers(conditions)
	if len(offers) > 0 || o.told { // else the relays know of nothing yet
		if err := o.cfg.Offer(offers); err != nil {
			o.cfg.Logger.Error("what this worker offers cannot be announced: relays keep what they know", "err", err)
			return
		}
		o.told = true
	}
	for _, state := range states {
		if names := became[state]; len(names) > 0 {
			o.cfg.Logger.Info(announcement[state], "services", names)
		}
	}
}

var announcement = map[State]string{
	Offered:   "services are offered to the relays",
	Unhealthy: "services are not offered until their checks pass",
	Draining:  "services are draining: relays are told to send nothing new",
}

// UnknownServiceError says that services were named which a worker does not have.
type UnknownServiceError struct {
	Unknown []string // sorted
	Known   []string // sorted
}

// Error names the services that there are.
func (e *UnknownServiceError) Error() string {
	known := strings.Join(e.Known[:min(len(e.Known), mostNamed)], ", ")
	switch {
	case known == "":
		known = "none"
	case len(e.Known) > mostNamed:
		known += fmt.Sprintf(" and %d more", len(e.Known)-mostNamed)
	}
	return fmt.Sprintf("no such service: %q; this worker has %s", e.Unknown, known)
}

// mostNamed bounds how many services a message names.
const mostNamed = 10

// drain drains or undrains services, all of them when none is named, those that
// come later included. The error is an *UnknownServiceError, and nothing has
// changed.
func (o *offering) drain(drained bool, names []string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	unknown := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return o.services[name] != nil })
	if len(unknown) > 0 {
		slices.Sort(unknown)
		return &UnknownServiceError{Unknown: slices.Compact(unknown), Known: slices.Sorted(maps.Keys(o.services))}
	}
	o.drains = o.drains.with(drained, names)
	o.apply()
	return nil
}

// ServiceStatus is one service as an operator sees it.
type ServiceStatus struct {
	advertise.Service
	State State `json:"state"`
	// Since is when State became what it is.
	Since time.Time `json:"since"`
	// Drained: an operator drained it, whatever its check says.
	Drained bool   `json:"drained"`
	Source  Source `json:"source"`
	// Check is the kind of its check, if it has one.
	Check health.Kind `json:"check,omitempty"`
	// Error is why it is unhealthy, or how the newest check of a healthy one failed.
	Error string `json:"error,omitempty"`
}

// status lists the services by name.
func (o *offering) status() []ServiceStatus {
	o.mu.Lock()
	defer o.mu.Unlock()
	list := make([]ServiceStatus, 0, len(o.services))
	for _, name := range slices.Sorted(maps.Keys(o.services)) {
		s := o.services[name]
		status := ServiceStatus{
			Service: s.Service.Service, State: s.state, Since: s.since, Drained: o.drains.drained(name),
			Source: s.Source, Check: s.Check.Kind,
		}
		if s.probe != nil {
			switch checked := s.probe.Status(); {
			case checked.Err != nil:
				status.Error = checked.Err.Error()
			case checked.Since.IsZero():
				status.Error = "not checked yet"
			}
		}
		list = append(list, status)
	}
	return list
}

// reasons are why nothing is offered; none if something is.
func (o *offering) reasons() []string {
	var reasons []string
	list := o.status()
	for _, s := range list {
		switch {
		case s.State == Offered:
			return nil
		case len(reasons) == mostNamed:
		case s.State == Unhealthy:
			reasons = append(reasons, fmt.Sprintf("service %s is not offered: unhealthy: %s", s.Name, s.Error))
		default:
			reasons = append(reasons, fmt.Sprintf("service %s is drained", s.Name))
		}
	}
	switch {
	case len(list) == 0:
		return []string{"no service is configured yet"}
	case len(list) > len(reasons):
		return append(reasons, fmt.Sprintf("and %d services more", len(list)-len(reasons)))
	}
	return reasons
}
