package worker

import (
	"context"
	"crypto/x509"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/process"
	"github.com/ringway/ringway/internal/worker/health"
)

// offering holds the condition of every service and passes the resulting offers to the
// catalogue. It is the stateful counterpart of Offers.
type offering struct {
	cfg offeringConfig

	mu         sync.Mutex
	services   map[string]*offered
	drains     drains
	advertised bool         // the catalogue has had an offer
	begin      func(*probe) // starts a check; nil while run does not run
	probes     sync.WaitGroup
}

type offeringConfig struct {
	// Offer announces services to the relays; it is the method of the catalogue.
	Offer func([]advertise.Service) error
	// Drained is called with whether operators have drained all services. It must be fast.
	Drained func(bool)
	// SidecarAddress is the address at which the agent itself accepts requests for the
	// services. Empty: relays connect to the services.
	SidecarAddress string
	// ServiceRoots: see health.Check.
	ServiceRoots *x509.CertPool
	Logger       *slog.Logger
	Checks       *health.Metrics
	Metrics      *metrics
}

// offered is one service with its state.
type offered struct {
	Service
	healthy bool   // the newest verdict; true without a check
	probe   *probe // nil without a check
	state   State
	since   time.Time // the time of the last change of state
}

// probe is the running check of a service. It continues after changes of the service that
// leave the check unchanged.
type probe struct {
	*health.Checker
	name string
	stop context.CancelFunc // nil before it runs
}

func newOffering(cfg offeringConfig) *offering {
	return &offering{cfg: cfg, services: map[string]*offered{}}
}

