package worker

import (
	"cmp"
	"net"

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
