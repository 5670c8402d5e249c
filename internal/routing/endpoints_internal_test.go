package routing

import (
	"testing"

	"github.com/ringway/ringway/selection"
)

func TestAServiceThatVanishesAndComesBackChangesItsEndpoints(t *testing.T) {
	r := &Router{}
	known := func(services map[string]*Service) { r.services.Store(&services) }
	closed := func(changed <-chan struct{}) bool {
		select {
		case <-changed:
			return true
		default:
			return false
		}
	}
	service, err := NewService("echo", selection.DefaultConfig())
	if err != nil {
		t.Fatal(err)
	}
	known(map[string]*Service{"echo": service})
	_, vanishes := r.Endpoints("echo")
	if err := service.SetRoute(&Route{Index: -1}, 0); err != nil || closed(vanishes) {
		t.Errorf("a route with the same endpoints is a change (%v)", err)
	}
	service.Retire()
	if !closed(vanishes) {
		t.Error("a service that vanishes is no change")
	}
	// A lookup that began before the service vanished still finds it.
	_, returns := r.Endpoints("echo")
	known(nil)
	_, after := r.Endpoints("echo")
	if closed(returns) || closed(after) {
		t.Fatal("the channel of an unknown service is closed: callers would spin")
	}
	r.appeared.fire()
	if !closed(returns) || !closed(after) {
		t.Error("a service that comes back is no change")
	}
}
