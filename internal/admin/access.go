package admin

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
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
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/ringway/ringway/membership/identity"
)

// leastToken is the fewest characters of a token: 16 random bytes in base64 have 22.
const leastToken = 20

// maxTokenFile bounds what is read: a mistyped path must not fill the memory.
const maxTokenFile = 64 << 10

// AccessConfig says who may use an admin API. With the zero value every caller on this
// host may, see Guard.
type AccessConfig struct {
	// Hosts are the names, besides IP addresses and localhost, that a request without a
	// token may ask for in its Host header. Default: none.
	Hosts []string
	// TokenFile holds tokens, one a line; empty lines and those that begin with # are
	// skipped. Any of them opens the API, as a bearer token or as the password of
	// basic authentication, which browsers can ask for. It is read again with every
	// request, so that tokens change without a restart; while it cannot be read, those
	// read last count. Default: none.
	TokenFile string
	// TLS serves over TLS with the certificate of Identity. Who shows a certificate of
	// the same cluster and environment for the role client and one of the Operators
	// needs no token; nor does who shows the process's own, which proves that he is on
	// its host. Without TokenFile nobody else is let in.
	TLS       bool
	Identity  *identity.Source
	Operators []string
	// Logger gets a warning about a token file that others can read; default: discarded.
	Logger *slog.Logger
	// Registerer takes the metrics; nil: nowhere.
	Registerer prometheus.Registerer
}

// Access guards an admin API. It is safe for concurrent use.
type Access struct {
	cfg     AccessConfig
	tokens  atomic.Pointer[[][sha256.Size]byte] // hashes: of one length, so that comparing tells no length
	origins *http.CrossOriginProtection
	refused *prometheus.CounterVec
}

// The reasons of refusals, which are also the codes of the answers.
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

// openPaths are answered to everybody: probes have no token, and learn nothing that
// can be used.
var openPaths = []string{"/healthz", "/readyz"}

// NewAccess reads the token file for the first time.
func NewAccess(cfg AccessConfig) (*Access, error) {
	a := &Access{cfg: cfg, origins: http.NewCrossOriginProtection()}
	if cfg.TLS && cfg.Identity == nil {
		return nil, fmt.Errorf("the admin API over TLS needs a certificate: give --tls-cert, --tls-key and --tls-ca")
	}
	if cfg.TokenFile != "" {
		warning, err := a.readTokens()
		if err != nil {
			return nil, fmt.Errorf("--admin-token-file: %w", err)
		}
		if warning != "" && cfg.Logger != nil {
			cfg.Logger.Warn("token file " + warning)
		}
	}
	a.refused = promauto.With(cfg.Registerer).NewCounterVec(prometheus.CounterOpts{
		Name: "ringway_admin_refused_total", Help: "Requests that the admin API refused, by reason: no_token, wrong_token, certificate (its owner has no access), cross_origin (a page of another site in a browser), foreign_host (the Host header names another host), forwarded (a proxy or a relay passed it on).",
	}, []string{"reason"})
	for _, reason := range []string{refusedMissing, refusedWrong, refusedCertificate, refusedOrigin, refusedHost, refusedForwarded} {
		a.refused.WithLabelValues(reason)
	}
	return a, nil
}

