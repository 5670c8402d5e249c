package command

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/keyfile"
	"github.com/ringway/ringway/internal/process"
	"github.com/ringway/ringway/internal/settings"
	"github.com/ringway/ringway/membership/identity"
)

// adminTimeout covers calls that wait for other members: a drain, a key that all members
// must have.
const adminTimeout = 30 * time.Second

// adminVariable is the environment variable of --admin-addr, the same as the daemon's.
const adminVariable = "RINGWAY_ADMIN_ADDR"

// adminCall sends requests to the admin API of one process. It needs the address of the API
// and no other setting of the process.
type adminCall struct {
	form
	watch
	adminAccess
	process string      // relay or worker
	admin   *pflag.Flag // --admin-addr; nil if at has the address
	at      string
	// announced is the member that announces the address; zero if the operator has given it.
	announced identity.Expected
	secret    string // the name of the secret in the body; empty: the body has none
}

// relayCall and workerCall add the flags of a call: the address, and the output forms, all
// of them if outputs is empty.
func relayCall(flags *pflag.FlagSet, outputs ...string) *adminCall {
	return newAdminCall("relay", process.RelayAdminPort, flags, outputs)
}

func workerCall(flags *pflag.FlagSet, outputs ...string) *adminCall {
	return newAdminCall("worker", process.WorkerAdminPort, flags, outputs)
}

// callOf returns the call of a command that both binaries have.
func callOf(process string, flags *pflag.FlagSet, outputs ...string) *adminCall {
	if process == "worker" {
		return workerCall(flags, outputs...)
	}
	return relayCall(flags, outputs...)
}

// serviceCall is relayCall for a command whose argument is a service, and whose answer can be
// watched.
func serviceCall(c *cobra.Command) *adminCall {
	call := relayCall(c.Flags())
	call.watchable(c.Flags())
	c.ValidArgsFunction = call.completeServices
	return call
}

func newAdminCall(process, port string, flags *pflag.FlagSet, outputs []string) *adminCall {
	c := &adminCall{process: process}
	flags.String("admin-addr", "127.0.0.1:"+port, "address of the "+process+"'s admin API, HOST:PORT or unix:PATH, or "+adminVariable)
	c.admin = flags.Lookup("admin-addr")
	c.declare(flags)
	c.bind(flags, outputs...)
	return c
}

// addr returns the address from the flag, the environment or the default. The default of
// the flag does not depend on the environment: otherwise the help and the reference would
// depend on the environment too.
func (c *adminCall) addr() string {
	if c.admin == nil {
		return c.at
	}
	if env := os.Getenv(adminVariable); env != "" && !c.admin.Changed {
		return env
	}
	return c.admin.Value.String()
}

// request returns a request for a path below /api/v1, or for an absolute path that begins
// with a slash, and the client that sends the request.
func (c *adminCall) request(ctx context.Context, method, path string, body []byte) (*http.Request, *http.Client, error) {
	addr := c.addr()
	scheme, client, err := c.client(addr, c.process, c.announced)
	if err != nil {
		return nil, nil, err
	}
	if !strings.HasPrefix(path, "/") {
		path = "/api/v1/" + path
	}
	req, err := http.NewRequestWithContext(ctx, method, scheme+"://"+urlHost(addr)+path, bytes.NewReader(body))
	if err != nil {
		return nil, nil, fmt.Errorf("--admin-addr %q: %w: want HOST:PORT or unix:PATH", addr, err)
	}
	if err := c.authorize(req); err != nil {
		return nil, nil, err
	}
	secret := c.secret
	if secret == "" && req.Header.Get("Authorization") != "" {
		secret = "token"
	}
	if scheme == "http" {
		if c.announced.Node != "" && secret != "" {
			return nil, nil, fmt.Errorf("%s announces the address %s, which no certificate proves: it gets no %s. Ask over TLS (--admin-tls-cert, --admin-tls-key, --admin-tls-ca), or give the address with --admin-addr if it is right", c.announced.Node, addr, secret)
		}
		if err := c.checkClearText(addr, secret); err != nil {
			return nil, nil, err
		}
	}
	return req, client, nil
}

