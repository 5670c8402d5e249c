package check

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/membership/identity"
)

// The bounds of a load.
const (
	// MaxServices bounds Load.Services, MaxEvicted the evicted workers of one service.
	MaxServices, MaxEvicted = 2000, 16
	// maxRequests bounds each counter: the sum over all relays and services must not overflow,
	// and every JSON decoder must read it.
	maxRequests = 1 << 48
)

// Load is the traffic of one relay.
type Load struct {
	// UptimeMs is the time since its start in milliseconds.
	UptimeMs int64 `json:"uptime_ms"`
	// Total is the sum over all services.
	Total api.Counts `json:"total"`
	// Services are sorted by name, without histograms and peers; empty if the answer can be
	// read by processes that are not members. ServiceCount is their number.
	Services     []api.ServiceTraffic `json:"services,omitempty"`
	ServiceCount int                  `json:"service_count"`
}

// OfClients returns the counts of a service without the forwarded requests, 0 if it is not
// listed.
func (l *Load) OfClients(service string) api.Counts {
	at, found := slices.BinarySearchFunc(l.Services, service, func(s api.ServiceTraffic, name string) int { return strings.Compare(s.Service, name) })
	if !found {
		return api.Counts{}
	}
	return l.Services[at].OfClients()
}

// cut bounds the lists.
func (l *Load) cut() {
	l.Services = slices.Clone(l.Services[:min(len(l.Services), MaxServices)])
	for i := range l.Services {
		s := &l.Services[i]
		s.Evicted = s.Evicted[:min(len(s.Evicted), MaxEvicted)]
		s.Latency, s.Peers = nil, nil
	}
}

// validate returns an error for a load that no relay has: its numbers are added to those of
// other relays, and its names are shown.
func (l *Load) validate() error {
	if l.UptimeMs < 0 || l.UptimeMs > maxRequests {
		return fmt.Errorf("an uptime of %d ms", l.UptimeMs)
	}
	if l.ServiceCount < len(l.Services) || l.ServiceCount > maxCount {
		return fmt.Errorf("%d services are listed and %d counted", len(l.Services), l.ServiceCount)
	}
	if err := validCounts(l.Total); err != nil {
		return err
	}
	for i := range l.Services {
		if i > 0 && l.Services[i-1].Service >= l.Services[i].Service {
			return errors.New("its services are not sorted, or one is listed twice")
		}
		if err := validService(&l.Services[i]); err != nil {
			return fmt.Errorf("service %.80q: %w", l.Services[i].Service, err)
		}
	}
	return nil
}

func validService(s *api.ServiceTraffic) error {
	if err := affinity.ValidateService(s.Service); err != nil {
		return err
	}
	for _, c := range []api.Counts{s.Counts, s.Forwarded} {
		if err := validCounts(c); err != nil {
			return err
		}
	}
	if s.Workers < 0 || s.Workers > maxCount {
		return fmt.Errorf("%d workers", s.Workers)
	}
	for _, id := range s.Evicted {
		if err := identity.CheckName(id); err != nil {
			return err
		}
	}
	return nil
}

func validCounts(c api.Counts) error {
	if c.Requests > maxRequests || c.Errors > c.Requests || c.InFlight < 0 || c.InFlight > maxCount || c.Sessions < 0 || c.Sessions > maxCount {
		return fmt.Errorf("%d requests, %d of them errors, %d in flight, %d sessions", c.Requests, c.Errors, c.InFlight, c.Sessions)
	}
	return nil
}
