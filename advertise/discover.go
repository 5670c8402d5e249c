package advertise

import (
	"errors"
	"fmt"
)

// Why Discover finds nothing. Both are wrapped in an error that names the service.
var (
	// ErrNoEndpoint: nobody takes new work for the service at the moment.
	ErrNoEndpoint = errors.New("no endpoint")
	// ErrServiceName: the name can belong to no service.
	ErrServiceName = errors.New("invalid service name")
)

// Discover lists the endpoints of a service that take new work and can be reached
// from here, in ring order.
// The error wraps ErrServiceName or ErrNoEndpoint; with the latter it says whether
// the service is known, for a node that has just started may not have heard of it
// yet. The slice is the caller's.
func (v *View) Discover(service string) ([]Endpoint, error) {
	if !validName(service) {
		return nil, fmt.Errorf("discover %.80q: %w: want 1 to %d of a-z A-Z 0-9 . _ -, beginning with a letter or digit", service, ErrServiceName, MaxNameBytes)
	}
	all := v.Endpoints(service)
	ready := make([]Endpoint, 0, all.Len())
	for e := range all.All() {
		if e.State == Ready && !e.Unreachable {
			ready = append(ready, *e)
		}
	}
	if len(ready) > 0 {
		return ready, nil
	}
	why := "nobody is known to offer it: is the name right, and is a worker advertising it?"
	if all.Len() > 0 {
		why = fmt.Sprintf("all %d are draining or cannot be connected to from here", all.Len())
	} else if v.Known(service) {
		why = "all of its workers are gone"
	}
	return nil, fmt.Errorf("discover %q: %w: %s", service, ErrNoEndpoint, why)
}