// ask sends a request and returns the answer, whatever its status.
func (c *adminCall) ask(ctx context.Context, method, path string, body []byte) (*http.Response, []byte, error) {
	req, client, err := c.request(ctx, method, path, body)
	if err != nil {
		return nil, nil, err
	}
	client.Timeout = adminTimeout
	addr := c.addr()
	resp, err := client.Do(req)
	if err != nil {
		var wrapped *url.Error
		if errors.As(err, &wrapped) {
			err = wrapped.Err // the text has the address already
		}
		return nil, nil, fmt.Errorf("ask the %s at %s: %w: is it running, and is --admin-addr right?", c.process, addr, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 64<<20))
	if err != nil {
		return nil, nil, fmt.Errorf("read the answer of the %s at %s: %w", c.process, addr, err)
	}
	return resp, text, nil
}

// get asks for a document and prints it: by show, or unchanged. With --watch it repeats this
// until interrupted.
func get[T any](cmd *cobra.Command, c *adminCall, path string, show func(*page, *T)) error {
	var answer T
	return c.call(cmd, http.MethodGet, path, nil, &answer, func(p *page) { show(p, &answer) })
}

// getDocument is get for a document that this command makes from answers. fetch may return a
// document and an error, as for read.
func getDocument[T any](cmd *cobra.Command, c *adminCall, fetch func(context.Context) (*T, error), show func(*page, *T)) error {
	var doc *T
	return c.read(cmd, func(ctx context.Context) ([]byte, error) {
		made, err := fetch(ctx)
		if made == nil {
			return nil, err
		}
		text, failed := document(made)
		if failed != nil {
			return nil, failed
		}
		doc = made
		return text, err
	}, func(p *page) { show(p, doc) })
}

// call is get for any request; it decodes the answer into answer.
func (c *adminCall) call(cmd *cobra.Command, method, path string, body []byte, answer any, show func(*page)) error {
	return c.read(cmd, func(ctx context.Context) ([]byte, error) { return c.fetch(ctx, method, path, body, answer) }, show)
}

// read prints the result of fetch: a document, an error, or both if the document can be
// shown and the exit code must report the error.
func (c *adminCall) read(cmd *cobra.Command, fetch func(context.Context) ([]byte, error), show func(*page)) error {
	if err := errors.Join(c.form.check(), c.watch.check(cmd)); err != nil {
		return err
	}
	if c.watch.on {
		return c.watching(cmd, fetch, show)
	}
	text, err := fetch(cmd.Context())
	if text == nil {
		return err
	}
	return errors.Join(c.show(cmd.OutOrStdout(), text, show), err)
}

// fetch sends one request and decodes the answer. The text is nil with an error.
func (c *adminCall) fetch(ctx context.Context, method, path string, body []byte, answer any) ([]byte, error) {
	resp, text, err := c.ask(ctx, method, path, body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, c.refused(resp, text)
	}
	reflect.ValueOf(answer).Elem().SetZero() // a watch decodes into it again
	if err := json.Unmarshal(text, answer); err != nil {
		return nil, c.misdirected(resp, text)
	}
	return text, nil
}

// refused is the error for an answer with another status than 200.
func (c *adminCall) refused(resp *http.Response, text []byte) error {
	var failed api.Error
	switch {
	case json.Unmarshal(text, &failed) != nil || failed.Error == "":
		return c.misdirected(resp, text)
	case resp.StatusCode == http.StatusNotFound:
		return fmt.Errorf("%w: %s", ErrNothingMatched, failed.Error)
	}
	return errors.New(failed.Error)
}

// misdirected is the error for an answer that cannot come from an admin API.
func (c *adminCall) misdirected(resp *http.Response, text []byte) error {
	if resp.StatusCode == http.StatusBadRequest && bytes.Contains(text, []byte("HTTPS server")) {
		return fmt.Errorf("the process at %s wants TLS: give --admin-tls-cert, --admin-tls-key and --admin-tls-ca", c.addr())
	}
	return fmt.Errorf("the process at %s answered %s: is this the admin address of a %s?", c.addr(), resp.Status, c.process)
}

// adminAccess has the flags with which a command authenticates to an admin API. Each flag
// has an environment variable with the prefix of the daemon's variables.
// RINGWAY_ADMIN_TOKEN_FILE is the daemon's own, so that in a container the commands use the
// token file of the process.
type adminAccess struct {
	token, cert, key, ca, template, clearText *pflag.Flag
	// tokenFile is the file where --admin-token-file is a setting of the process, and no flag of the command.
	tokenFile string
	// patience is how long the head of an answer may take. Default adminTimeout.
	patience time.Duration
}