// readTokens takes the tokens of the file, with a warning when others can read it.
func (a *Access) readTokens() (warning string, err error) {
	file := a.cfg.TokenFile
	stat, err := os.Stat(file)
	if err != nil {
		return "", fmt.Errorf("%w: write a token of %d or more characters into it: head -c 32 /dev/urandom | base64", err, leastToken)
	}
	if stat.Size() > maxTokenFile {
		return "", fmt.Errorf("%s has %d bytes: is it the right file?", file, stat.Size())
	}
	if warning, err = identity.JudgeSecretFile(file); err != nil {
		return "", err
	}
	text, err := os.ReadFile(file)
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

// parseTokens hashes the tokens of a file. Its errors continue the name of the file.
func parseTokens(text []byte) (tokens [][sha256.Size]byte, err error) {
	number := 0
	for line := range bytes.Lines(text) {
		number++
		line = bytes.TrimSpace(line)
		switch {
		case len(line) == 0 || line[0] == '#':
		case len(line) < leastToken:
			return nil, fmt.Errorf(":%d: a token of %d characters, fewer than %d can be guessed: head -c 32 /dev/urandom | base64", number, len(line), leastToken)
		default:
			tokens = append(tokens, sha256.Sum256(line))
		}
	}
	if len(tokens) == 0 {
		return nil, errors.New(" has no token in it: head -c 32 /dev/urandom | base64")
	}
	return tokens, nil
}

// Guard passes to next the requests of callers that may use the API, and all probes. A
// page of another site that a browser shows cannot change anything here.
//
// Without TokenFile and TLS a caller is believed for the address that it could reach.
// Two kinds of requests come from there without their author being there, and are
// refused: those of a web page whose name was made to mean this address (DNS
// rebinding, https://crypto.stanford.edu/dns/dns-rebinding.pdf), which the Host header
// tells, and those that a proxy or a relay passed on, which its headers tell.
func (a *Access) Guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if slices.Contains(openPaths, r.URL.Path) && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
			next.ServeHTTP(w, r)
			return
		}
		refused := a.judge(r)
		if refused == nil && a.origins.Check(r) != nil {
			refused = &refusal{http.StatusForbidden, "a page of another site may change nothing here: use the command line, or the page of this process", refusedOrigin}
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

// judge says why a request is refused; nil when it is not.
func (a *Access) judge(r *http.Request) *refusal {
	if a.cfg.TokenFile == "" && !a.cfg.TLS {
		return a.judgeByAddress(r)
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
		return &refusal{http.StatusUnauthorized, "this token opens nothing: is --admin-token-file the file of this process?", refusedWrong}
	case stranger != nil:
		return &refusal{http.StatusForbidden, stranger.Error(), refusedCertificate}
	case a.cfg.TokenFile == "":
		return &refusal{http.StatusForbidden, "show a certificate of an operator: --admin-tls-cert, --admin-tls-key and --admin-tls-ca", refusedCertificate}
	}
	return &refusal{http.StatusUnauthorized, "a token is needed: --admin-token-file or RINGWAY_ADMIN_TOKEN_FILE", refusedMissing}
}

// judgeByAddress judges a request that has only its address to show.
func (a *Access) judgeByAddress(r *http.Request) *refusal {
	if header := forwardingHeader(r.Header); header != "" {
		return &refusal{http.StatusForbidden, fmt.Sprintf("the request was passed on by a proxy or a relay (it has the header %.40q): ask this address directly, or give the process --admin-token-file", header), refusedForwarded}
	}
	if !a.ownHost(r.Host) {
		return &refusal{http.StatusMisdirectedRequest, fmt.Sprintf("the Host header %.80q is not this process: ask for its IP address or for localhost, or give the process --admin-host with that name, or --admin-token-file", r.Host), refusedHost}
	}
	return nil
}

// forwardingHeader is the name of a header that only what passes requests on adds.
func forwardingHeader(h http.Header) string {
	for name := range h {
		if name == "Forwarded" || name == "Via" || strings.HasPrefix(name, "X-Forwarded-") || strings.HasPrefix(name, "Ringway-") {
			return name
		}
	}
	return ""
}

// ownHost reports whether a Host header names this process. An IP address cannot be
// made to mean another one, and localhost is not asked of name servers.
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

// operator judges the certificate that was shown; the handshake has verified its chain.
func (a *Access) operator(r *http.Request) error {
	claims, err := identity.PeerClaims(*r.TLS)
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

// given is the token of a request, empty without one.
func given(r *http.Request) string {
	if scheme, token, found := strings.Cut(r.Header.Get("Authorization"), " "); found && strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(token)
	}
	_, password, _ := r.BasicAuth()
	return password
}

// matches compares with every token in constant time.
func (a *Access) matches(token string) bool {
	_, _ = a.readTokens() // those read last count while it fails
	sum, found := sha256.Sum256([]byte(token)), 0
	for _, t := range *a.tokens.Load() {
		found |= subtle.ConstantTimeCompare(sum[:], t[:])
	}
	return found == 1
}

// Secure has the server speak TLS where that was asked for. Serve with ServeTLS then,
// without files.
func (a *Access) Secure(server *http.Server) {
	if !a.cfg.TLS {
		return
	}
	server.TLSConfig = a.cfg.Identity.OpenServerConfig("h2", "http/1.1")
	server.Protocols = new(http.Protocols)
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetHTTP2(true)
}
