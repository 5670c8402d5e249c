package worker

import (
	"cmp"
	"errors"
	"fmt"
	"net"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/process"
	"github.com/ringway/ringway/internal/worker/sidecar"
	"github.com/ringway/ringway/membership/identity"
)

// defaultSidecarPort is used with the host of the gossip address, which relays can reach.
const defaultSidecarPort = "7421"

// SidecarAddress returns the address of the sidecar. Without a certificate the default is
// empty.
func (s *Settings) SidecarAddress() string {
	if s.TLSCert == "" || s.SidecarAddr != "" {
		return s.SidecarAddr
	}
	host, _, err := net.SplitHostPort(s.GossipAddr)
	if err != nil {
		return "" // checked and refused before
	}
	return net.JoinHostPort(host, defaultSidecarPort)
}

// reach has the addresses at which other members reach the services of an agent, and the
// rules for these addresses.
type reach struct {
	rules   advertise.Rules
	gossip  string // the address at which other members reach this one; empty: not known yet
	sidecar string // the address of the sidecar, empty without one
	names   string // of the certificate, empty while it is not read
}

// reach returns the reach of the settings for the address of gossip that others use.
func (s *Settings) reach(gossip string) reach {
	r := reach{rules: s.Rules(), gossip: gossip}
	if s.TLSCert != "" {
		r.sidecar = s.SidecarAddress()
	}
	return r
}

// check finds the services that other members could not use at the announced addresses, or
// would refuse.
func (r reach) check(services []Service) error {
	var problems []error
	for _, s := range services {
		if err := identity.CheckServiceName(s.Name, r.names); err != nil {
			problems = append(problems, err)
		}
		address := s.Address
		if r.sidecar != "" {
			address = r.sidecar
			if bound, err := process.ListenAddr(r.sidecar); err == nil {
				address = process.Reachable(net.TCPAddrFromAddrPort(bound), r.gossip)
			}
		}
		if r.gossip == "" {
			continue
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

// SidecarAddr returns the address at which relays reach the services; empty if they connect
// to the services directly.
func (a *Agent) SidecarAddr() string {
	if a.sidecar == nil {
		return ""
	}
	addr := a.sidecar.Addr()
	if configured, err := process.ListenAddr(a.cfg.checkedSidecar); err == nil {
		addr = net.TCPAddrFromAddrPort(configured)
	}
	return process.Reachable(addr, cmp.Or(a.cfg.Membership.AdvertiseAddr, a.cfg.Membership.BindAddr))
}

// front makes the sidecar carry exactly these services.
func (a *Agent) front(services []Service) error {
	if a.sidecar == nil {
		return nil
	}
	carried := make([]sidecar.Service, len(services))
	for i, s := range services {
		carried[i] = sidecar.Service{Service: s.Service, ServerName: s.ServerName}
	}
	return a.sidecar.SetServices(carried)
}
