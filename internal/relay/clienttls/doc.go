// Package clienttls ends the TLS of clients at the ingress of a relay: it chooses the
// certificate, verifies that of the client, and renews all of them without a restart.
//
// Promise: a handshake uses the newest usable files. A pair of certificate and key that
// cannot be used changes nothing: the old pair stays, the failure is logged and counted once,
// and the other pairs are renewed. With authorities for clients, a connection has a client
// certificate that they issued, that is valid, and that has a name; the connection ends when
// the certificate does.
//
//	pairs, client CA ── Run, Reload ──► atomic pointer ──► tls.Config of one Site
//	                                                            │
//	connection ──► Handshake ── certificate by SNI ── client certificate? ──► *tls.Conn
//	                   │                                    └──► Caller, end at NotAfter
//	                   └── failed: Reason
//
// Rules:
//   - Each address of the ingress has a Site: nothing of a handshake at one holds at another,
//     sessions included.
//   - Without a pair that fits the name in the handshake the first pair is used.
//   - TLS 1.2 and 1.3, with the algorithms that crypto/tls considers safe.
//   - Config.Admit judges a certificate of a client after its chain and its name, in the handshake
//     and each time that Config.AdmitChanged reports a change: a connection that it refuses then ends.
//   - Sessions are resumed only without client certificates, so that a change of the
//     authorities holds from the next handshake on.
//   - Open connections survive every renewal. A change of the authorities holds for new
//     connections.
//   - Handshake blocks as long as the client lets it: the caller closes the connection to end
//     a handshake.
//   - Run blocks and starts no goroutine. Certificates.mu is held while files are read;
//     a handshake takes no lock of this package, but for the list of connections with a certificate.
package clienttls
