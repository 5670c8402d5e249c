// Command helm writes the Helm charts in the directories ringway and ringway-worker from the
// manifests in deploy/kubernetes: `make generate`.
//
// Promise: rendered with its default values in the namespace ringway, the chart gives the
// manifests that the tests of deploy check. Only the namespace itself is missing, because
// Helm creates namespaces.
//
//	deploy/kubernetes/*.yaml ──► templates ──┐
//	settings of the binaries ──► schema ─────┼──► chart ──► render: tests with Helm's engine
//	Chart.yaml, values.yaml, NOTES.txt ──────┘
//
// The pod of the example is also the template of the library chart ringway-worker, which adds it
// to pods of other charts.
//
// Rules: a change of the manifests is made in deploy/kubernetes. An edit that finds its text
// too often or too rarely is an error, so that a changed manifest cannot lose a value. Every
// value is inserted by toJson, because JSON is YAML and no text can leave it. The tests with
// Helm are a module of their own, because Helm has many dependencies: `make test-helm`.
package main
