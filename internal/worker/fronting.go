package worker

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/daemon"
	"github.com/ringway/ringway/internal/worker/sidecar"
)

// defaultSidecarPort is beside the gossip address, which relays reach as well.
const defaultSidecarPort = "7421"

// SidecarAddress is where the sidecar is to listen; empty without a certificate,
// unless said.
func (s *Settings) SidecarAddress() string {
	if s.TLSCert == "" || s.SidecarAddr != "" {
		return s.SidecarAddr
	}
	host, _, err := net.SplitHostPort(s.GossipAddr)
	if err != nil {
		return "" // refused before
	}
	return net.JoinHostPort(host, defaultSidecarPort)
}

// reach says how the services of an agent are reached by the others, and what they
// refuse.
type reach struct {
	rules   advertise.Rules
	gossip  string // the address at which others reach this member
	sidecar string // where the sidecar listens, empty without one
}

// reach is that of the settings.
func (s *Settings) reach() reach {
	r := reach{rules: s.Rules(), gossip: cmp.Or(s.AdvertiseAddr, s.GossipAddr)}
	if s.TLSCert != "" {
		r.sidecar = s.SidecarAddress()
	}
	return r
}

// check finds the services that other members could not use at the addresses that
// they would be told.
func (r reach) check(services []Service) error {
	var problems []error
	for _, s := range services {
		address := s.Address
		if r.sidecar != "" && sidecar.Carries(s.Protocol) {
			address = r.sidecar
			if bound, err := netip.ParseAddrPort(r.sidecar); err == nil {
				address = daemon.Reachable(net.TCPAddrFromAddrPort(bound), r.gossip)
			}
		}
		if err := r.rules.CheckOffer(address, r.gossip); err != nil {
			problems = append(problems, fmt.Errorf("service %q: %w", s.Name, err))
		}
	}
	if most := r.rules.MaxServicesPerRecord; most > 0 && len(services) > most {
		problems = append(problems, fmt.Errorf("%d services: other members take at most %d of one worker: offer fewer, or raise --max-services-per-record on all members", len(services), most))
	}
	return errors.Join(problems...)
}

// SidecarAddr is where relays reach the services; empty when they connect to the
// services themselves.
func (a *Agent) SidecarAddr() string {
	if a.sidecar == nil {
		return ""
	}
	return daemon.Reachable(a.sidecar.Addr(), cmp.Or(a.cfg.Membership.AdvertiseAddr, a.cfg.Membership.BindAddr))
}

// sidecarAddress is where relays reach this service through the agent, empty when
// they do not.
func (a *Agent) sidecarAddress(s advertise.Service) string {
	if !sidecar.Carries(s.Protocol) {
		return ""
	}
	return a.SidecarAddr()
}

// front has the sidecar carry these services and no others.
func (a *Agent) front(services []Service) error {
	if a.sidecar == nil {
		return nil
	}
	var carried []advertise.Service
	for _, s := range services {
		if sidecar.Carries(s.Protocol) {
			carried = append(carried, s.Service)
		}
	}
	return a.sidecar.SetServices(carried)
}
