// Package render tests the Helm charts of deploy/helm with the engine, the schema validation and
// the lint of Helm. It is a separate module, so that Helm's dependencies are not ours, and
// outside the workspace: its commands need GOWORK=off.
//
// Promise: with its default values the chart gives the manifests of deploy/kubernetes. Every
// value changes the objects that its row in the tests names, and no others. A wrong value is
// refused with its path, and no text can leave its place in the YAML. The library chart makes the
// example of the manifests from a plain Deployment, and changes nothing else of a pod.
//
//	chart + values ──► Helm's engine ──► objects, flat: path and value
//	kustomization + manifests ─────────► objects ──► equal
//
// Rules: objects are compared as Kubernetes reads them, not as text. A value without a row
// fails the tests. They need neither a cluster nor the program helm.
package render
