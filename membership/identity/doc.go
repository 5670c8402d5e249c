// Package identity says who is at the other end of a TLS connection, from its
// certificate, and whether it may be there.
//
// Promise: no handshake made with this package's configurations succeeds unless
// the other end holds the key of a certificate that one of our authorities
// issued for this use, that is valid now, that names exactly one role, and that
// belongs to our cluster and environment. Whatever is not allowed is refused,
// with a typed reason. Certificates, keys and authorities are replaced on disk
// without a restart and without dropping a connection.
//
//	cert, key, CA files                    initiator ── TLS 1.3 ── acceptor
//	      │ Run, Reload                        │                      │
//	      ▼                                    ▼                      ▼
//	   Source ──► atomic pointer ─► ClientConfig(policy, expected)  ServerConfig(policy)
//	                                           └────► VerifyConnection ◄──┘
//	                                                       │
//	     chain to our authorities ─► claims ─► cluster ─► environment ─► matrix ─► expected
//	                 │                  │                                             │
//	                 └──────────────────┴────────── RefusalError{Reason} ◄────────────┘
//
// Rules:
//
//   - Nobody builds a tls.Config of its own for traffic between members: take it
//     from a Source. The configurations stay good for the life of the process;
//     they read the newest certificate and authorities at each handshake.
//   - Claims count only once a handshake has completed: before that the other end
//     has not yet proved that it holds the key.
//   - In TLS 1.3 the initiator's handshake completes before the acceptor judges
//     it: a refused initiator learns so at its first read, as a bare "bad
//     certificate". The reason is known at the acceptor only; the protocol above
//     has to carry it.
//   - Package membership imports this one, never the other way round.
//   - Locks: Source.reload, held while the files are read; readers take none.
//     Run is the only method that lasts; this package starts no goroutine.
package identity
