// Package gozero is the p2c_ewma picker of go-zero v1.10.3,
// zrpc/internal/balancer/p2c, to measure beside ours.
//
// It is a port because the original lies in an internal package. The only way
// to its builder is an import of zrpc, which brings the clients of etcd and
// Kubernetes, the tracing exporters and some 150 more modules. The picker is
// copied as it is: what differs is named beside it, and nothing of it runs per
// pick.
package gozero
