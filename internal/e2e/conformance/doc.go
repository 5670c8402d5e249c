// Package conformance judges the data path of HTTP/2 and gRPC by the tests of others: h2spec,
// and the official client and server of gRPC's interoperability tests. It is a separate
// module, so that their dependencies are not ours, and outside the workspace: its commands
// need GOWORK=off.
//
// Promise: every case of h2spec passes at each listener for HTTP/2, and every case of gRPC
// that needs no account passes through one relay and through two, in clear text and with
// certificates. What is not judged is in a table with its reason, and an entry that has
// become wrong fails the tests.
//
//	h2spec ──► ingress, peer listener, sidecar
//	interop/client ──► relay ──► worker ──► interop/server       each box is a process
//	             └───► relay ──► relay ──► worker ──► interop/server
//
// Rules: the tests use sockets, flags and exit codes only, so that they judge any engine
// behind them. Waiting is for an event, with a deadline.
package conformance
