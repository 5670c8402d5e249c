// Package identity authenticates the peers of TLS connections by their certificates and
// decides whether they are admitted.
//
// # Promise
//
// A handshake with this package's configurations succeeds only if the peer holds the key of
// a certificate that one of our authorities issued for this use, that is valid now, that is
// not on our deny list, that contains exactly one role, and that belongs to our cluster and
// environment. Every other peer is refused, with a typed reason. Certificates, keys,
// authorities and deny list are replaced on disk without a restart. An open connection
// survives a renewal; it is closed within seconds after the peer's certificate becomes
// invalid.
//
// # Picture
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
// # Rules
//
//   - Use only configurations of a Source for traffic between members, never another
//     tls.Config. The configurations stay valid for the life of the process; they read the
//     newest certificate and authorities at each handshake.
//   - What a certificate claims depends on the template of the Source (see template.go), so read it
//     by Source.PeerClaims or Source.FromCertificate.
//   - Claims count only after a handshake has completed: before that the peer has not yet
//     proved that it holds the key.
//   - In TLS 1.3 the initiator's handshake completes before the acceptor checks the
//     initiator's certificate: a refused initiator learns of the refusal at its first read,
//     as a bare "bad certificate". Only the acceptor knows the reason; the protocol above
//     TLS must transmit it.
//   - Only connections made by Source.Watch, Listener or Client are closed later: see
//     watch.go. The socket is closed, so requests in flight fail.
//   - Statements outside of a handshake count by their signature: Sign, Certify, Verify
//     (see proof.go). Call Recheck before each Verify; it is cheap.
//   - Package membership imports this package, never the other way round.
//   - A port that members connect to accepts its connections through a Listener of package
//     handshake, or through its Pending if more than TLS must succeed: the resources that
//     peers without a proven identity can occupy are limited, and they cannot block members.
//   - Locks: Source.reload, held while the files are read and open connections are checked,
//     then registry.mu; readers of the material take none. Listener.mu guards its log,
//     Pending.mu is held for a few instructions.
//   - Two methods block: Source.Run, which starts no goroutine, and Listener.Run, which
//     starts one for each handshake and waits for them.
package identity
