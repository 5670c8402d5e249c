package ringwaygrpc

import (
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/ringway/ringway/selection"
)

// ReadyPicker returns a picker for which every endpoint of the service has a connection.
func ReadyPicker(r Router, service string) balancer.Picker {
	endpoints, _ := r.Endpoints(service)
	p := &picker{router: r, service: service, byPlace: map[place]*connection{}}
	for _, e := range endpoints {
		c := &connection{endpoint: e}
		c.state.Store(uint32(connectivity.Ready))
		p.byPlace[placeOf(e)] = c
	}
	return p
}

// OutcomeOf is outcomeOf.
func OutcomeOf(info balancer.DoneInfo, streaming bool) selection.Outcome {
	return outcomeOf(info, streaming)
}
