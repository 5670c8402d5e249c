// Package clienttlstest issues certificates for tests of TLS between clients and an
// ingress.
//
// Promise: every certificate differs from every other one, and its files are replaced by
// rename, key first.
//
// Rules: only tests import it.
package clienttlstest
