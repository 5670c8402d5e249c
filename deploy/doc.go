// Package deploy contains the files with which an operator runs a fleet: container
// images, a docker-compose fleet, Kubernetes manifests, systemd units, alert rules and
// a dashboard. The package itself has only tests.
//
// Promise: these files match the binaries of the same commit. Every flag, environment
// variable, port, probe path, verb and metric in them exists, every alert has its page
// in docs/operations, and other pages there are only for `relay check`.
//
//	Dockerfile   one image from scratch for each binary: make image
//	bake.json    these images for amd64 and arm64 in one: make images
//	compose.yaml 3 relays, a gate and 9 workers, secured: make up
//	kubernetes/  manifests, joined by kustomization.yaml
//	helm/        a Helm chart, generated from these manifests
//	systemd/     hardened units with Type=notify
//	prometheus/  alerts.yaml, its unit tests, and a configuration to scrape with
//	grafana/     ringway.json, the dashboard
//	packages/    the deb and rpm packages: make release-snapshot
//	release/     builds the files of a release
//	echo/        the service of the compose fleet
//	containers/  tests of the compose fleet with a container engine
//
// Rules: each statement of a file about a binary is checked against the generated reference in
// docs/reference, never against a separate list. A test that needs another program than
// Go (docker, promtool, rpm, systemd-analyze) has a separate make target, which fails when the
// program is missing.
package deploy
