package worker

import (
	"github.com/ringway/ringway/advertise"
)

// State is what becomes of a service.
type State string

// The states of a service. One that is both unhealthy and drained is unhealthy.
const (
	// Offered: relays send requests to it.
	Offered State = "offered"
	// Unhealthy: its check has not passed; relays do not know it.
	Unhealthy State = "unhealthy"
	// Draining: relays know it and send nothing new.
	Draining State = "draining"
)

// Condition is all that decides what becomes of one service.
type Condition struct {
	// Service is what was configured.
	Service advertise.Service
	// Healthy is the verdict of its check; true without one.
	Healthy bool
	// Drained: an operator wants nothing new to be sent to it.
	Drained bool
	// SidecarAddress is where the agent takes the service's requests itself;
	// empty: relays connect to the service.
	SidecarAddress string
}

// State says what becomes of the service.
func (c Condition) State() State {
	switch {
	case !c.Healthy:
		return Unhealthy
	case c.Drained:
		return Draining
	}
	return Offered
}

// Offers is what an agent whose services are in these conditions offers, in the
// order of the conditions. It is pure, and the only place where that is decided.
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
