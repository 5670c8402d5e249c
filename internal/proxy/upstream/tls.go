package upstream

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"

	"github.com/ringway/ringway/internal/proxy/socket"
)

// ServiceTLS is how the certificate of a service with H2 is checked. Every service is
// checked: the zero value wants what a browser wants.
type ServiceTLS struct {
	// Roots are the authorities. Default: those of this host.
	Roots *x509.CertPool
	// Name is what the certificate must be for, a host name or an IP address. Default: the
	// host of the service's address.
	Name string
}

// The causes of a dial that TLS with the service has ended. Nothing of a request was sent.
var (
	// ErrUntrusted means that the certificate is not the expected one.
	ErrUntrusted = errors.New("the certificate of the service is not trusted: give its authority by --service-ca, and the name that it has, if that is not the host of the address, by --service-server-name of a relay or server-name of the --service of a worker")
	// ErrNotH2 means that the service does not speak HTTP/2 over TLS.
	ErrNotH2 = errors.New("the service does not speak HTTP/2 over TLS, which protocol=h2 means: offer it as http1 or h2c, or let it accept the ALPN protocol h2")
)

// Client begins TLS and HTTP/2 on a connection to the service at address, and closes the
// connection if that fails.
func (t ServiceTLS) Client(ctx context.Context, plain net.Conn, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, errors.Join(err, plain.Close())
	}
	name := cmp.Or(t.Name, host)
	conn := tls.Client(socket.Direct(plain), &tls.Config{RootCAs: t.Roots, ServerName: name, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12})
	err = conn.HandshakeContext(ctx)
	if err == nil && conn.ConnectionState().NegotiatedProtocol != "h2" {
		err = ErrNotH2
	}
	if err == nil {
		return conn, nil
	}
	var untrusted *tls.CertificateVerificationError
	var clear tls.RecordHeaderError
	var op *net.OpError
	switch {
	case errors.As(err, &untrusted):
		err = fmt.Errorf("%w: %w", ErrUntrusted, err)
	case errors.As(err, &clear), errors.As(err, &op) && op.Op == "remote error": // an alert, such as that of a service without h2
		err = fmt.Errorf("%w: %w", ErrNotH2, err)
	}
	_ = plain.Close() // without a close_notify: the service refused, or is not the one
	return nil, fmt.Errorf("TLS with the service as %q: %w", name, err)
}

// CheckServerName returns why a text cannot be the Name of a ServiceTLS.
func CheckServerName(name string) error {
	if net.ParseIP(name) != nil {
		return nil
	}
	ok := name != "" && len(name) <= 253 && name[0] != '.' && name[0] != '-'
	for i := range len(name) {
		c := name[i]
		ok = ok && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '.' || c == '_')
	}
	if !ok {
		return fmt.Errorf("%.80q is no host name and no IP address, as a certificate has them", name)
	}
	return nil
}
