package process

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/handshake"
	"github.com/ringway/ringway/internal/keyfile"
	"github.com/ringway/ringway/internal/metric"
	"github.com/ringway/ringway/internal/wire"
	"github.com/ringway/ringway/membership/identity"
)

// minToken is the minimum length of a token in characters: 16 random bytes in base64 have
// 22.
const minToken = 20

// maxTokenFile limits the bytes read from the file, so that a wrong path cannot fill the
// memory.
const maxTokenFile = 64 << 10

// AccessConfig defines who may use an admin API. With the zero value every caller on this
// host may use the API, see Guard.
type AccessConfig struct {
	// Hosts are the names, in addition to IP addresses and localhost, that the Host header
	// of a request without a token may contain. Default: none.
	Hosts []string
	// TokenFile holds tokens, one per line; empty lines and lines that begin with # are
	// skipped. Each token gives access, as a bearer token or as the password of basic
	// authentication, which browsers can ask for. The file is read again with every
	// request, so that tokens change without a restart; while the file cannot be read, the
	// tokens read last stay valid. Default: none.
	TokenFile string
	// TLS serves over TLS with the certificate of Identity. A client needs no token if its
	// certificate is of the same cluster and environment, has the role client and names one
	// of the Operators. The certificate of the process needs no token either: it proves
	// that the client is on the same host. Without TokenFile all other clients are refused.
	TLS       bool
	Identity  *identity.Source
	Operators []string
	// Logger gets a warning about a token file that other users can read, and what the server of
	// AdminConfig.Serve reports; default: discarded.
	Logger *slog.Logger
	// Registerer registers the metrics; nil: they are not registered.
	Registerer prometheus.Registerer
}

// Access guards an admin API. It is safe for concurrent use.
type Access struct {
	cfg     AccessConfig
	tokens  atomic.Pointer[[][sha256.Size]byte] // hashes of equal length, so that a comparison does not reveal the length of a token
	origins *http.CrossOriginProtection
	refused *prometheus.CounterVec
}

// The reasons of refusals, as the metrics count them and as error codes of the answers.
const (
	refusedMissing     = "no_token"
	refusedWrong       = "wrong_token"
	refusedCertificate = "certificate"
	refusedOrigin      = "cross_origin"
	refusedHost        = "foreign_host"
	refusedForwarded   = "forwarded"
)

// refusal is the answer to a request that is refused.
type refusal struct {
	status int
	Error  string `json:"error"`
	Code   string `json:"code"`
}

// openPaths are served without authentication: probes have no token, and these answers
// reveal nothing that an attacker can use.
var openPaths = []string{"/healthz", "/readyz"}

// NewAccess reads the token file and returns an error if the file is invalid.
func NewAccess(cfg AccessConfig) (*Access, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	a := &Access{cfg: cfg, origins: http.NewCrossOriginProtection()}
	if cfg.TLS && cfg.Identity == nil {
		return nil, fmt.Errorf("the admin API over TLS needs a certificate: give --tls-cert, --tls-key and --tls-ca")
	}
	if cfg.TokenFile != "" {
		warning, err := a.readTokens()
		if err != nil {
			return nil, fmt.Errorf("--admin-token-file: %w", err)
		}
		if warning != "" && !keyfile.MountedByEngine(cfg.TokenFile) { // our manifests for workers mount it so
			cfg.Logger.Warn("token file " + warning)
		}
	}
	a.refused = metric.With(cfg.Registerer).CounterVec("ringway_admin_refused_total", "Requests and connections that the admin API refused, by reason: no_token, wrong_token, certificate (its owner has no access), cross_origin (a page of another site in a browser), foreign_host (the Host header names another host), forwarded (a proxy or a relay passed it on), too_fast_from_source (a connection whose address begins more TLS handshakes per second than one address may).", "reason")
	metric.StartAtZero(a.refused, refusedMissing, refusedWrong, refusedCertificate, refusedOrigin, refusedHost, refusedForwarded, handshake.ReasonPace)
	return a, nil
}

