package circuit

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sony/gobreaker/v2"
)

// metrics are resolved once. No label comes from a caller.
type metrics struct {
	circuits    [3]prometheus.Gauge // by gobreaker.State
	transitions [3]prometheus.Counter
	rejected    prometheus.Counter
	forgotten   prometheus.Counter
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	circuits := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "ringway_circuits", Help: "Circuits (one per caller, service and endpoint), by state: closed, half_open, open.",
	}, []string{"state"})
	transitions := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ringway_circuit_transitions_total", Help: "Changes of circuits, by the state they changed to.",
	}, []string{"state"})
	m := &metrics{
		rejected: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ringway_circuit_rejected_total", Help: "Requests that a circuit refused, or would have if it did not only report.",
		}),
		forgotten: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ringway_circuit_forgotten_total", Help: "Circuits that were forgotten because there were too many.",
		}),
	}
	for state, name := range [...]string{
		gobreaker.StateClosed: "closed", gobreaker.StateHalfOpen: "half_open", gobreaker.StateOpen: "open",
	} {
		m.circuits[state] = circuits.WithLabelValues(name)
		m.transitions[state] = transitions.WithLabelValues(name)
	}
	if r == nil {
		return m, nil
	}
	return m, errors.Join(r.Register(circuits), r.Register(transitions), r.Register(m.rejected), r.Register(m.forgotten))
}
