// Package containers tests the fleet of deploy/compose.yaml in a container engine.
//
// Promise: the fleet of `make up` survives the loss of any one container and of the
// network of one relay. Meanwhile no GET to a running relay or gate fails, and a lost
// part rejoins the fleet when it returns. The tests always remove their containers,
// network, volumes and images.
//
//	test ──► published ports of gate-1, relay-1 … relay-3 (loopback)
//	  │         requests, /readyz, /api/v1/…
//	  └────► docker: kill, start, network disconnect, network connect
//
// Rules: only `make test-containers` runs them, because they need a container engine.
// Nothing is pulled: all images are built from scratch. Project, images, addresses and
// ports are separate, so that the tests do not touch a running fleet. Tests poll for a
// state with a deadline and never pause.
package containers
