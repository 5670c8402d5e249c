package relay

import (
	"fmt"
	"time"

	"github.com/ringway/ringway/internal/circuit"
	"github.com/ringway/ringway/internal/settings"
)

// circuitMode is whether circuits refuse requests.
type circuitMode string

const (
	circuitOff    circuitMode = "off"
	circuitOn     circuitMode = "on"
	circuitReport circuitMode = "report" // only count what on would refuse
)

// circuitSettings are the settings of circuits.
type circuitSettings struct {
	Mode        circuitMode
	Period      time.Duration
	Share       float64
	MinRequests int
	Probes      int
	Max         int
	Exempt      []string
}

func defaultCircuitSettings() circuitSettings {
	d := circuit.DefaultConfig()
	return circuitSettings{Mode: circuitOff, Period: d.Period, Share: d.FailureShare, MinRequests: d.MinRequests, Probes: d.Probes, Max: d.MaxCircuits}
}

func (s *circuitSettings) declare(set *settings.Set) {
	const group = "Circuits"
	settings.Enum(set, &s.Mode, settings.Spec{Name: "circuit", Group: group, Usage: "whether a caller (the name in its certificate, its address, or what a trusted proxy names in Ringway-Caller) is refused a service while too many of its requests to it fail: off, on, or report to count only what would be refused"},
		circuitOff, circuitOn, circuitReport)
	settings.Duration(set, &s.Period, settings.Spec{Name: "circuit-period", Group: group, Usage: "time over which failures are counted, for which a circuit stays open, and between two probes"}, settings.Above(time.Duration(0)))
	settings.Float(set, &s.Share, settings.Spec{Name: "circuit-failure-share", Group: group, Usage: "share of failed requests in a period that opens a circuit when it is exceeded"}, settings.Between(0.0, 0.99))
	settings.Int(set, &s.MinRequests, settings.Spec{Name: "circuit-min-requests", Group: group, Usage: "requests that a period must exceed to be judged"}, settings.AtLeast(0))
	settings.Int(set, &s.Probes, settings.Spec{Name: "circuit-probes", Group: group, Usage: "probes in a row that must succeed to close a circuit"}, settings.Between(1, 1000))
	settings.Int(set, &s.Max, settings.Spec{Name: "circuit-max", Group: group, Usage: "pairs of caller and service that are remembered; the least recently used is forgotten first"}, settings.AtLeast(1))
	settings.Strings(set, &s.Exempt, settings.Spec{Name: "circuit-exempt", Group: group, Placeholder: "SERVICE", Usage: "service without circuits; may be repeated"})
}

// config returns nil if circuits are off.
func (s circuitSettings) config() *circuit.Config {
	if s.Mode == circuitOff {
		return nil
	}
	return &circuit.Config{
		Period: s.Period, FailureShare: s.Share, MinRequests: s.MinRequests, Probes: s.Probes,
		MaxCircuits: s.Max, Exempt: s.Exempt, ReportOnly: s.Mode == circuitReport,
	}
}

// newCircuits returns nil if circuits are off.
func newCircuits(cfg Config) (*circuit.Breakers, error) {
	if cfg.Circuit == nil {
		return nil, nil
	}
	c := *cfg.Circuit
	c.Registerer = cfg.Registry
	circuits, err := circuit.New(c)
	if err != nil {
		return nil, fmt.Errorf("relay: circuits: %w", err)
	}
	return circuits, nil
}

// ingressOnly returns the circuits for the ingress, and nil for the peer listener: the first
// relay has decided on a request from a relay.
func ingressOnly(circuits *circuit.Breakers, fromRelay bool) *circuit.Breakers {
	if fromRelay {
		return nil
	}
	return circuits
}
