// Package identity says who is at the other end of a TLS connection, from its
// certificate, and whether it may be there.
//
// Promise: no handshake made with this package's configurations succeeds unless
// the other end holds the key of a certificate that one of our authorities
// issued for this use, that is valid now, that is not on our deny list, that names
// exactly one role, and that belongs to our cluster and environment. Whatever is not
// allowed is refused, with a typed reason. Certificates, keys, authorities and deny
// list are replaced on disk without a restart. An open connection outlives a renewal;
// it is closed within seconds once the other end's certificate no longer counts.
//
//	cert, key, CA, deny files              initiator ── TLS 1.3 ── acceptor
//	      │ Run, Reload                        │                      │
//	      ▼                                    ▼                      ▼
//	   Source ──► atomic pointer ─► ClientConfig(policy, expected)  ServerConfig(policy)
//	                                           └────► VerifyConnection ◄──┘
//	                                                       │
//	     chain to our authorities ─► deny list ─► claims ─► cluster ─► environment ─► matrix ─► expected
//	                 │                  │            │                                │
//	                 └──────────────────┴────────────┴──────── RefusalError{Reason} ◄────────────┘
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
//   - A connection is closed later only if Source.Watch, Listener or Client made it:
//     see watch.go. What is closed is the socket, so requests in flight fail.
//   - What a member says outside a handshake counts by its signature: Sign, Certify,
//     Verify (see proof.go). Ask Recheck before each Verify; it is cheap.
//   - Package membership imports this one, never the other way round.
//   - A port that members connect to takes its connections through a Listener, or
//     through Strangers where more than TLS has to be passed: what strangers can
//     make a process hold is bounded, and keeps no member out.
//   - Locks: Source.reload, held while the files are read and open connections are
//     judged, then registry.mu; readers of the material take none.
//     Listener.mu is for its log, Strangers.mu is held for a few instructions.
//   - Two methods last: Source.Run, which starts no goroutine, and Listener.Run,
//     which starts one for each handshake and waits for them.
package identity