// readTokens reads the tokens from the file. The warning is about a file that others can
// read.
func (a *Access) readTokens() (warning string, err error) {
	file := a.cfg.TokenFile
	stat, err := os.Stat(file)
	if err != nil {
		return "", fmt.Errorf("%w: write a token of %d or more characters into it: head -c 32 /dev/urandom | base64", err, minToken)
	}
	if stat.Size() > maxTokenFile {
		return "", fmt.Errorf("%s has %d bytes: is it the right file?", file, stat.Size())
	}
	if warning, err = keyfile.CheckAccess(file); err != nil {
		return "", err
	}
	text, err := keyfile.Read(file)
	if err != nil {
		return "", err
	}
	tokens, err := parseTokens(text)
	if err != nil {
		return "", fmt.Errorf("%s%w", file, err)
	}
	a.tokens.Store(&tokens)
	return warning, nil
}

// parseTokens hashes the tokens of a file. An error text continues a sentence that begins
// with the file name.
func parseTokens(text []byte) (tokens [][sha256.Size]byte, err error) {
	number := 0
	for line := range bytes.Lines(text) {
		number++
		line = bytes.TrimSpace(line)
		switch {
		case len(line) == 0 || line[0] == '#':
		case len(line) < minToken:
			return nil, fmt.Errorf(":%d: a token of %d characters, fewer than %d can be guessed: head -c 32 /dev/urandom | base64", number, len(line), minToken)
		default:
			tokens = append(tokens, sha256.Sum256(line))
		}
	}
	if len(tokens) == 0 {
		return nil, errors.New(" has no token in it: head -c 32 /dev/urandom | base64")
	}
	return tokens, nil
}

// Guard passes the requests of callers that may use the API, and all probes, to next. A
// page of another site in a browser cannot change anything here, and can only open a page.
//
// Without TokenFile and TLS every caller that can reach the address is accepted. Two kinds
// of requests reach the address although their author cannot, and are refused: requests of
// a web page whose host name was made to resolve to this address (DNS rebinding,
// https://crypto.stanford.edu/dns/dns-rebinding.pdf), detected by the Host header, and
// requests that a proxy or a relay forwarded, detected by their headers.
func (a *Access) Guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if slices.Contains(openPaths, r.URL.Path) && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
			next.ServeHTTP(w, r)
			return
		}
		refused := a.authorize(r)
		if refused == nil && (a.origins.Check(r) != nil || foreignPage(r.Header)) {
			refused = &refusal{http.StatusForbidden, "a page of another site may use nothing here: use the command line, or the page of this process", refusedOrigin}
		}
		if refused == nil {
			next.ServeHTTP(w, r)
			return
		}
		a.refused.WithLabelValues(refused.Code).Inc()
		if refused.status == http.StatusUnauthorized {
			w.Header().Add("WWW-Authenticate", `Bearer realm="ringway admin"`)
			w.Header().Add("WWW-Authenticate", `Basic realm="ringway admin", charset="UTF-8"`)
		}
		WriteJSON(w, refused.status, refused)
	})
}

// foreignPage reports whether the page of another origin in a browser makes the request. Such a
// page could hold the few streams of this process, although it cannot read them. A site is a host
// with all its ports, so a page of the same site may be that of another program. A link that the
// user follows is no such request. https://www.w3.org/TR/fetch-metadata/
func foreignPage(h http.Header) bool {
	switch h.Get("Sec-Fetch-Site") {
	case "cross-site", "same-site":
		return h.Get("Sec-Fetch-Mode") != "navigate" || h.Get("Sec-Fetch-Dest") != "document" || h.Get("Sec-Purpose") != ""
	}
	return false
}

// authorize returns why a request is refused, nil if the request is allowed.
func (a *Access) authorize(r *http.Request) *refusal {
	if a.cfg.TokenFile == "" && !a.cfg.TLS {
		return a.authorizeByAddress(r)
	}
	shown := r.TLS != nil && len(r.TLS.PeerCertificates) > 0
	var stranger error
	if a.cfg.TLS && shown {
		if stranger = a.operator(r); stranger == nil {
			return nil
		}
	}
	token := given(r)
	switch {
	case token != "" && a.cfg.TokenFile != "":
		if a.matches(token) {
			return nil
		}
		return &refusal{http.StatusUnauthorized, "the token is not valid: is --admin-token-file the file of this process?", refusedWrong}
	case stranger != nil:
		return &refusal{http.StatusForbidden, stranger.Error(), refusedCertificate}
	case a.cfg.TokenFile == "":
		return &refusal{http.StatusForbidden, "show a certificate of an operator: --admin-tls-cert, --admin-tls-key and --admin-tls-ca", refusedCertificate}
	}
	return &refusal{http.StatusUnauthorized, "a token is needed: --admin-token-file or RINGWAY_ADMIN_TOKEN_FILE", refusedMissing}
}

