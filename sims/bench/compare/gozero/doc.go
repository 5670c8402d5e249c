// Package gozero is the p2c_ewma picker of go-zero v1.10.3,
// zrpc/internal/balancer/p2c, for comparison with Ringway's selection.
//
// The package is a port because the original is an internal package. The only way
// to the original builder is an import of zrpc, which adds the clients of etcd and
// Kubernetes, the tracing exporters and some 150 more modules. The picker is an
// unchanged copy, except for the differences that comments mark; none of them is
// code that runs per pick.
package gozero
