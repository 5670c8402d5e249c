// Package proxyprotocol reads the header of the PROXY protocol, in which a load balancer that
// passes TCP connections on reports the address of each client.
//
// Promise: Read consumes the header and not a byte more, so that TLS or HTTP can follow. A
// header is at most 107 bytes in version 1 and 2064 bytes in version 2. Bytes that are no
// header are recognised as soon as they differ from one.
//
//	connection ──► Read: version 1 or 2 ──► go-proxyproto ──► address of the client
//	                 ├── LOCAL, UNKNOWN: no address; that of the load balancer counts
//	                 └── ErrMissing, ErrMalformed
//
// Rules:
//   - The caller decides which connections begin with a header: from any other client it would
//     be a forgery.
//   - Read has no limit in time: the caller closes the connection, or sets a deadline.
//   - Only TCP over IPv4 or IPv6 gives an address. Version 2 without an address is as LOCAL.
package proxyprotocol