func (a *adminAccess) declare(flags *pflag.FlagSet) {
	flags.String("admin-token-file", "", "file whose first line is the token for the admin API, or "+variable("admin-token-file"))
	a.token = flags.Lookup("admin-token-file")
	a.declareTLS(flags)
}

func (a *adminAccess) declareTLS(flags *pflag.FlagSet) {
	add := func(name, usage string) *pflag.Flag {
		flags.String(name, "", usage+", or "+variable(name))
		return flags.Lookup(name)
	}
	a.cert = add("admin-tls-cert", "ask over TLS: certificate of an operator, PEM")
	a.key = add("admin-tls-key", "ask over TLS: private key of the certificate, PEM")
	a.ca = add("admin-tls-ca", "ask over TLS: authorities that the process's certificate must come from, PEM")
	a.template = add("admin-identity-template", "ask over TLS: the process's --identity-template, if it has one")
	flags.Bool("admin-clear-text", false, "send a token or a gossip key to another host without TLS, where the network between is trusted, or "+variable("admin-clear-text")+"=true")
	a.clearText = flags.Lookup("admin-clear-text")
}

func variable(flag string) string {
	return "RINGWAY_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// value returns the flag, or the environment variable if the flag is not given.
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
	file := cmp.Or(a.tokenFile, value(a.token))
	if file == "" {
		return nil
	}
	if _, err := keyfile.CheckAccess(file); err != nil { // the process warns about the other defects
		return fmt.Errorf("--admin-token-file: %w", err)
	}
	text, err := keyfile.Read(file)
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

// direct returns a client that connects to addr only: not through a proxy of the
// environment, which would read the request in clear text, and not to the target of a
// redirect.
func direct(addr string) (*http.Client, *http.Transport) {
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, adminTimeout)
		defer cancel()
		return process.Dial(ctx, onThisHost(addr))
	}}
	return &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, transport
}

// staysOnHost reports whether data sent to addr never leaves this host. For a name the result
// is false, because the name may resolve to any address.
func staysOnHost(addr string) bool {
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

// checkClearText returns an error if the secret would be sent to another host in clear
// text.
func (a *adminAccess) checkClearText(addr, secret string) error {
	if secret == "" || staysOnHost(addr) || value(a.clearText) == "true" {
		return nil
	}
	return fmt.Errorf("--admin-addr %s: the %s would cross the network in clear text: ask over TLS (--admin-tls-cert, --admin-tls-key, --admin-tls-ca), or run this on the host of the process, or give --admin-clear-text where you trust the network", addr, secret)
}

// client returns the scheme and the client for addr: http, or https with a client that
// presents a certificate and accepts only a process of the same cluster and environment, of
// the given kind and as expected.
func (a *adminAccess) client(addr, process string, expected identity.Expected) (scheme string, client *http.Client, err error) {
	client, transport := direct(addr)
	// A process that hangs must not keep a command that reads an endless answer, or asks one member after
	// the other.
	transport.ResponseHeaderTimeout = cmp.Or(a.patience, adminTimeout)
	transport.TLSHandshakeTimeout = transport.ResponseHeaderTimeout
	files := identity.Files{Certificate: value(a.cert), Key: value(a.key), Authorities: value(a.ca)}
	if files == (identity.Files{}) {
		if a.template != nil && a.template.Changed { // the variable may be set for commands with TLS
			return "", nil, errors.New("--admin-identity-template has no effect without TLS: give --admin-tls-cert, --admin-tls-key and --admin-tls-ca, too, or leave it out")
		}
		return "http", client, nil
	}
	if files.Certificate == "" || files.Key == "" || files.Authorities == "" {
		return "", nil, errors.New("--admin-tls-cert, --admin-tls-key and --admin-tls-ca go together")
	}
	source, err := identity.NewSource(files, identity.SourceConfig{Template: value(a.template)})
	if err != nil {
		return "", nil, fmt.Errorf("--admin-tls-cert: %w", err)
	}
	transport.TLSClientConfig = source.ClientConfig(source.Policy(identity.Hello), expected, "http/1.1")
	verify := transport.TLSClientConfig.VerifyConnection
	transport.TLSClientConfig.VerifyConnection = func(state tls.ConnectionState) error {
		if err := verify(state); err != nil {
			return err
		}
		theirs, err := source.FromCertificate(state.PeerCertificates[0])
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