// authorizeByAddress is authorize for a request without credentials.
func (a *Access) authorizeByAddress(r *http.Request) *refusal {
	if header := forwardingHeader(r.Header); header != "" {
		return &refusal{http.StatusForbidden, fmt.Sprintf("the request was passed on by a proxy or a relay (it has the header %.40q): ask this address directly, or give the process --admin-token-file", header), refusedForwarded}
	}
	if !a.ownHost(r.Host) {
		return &refusal{http.StatusMisdirectedRequest, fmt.Sprintf("the Host header %.80q is not this process: ask for its IP address or for localhost, or give the process --admin-host with that name, or --admin-token-file", r.Host), refusedHost}
	}
	return nil
}

// forwardingHeader returns the name of a header that only proxies and relays add, "" if
// there is none.
func forwardingHeader(h http.Header) string {
	for name := range h {
		if name == "Forwarded" || name == "Via" || strings.HasPrefix(name, "X-Forwarded-") || strings.HasPrefix(name, wire.ReservedPrefix) {
			return name
		}
	}
	return ""
}

// ownHost reports whether a Host header names this process. An IP address cannot be made to
// resolve to another one, and localhost is not resolved by name servers.
func (a *Access) ownHost(header string) bool {
	host := header
	if name, _, err := net.SplitHostPort(header); err == nil {
		host = name
	}
	if _, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")); err == nil {
		return true
	}
	return strings.EqualFold(host, "localhost") ||
		host != "" && slices.ContainsFunc(a.cfg.Hosts, func(own string) bool { return strings.EqualFold(own, host) })
}

// operator checks the claims of the client certificate; the handshake has verified its
// chain.
func (a *Access) operator(r *http.Request) error {
	claims, err := a.cfg.Identity.PeerClaims(*r.TLS)
	if err != nil {
		return err
	}
	own := a.cfg.Identity.Claims()
	switch {
	case claims == own:
		return nil
	case claims.Cluster != own.Cluster || claims.Environment != own.Environment:
		return fmt.Errorf("the certificate is for %s/%s, this is %s/%s", claims.Cluster, claims.Environment, own.Cluster, own.Environment)
	case claims.Role != identity.RoleClient || !slices.Contains(a.cfg.Operators, claims.Node):
		return fmt.Errorf("the certificate is for the %s %q: allowed is a client out of %q (--admin-operator), or the certificate of this process", claims.Role, claims.Node, a.cfg.Operators)
	}
	return nil
}

// given returns the token of a request, "" if the request has none.
func given(r *http.Request) string {
	if scheme, token, found := strings.Cut(r.Header.Get("Authorization"), " "); found && strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(token)
	}
	_, password, _ := r.BasicAuth()
	return password
}

// matches compares the token with every valid token in constant time.
func (a *Access) matches(token string) bool {
	_, _ = a.readTokens() // on an error the tokens read last stay valid
	sum, found := sha256.Sum256([]byte(token)), 0
	for _, t := range *a.tokens.Load() {
		found |= subtle.ConstantTimeCompare(sum[:], t[:])
	}
	return found == 1
}

// Secure configures server for TLS if cfg.TLS is set. Serve with ServeTLS in that case,
// without certificate files. The handshakes of one address have a pace, as at all listeners.
func (a *Access) Secure(server *http.Server) {
	if !a.cfg.TLS {
		return
	}
	server.TLSConfig = a.cfg.Identity.OpenServerConfig("h2", "http/1.1")
	pace, perConnection := handshake.NewPace(), server.TLSConfig.GetConfigForClient
	server.TLSConfig.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if err := pace.Wait(hello.Context(), hello.Conn.RemoteAddr()); err != nil {
			a.refused.WithLabelValues(handshake.ReasonPace).Inc()
			return nil, err
		}
		return perConnection(hello)
	}
	server.Protocols = new(http.Protocols)
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetHTTP2(true)
}
