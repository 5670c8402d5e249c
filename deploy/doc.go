// Package deploy holds what an operator starts a fleet with: container images, a
// fleet for docker-compose, manifests for Kubernetes, units for systemd, alert
// rules and a dashboard. The package itself is only tests.
//
// Promise: these files fit the binaries of the same commit. Every flag, environment
// variable, port, path of a probe, verb and metric in them exists, every alert has
// its page below docs/operations, and other pages are there for `relay check` only.
//
//	Dockerfile   one image from scratch for each binary: make image
//	compose.yaml 3 relays, a gate and 9 workers, secured: make up
//	kubernetes/  manifests, joined by kustomization.yaml
//	systemd/     hardened units with Type=notify
//	prometheus/  alerts.yaml, its unit tests, and a configuration to scrape with
//	grafana/     ringway.json, the dashboard
//	echo/        the service of the compose fleet
//	containers/  tests of the compose fleet with a container engine
//
// Rules: what a file says about a binary is checked against the generated reference
// in docs/reference, never against a list of its own. A test that needs a program
// which a machine with only Go lacks (docker, promtool, systemd-analyze) runs by a
// make target of its own, which fails when the program is missing.
package deploy
