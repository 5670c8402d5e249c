package identity

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"slices"
)

// ServerConfig returns the TLS configuration of a listener: TLS 1.3, our newest
// certificate, and no peer admitted that policy refuses. Protocols are offered by ALPN,
// best first, and are final: what net/http adds to the configuration later has no effect,
// so list "h2" and "http/1.1" if they are wanted. As usual in TLS, an initiator that offers
// no protocol at all is not refused for that.
//
// A refusal is returned by tls.Conn.HandshakeContext as a [RefusalError] with the address
// of the other end.
func (s *Source) ServerConfig(policy Policy, protocols ...string) *tls.Config {
	protocols = slices.Clone(protocols)
	config := s.base(protocols)
	config.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		return &s.current.Load().pair, nil
	}
	// Requested here and required in VerifyConnection: crypto/tls's own requirement would end the
	// handshake with an error without a type.
	config.ClientAuth = tls.RequestClientCert
	verify := func(addr string) func(tls.ConnectionState) error {
		return func(state tls.ConnectionState) error {
			return s.admit(state, handshake{policy: policy, direction: inbound, expected: Expected{Addr: addr}})
		}
	}
	config.VerifyConnection = verify("")
	// One configuration per connection, because only here the peer is known: a refusal contains
	// its address, and the connection may be watched.
	perConnection := config.Clone()
	config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		c := perConnection.Clone()
		if hello.Conn != nil {
			c.VerifyConnection = verify(hello.Conn.RemoteAddr().String())
		}
		if w, ok := hello.Conn.(*watched); ok {
			c.VerifyConnection = w.showing(c.VerifyConnection, inbound)
		}
		return c, nil
	}
	return config
}

// OpenServerConfig is ServerConfig for a listener that also serves operators and probes:
// peers without a certificate are admitted, and PeerClaims then fails. A certificate must
// be issued by our authorities and valid now; its claims are checked after the handshake.
func (s *Source) OpenServerConfig(protocols ...string) *tls.Config {
	config := s.ServerConfig(s.Policy(Hello), protocols...)
	perConnection := config.GetConfigForClient
	config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		c, err := perConnection(hello)
		if err != nil {
			return nil, err
		}
		verify := c.VerifyConnection
		c.VerifyConnection = func(state tls.ConnectionState) error {
			if len(state.PeerCertificates) == 0 {
				return nil
			}
			return verify(state)
		}
		return c, nil
	}
	return config
}

// ClientConfig returns the TLS configuration for outgoing connections: TLS 1.3, our newest
// certificate, and no server accepted that policy refuses or that is not the expected one.
// Protocols are offered by ALPN. A refusal is returned by tls.Conn.HandshakeContext as a
// [RefusalError] with the expected address.
func (s *Source) ClientConfig(policy Policy, expected Expected, protocols ...string) *tls.Config {
	config := s.base(slices.Clone(protocols))
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		return &s.current.Load().pair, nil
	}
	// This switches off only crypto/tls's own check of the server, which compares DNS names: our
	// members are named by URIs, have changing addresses, and need no DNS names. It is safe because
	// admit does the complete check instead: VerifyConnection is called in every handshake,
	// including resumed ones, and admit verifies the chain to our own authorities (not the
	// system's), the time and the key usage, before it reads a name. crypto/tls still verifies that
	// the peer holds the key of its certificate.
	config.InsecureSkipVerify = true
	config.VerifyConnection = func(state tls.ConnectionState) error {
		return s.admit(state, handshake{policy: policy, direction: outbound, expected: expected})
	}
	return config
}

func (s *Source) base(protocols []string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Time: s.cfg.Now, NextProtos: protocols,
		// A resumed session would use the certificate of its first handshake for days, and saves
		// only a tenth of the work (decision 23, BenchmarkHandshake).
		SessionTicketsDisabled: true,
	}
}

// handshake is one connection to be checked.
type handshake struct {
	policy    Policy
	direction direction
	expected  Expected
}

// admit is the complete check of the peer, in order: chain, time and usage; deny list;
// claims; policy; expectation. Every refusal is counted here.
func (s *Source) admit(state tls.ConnectionState, e handshake) error {
	err := s.verify(state, e)
	if err == nil {
		return nil
	}
	var refusal *RefusalError
	if errors.As(err, &refusal) {
		if refusal.Addr == "" {
			refusal.Addr = e.expected.Addr
		}
		s.metrics.refusals.WithLabelValues(string(e.direction), string(refusal.Field)).Inc()
	}
	return err
}

func (s *Source) verify(state tls.ConnectionState, e handshake) error {
	use := x509.ExtKeyUsageServerAuth
	if e.direction == inbound {
		use = x509.ExtKeyUsageClientAuth
	}
	t := trust{material: s.current.Load(), now: s.cfg.Now()}
	if _, err := t.check(state.PeerCertificates, use); err != nil {
		return err
	}
	claims, err := t.template.claims(state.PeerCertificates[0])
	if err != nil {
		return &RefusalError{Field: reasonMalformed, Cause: err}
	}
	if err := e.policy.check(claims, e.direction); err != nil {
		return err
	}
	return e.expected.check(claims)
}