// replace makes these the services; they must have been checked together. Unchanged
// services are not affected. A service whose check changes, but not its address, keeps its
// verdict until the new check has one. If it was healthy, it is not in the grace of one that starts. After
// an error nothing has changed.
func (o *offering) replace(services []Service) (api.WorkerReload, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	change := api.WorkerReload{Added: []string{}, Changed: []string{}, Removed: []string{}}
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
		case old != nil && old.Check == s.Check && old.Address == s.Address:
			entry.probe = old.probe
		case s.Checked():
			var err error
			if entry.probe, err = o.newProbe(s, entry.healthy && old.Checked()); err != nil {
				return api.WorkerReload{}, fmt.Errorf("service %q: %w", s.Name, err)
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

func (o *offering) newProbe(s Service, healthy bool) (*probe, error) {
	p := &probe{name: s.Name}
	var err error
	check := s.Check
	check.ServiceRoots = o.cfg.ServiceRoots
	p.Checker, err = health.New(health.Config{
		Name: s.Name, Check: check, Healthy: healthy, Logger: o.cfg.Logger, Metrics: o.cfg.Checks,
		OnChange: func(status health.Status) {
			o.mu.Lock()
			defer o.mu.Unlock()
			if now := o.services[p.name]; now != nil && now.probe == p { // otherwise the result of a check that was stopped
				now.healthy = status.Healthy
				o.apply()
			}
		},
	})
	return p, err
}

// run runs the checks until ctx ends, and returns when all have ended.
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

// forget removes the series of a check that has ended, unless another check of that service
// uses them.
func (o *offering) forget(p *probe) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if now := o.services[p.name]; now == nil || now.probe == nil {
		o.cfg.Checks.Forget(p.name)
	}
}

// apply passes the offers that result from the conditions to the catalogue. o.mu is held.
func (o *offering) apply() {
	conditions := make([]Condition, 0, len(o.services))
	count := map[State]int{}
	became := map[State][]string{}
	for _, name := range slices.Sorted(maps.Keys(o.services)) {
		s := o.services[name]
		c := Condition{Service: s.Service.Service, Healthy: s.healthy, Drained: o.drains.drained(name), SidecarAddress: o.cfg.SidecarAddress}
		if state := c.State(); s.state != state {
			s.state, s.since = state, time.Now()
			became[state] = append(became[state], name)
		}
		count[s.state]++
		conditions = append(conditions, c)
	}
	o.cfg.Metrics.count(count)
	o.cfg.Drained(o.allDrained())
	offers := Offers(conditions)
	if len(offers) > 0 || o.advertised { // otherwise the relays know no offers yet
		if err := o.cfg.Offer(offers); err != nil {
			o.cfg.Logger.Error("what this worker offers cannot be announced: relays keep what they know", "err", err)
			return
		}
		o.advertised = true
	}
	for _, state := range states {
		if names := became[state]; len(names) > 0 {
			o.cfg.Logger.Info(announcement[state], "services", names)
		}
	}
}

// allDrained reports whether operators have drained every service. o.mu is held.
func (o *offering) allDrained() bool {
	for name := range o.services {
		if !o.drains.drained(name) {
			return false
		}
	}
	return len(o.services) > 0 || o.drains.all
}

var announcement = map[State]string{
	Offered:   "services are offered to the relays",
	Unhealthy: "services are not offered until their checks pass",
	Draining:  "services are draining: relays send no new requests",
}

// UnknownServiceError lists names of services that the worker does not have.
type UnknownServiceError struct {
	Unknown []string // sorted
	Known   []string // sorted
}

// Error lists the known services, too.
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

// mostNamed limits the number of services in a message.
const mostNamed = 10

// drain drains or undrains the named services, or all if names is empty, including services
// added later. The error is an *UnknownServiceError; in that case nothing has changed.
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

// status lists the services by name.
func (o *offering) status() []api.WorkerService {
	o.mu.Lock()
	defer o.mu.Unlock()
	list := make([]api.WorkerService, 0, len(o.services))
	for _, name := range slices.Sorted(maps.Keys(o.services)) {
		s := o.services[name]
		status := api.WorkerService{
			Service: s.Service.Service, State: string(s.state), Since: s.since, Drained: o.drains.drained(name),
			Source: string(s.Source), Check: string(s.Check.Kind),
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

// reasons lists why nothing is offered; empty if something is offered.
func (o *offering) reasons() []process.Reason {
	var reasons []process.Reason
	list := o.status()
	for _, s := range list {
		switch {
		case s.State == string(Offered):
			return nil
		case len(reasons) == mostNamed:
		case s.State == string(Unhealthy):
			reasons = append(reasons, process.Reason{Code: process.ServiceUnhealthy, Text: fmt.Sprintf("service %s is not offered: unhealthy: %s", s.Name, s.Error)})
		default:
			reasons = append(reasons, process.Reason{Code: process.ServiceDrained, Text: fmt.Sprintf("service %s is drained", s.Name)})
		}
	}
	switch {
	case len(list) == 0:
		return []process.Reason{{Code: process.NoService, Text: "no service is configured yet"}}
	case len(list) > len(reasons):
		return append(reasons, process.Reason{Code: reasons[0].Code, Text: fmt.Sprintf("and %d services more", len(list)-len(reasons))})
	}
	return reasons
}

// State is the state of a service in the offers.
type State string

// The states of a service. One that is both unhealthy and drained is unhealthy.
const (
	// Offered: relays send requests to it.
	Offered State = "offered"
	// Unhealthy: its check has not passed; relays do not know the service.
	Unhealthy State = "unhealthy"
	// Draining: relays know the service and send no new requests.
	Draining State = "draining"
)

// Condition has everything that determines the state of one service.
type Condition struct {
	// Service is the configured service.
	Service advertise.Service
	// Healthy is the verdict of its check; true without a check.
	Healthy bool
	// Drained: an operator drained the service.
	Drained bool
	// SidecarAddress is the address at which the agent accepts requests for the service;
	// empty: relays connect to the service.
	SidecarAddress string
}

// State returns the state of the service.
func (c Condition) State() State {
	switch {
	case !c.Healthy:
		return Unhealthy
	case c.Drained:
		return Draining
	}
	return Offered
}

// Offers returns the offers of an agent whose services are in these conditions, in the
// order of the conditions. It is pure, and the only place for that decision.
func Offers(conditions []Condition) []advertise.Service {
	offers := make([]advertise.Service, 0, len(conditions))
	for _, c := range conditions {
		offer := c.Service
		if c.SidecarAddress != "" {
			offer.Address, offer.Secured = c.SidecarAddress, true
		}
		switch c.State() {
		case Unhealthy:
			continue
		case Draining:
			offer.State = advertise.Draining
		}
		offers = append(offers, offer)
	}
	return offers
}
