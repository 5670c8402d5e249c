package command

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/ringway/ringway/internal/admin"
	"github.com/ringway/ringway/internal/settings"
	"github.com/ringway/ringway/membership/identity"
)

// adminAccess is how a verb proves that it may use an admin API. Each flag has an
// environment variable, named as those of the daemon: RINGWAY_ADMIN_TOKEN_FILE is its
// own, so that in a container the verbs find what the process was given.
type adminAccess struct{ token, cert, key, ca, clearText *pflag.Flag }

func (a *adminAccess) declare(flags *pflag.FlagSet) {
	add := func(name, usage string) *pflag.Flag {
		flags.String(name, "", usage+", or "+variable(name))
		return flags.Lookup(name)
	}
	a.token = add("admin-token-file", "file whose first line is the token for the admin API")
	a.cert = add("admin-tls-cert", "ask over TLS: certificate of an operator, PEM")
	a.key = add("admin-tls-key", "ask over TLS: private key of the certificate, PEM")
	a.ca = add("admin-tls-ca", "ask over TLS: authorities that the process's certificate must come from, PEM")
	flags.Bool("admin-clear-text", false, "send a token or a gossip key to another host without TLS, where the network between is trusted, or "+variable("admin-clear-text")+"=true")
	a.clearText = flags.Lookup("admin-clear-text")
}

func variable(flag string) string {
	return "RINGWAY_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// value is the flag, or the environment where it is not given.
func value(f *pflag.Flag) string {
	if f == nil {
		return ""
	}
	if env := os.Getenv(variable(f.Name)); env != "" && !f.Changed {
		return env
	}
	return f.Value.String()
}

// authorize adds the token to a request, if there is one.
func (a *adminAccess) authorize(req *http.Request) error {
	file := value(a.token)
	if file == "" {
		return nil
	}
	if _, err := identity.JudgeSecretFile(file); err != nil { // the process warns of the rest
		return fmt.Errorf("--admin-token-file: %w", err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("--admin-token-file: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			req.Header.Set("Authorization", "Bearer "+line)
			return nil
		}
	}
	return fmt.Errorf("--admin-token-file: %s has no token in it", file)
}

// direct asks addr and nothing else: no proxy of the environment, which would read what
// is sent to it in clear text, and no other address that an answer names.
func direct(addr string) (*http.Client, *http.Transport) {
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return admin.Dial(ctx, onThisHost(addr))
	}}
	return &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, transport
}

// staysHere reports whether what is sent to addr never leaves this host. A name does not
// count: it may mean any address.
func staysHere(addr string) bool {
	if strings.HasPrefix(addr, settings.SocketPrefix) {
		return true
	}
	host, _, err := net.SplitHostPort(onThisHost(addr))
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	if ip == nil || ip.IsLoopback() {
		return ip != nil || host == "localhost"
	}
	own, err := net.InterfaceAddrs()
	return err == nil && slices.ContainsFunc(own, func(a net.Addr) bool {
		network, ok := a.(*net.IPNet)
		return ok && network.IP.Equal(ip)
	})
}

// checkClearText refuses to send a secret to another host where the network can read it.
func (a *adminAccess) checkClearText(addr, secret string) error {
	if secret == "" || staysHere(addr) || value(a.clearText) == "true" {
		return nil
	}
	return fmt.Errorf("--admin-addr %s: the %s would cross the network in clear text: ask over TLS (--admin-tls-cert, --admin-tls-key, --admin-tls-ca), or run this on the host of the process, or give --admin-clear-text where you trust the network", addr, secret)
}

// client returns how to ask addr: http, or https with a client that shows a certificate
// and accepts a process of the same cluster and environment and of the given kind only.
func (a *adminAccess) client(addr, process string) (scheme string, client *http.Client, err error) {
	client, transport := direct(addr)
	files := identity.Files{Certificate: value(a.cert), Key: value(a.key), Authorities: value(a.ca)}
	if files == (identity.Files{}) {
		return "http", client, nil
	}
	if files.Certificate == "" || files.Key == "" || files.Authorities == "" {
		return "", nil, errors.New("--admin-tls-cert, --admin-tls-key and --admin-tls-ca go together")
	}
	source, err := identity.NewSource(files, identity.SourceConfig{})
	if err != nil {
		return "", nil, fmt.Errorf("--admin-tls-cert: %w", err)
	}
	transport.TLSClientConfig = source.ClientConfig(source.Policy(identity.Hello), identity.Expected{}, "http/1.1")
	verify := transport.TLSClientConfig.VerifyConnection
	transport.TLSClientConfig.VerifyConnection = func(state tls.ConnectionState) error {
		if err := verify(state); err != nil {
			return err
		}
		theirs, err := identity.FromCertificate(state.PeerCertificates[0])
		own := source.Claims()
		switch {
		case err != nil:
			return err
		case theirs.Cluster != own.Cluster || theirs.Environment != own.Environment:
			return fmt.Errorf("the process is of %s/%s, the certificate of --admin-tls-cert of %s/%s", theirs.Cluster, theirs.Environment, own.Cluster, own.Environment)
		case (theirs.Role == identity.RoleWorker) != (process == "worker") || theirs.Role == identity.RoleClient:
			return fmt.Errorf("a %s answers there, not a %s", theirs.Role, process)
		}
		return nil
	}
	return "https", client, nil
}
