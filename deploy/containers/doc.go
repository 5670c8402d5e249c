// Package containers tests the fleet of deploy/compose.yaml in a container engine.
//
// Promise: what `make up` starts survives the loss of any one container and of the
// network of one relay. No GET that is sent to a living relay or gate meanwhile
// fails, and what was lost is part of the fleet again when it is back. When the tests
// end, however they end, no container, network, volume or image of theirs is left.
//
//	test ──► published ports of gate-1, relay-1 … relay-3 (loopback)
//	  │         requests, /readyz, /api/v1/…
//	  └────► docker: kill, start, network disconnect, network connect
//
// Rules: `make test-containers` runs them; elsewhere they are skipped, for they need a
// container engine. Nothing is pulled: all images are made from scratch. Project,
// images, addresses and ports are of their own, so that a fleet that runs already is
// left alone. Waiting is polling for a state with a deadline, never a pause.
package containers
