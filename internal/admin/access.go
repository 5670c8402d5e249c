package admin

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net/http"
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

// AccessConfig says who may use an admin API. The zero value lets everybody who
// reaches it.
type AccessConfig struct {
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

// The reasons of refusals.
const (
	refusedMissing     = "no_token"
	refusedWrong       = "wrong_token"
	refusedCertificate = "certificate"
	refusedOrigin      = "cross_origin"
)

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
		if err := a.readTokens(); err != nil {
			return nil, fmt.Errorf("--admin-token-file: %w", err)
		}
	}
	a.refused = promauto.With(cfg.Registerer).NewCounterVec(prometheus.CounterOpts{
		Name: "ringway_admin_refused_total", Help: "Requests that the admin API refused, by reason: no_token, wrong_token, certificate (of nobody who may), cross_origin (a page of another site in a browser).",
	}, []string{"reason"})
	for _, reason := range []string{refusedMissing, refusedWrong, refusedCertificate, refusedOrigin} {
		a.refused.WithLabelValues(reason)
	}
	return a, nil
}

func (a *Access) readTokens() error {
	stat, err := os.Stat(a.cfg.TokenFile)
	if err != nil {
		return fmt.Errorf("%w: write a token of %d or more characters into it: head -c 32 /dev/urandom | base64", err, leastToken)
	}
	if stat.Size() > maxTokenFile {
		return fmt.Errorf("%s has %d bytes: is it the right file?", a.cfg.TokenFile, stat.Size())
	}
	if mode := stat.Mode().Perm(); mode&0o022 != 0 {
		return fmt.Errorf("%s can be written by others (mode %04o): chmod 600 it", a.cfg.TokenFile, mode)
	}
	text, err := os.ReadFile(a.cfg.TokenFile)
	if err != nil {
		return err
	}
	var tokens [][sha256.Size]byte
	lines := bufio.NewScanner(bytes.NewReader(text))
	for number := 1; lines.Scan(); number++ {
		line := strings.TrimSpace(lines.Text())
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case len(line) < leastToken:
			return fmt.Errorf("%s:%d: a token of %d characters, fewer than %d can be guessed: head -c 32 /dev/urandom | base64", a.cfg.TokenFile, number, len(line), leastToken)
		default:
			tokens = append(tokens, sha256.Sum256([]byte(line)))
		}
	}
	if len(tokens) == 0 {
		return fmt.Errorf("%s has no token in it: head -c 32 /dev/urandom | base64", a.cfg.TokenFile)
	}
	a.tokens.Store(&tokens)
	return nil
}

// Guard lets through to next who may use the API, and everybody to the probes. A page
// of another site that a browser shows cannot change anything here.
func (a *Access) Guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if slices.Contains(openPaths, r.URL.Path) && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
			next.ServeHTTP(w, r)
			return
		}
		if status, reason, text := a.judge(r); reason != "" {
			a.refused.WithLabelValues(reason).Inc()
			if status == http.StatusUnauthorized {
				w.Header().Add("WWW-Authenticate", `Bearer realm="ringway admin"`)
				w.Header().Add("WWW-Authenticate", `Basic realm="ringway admin", charset="UTF-8"`)
			}
			WriteError(w, status, text)
			return
		}
		if err := a.origins.Check(r); err != nil {
			a.refused.WithLabelValues(refusedOrigin).Inc()
			WriteError(w, http.StatusForbidden, "a page of another site may change nothing here")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// judge says why a request is refused; with an empty reason it is not.
func (a *Access) judge(r *http.Request) (status int, reason, text string) {
	if a.cfg.TokenFile == "" && !a.cfg.TLS {
		return 0, "", ""
	}
	shown := r.TLS != nil && len(r.TLS.PeerCertificates) > 0
	var refusal error
	if a.cfg.TLS && shown {
		if refusal = a.operator(r); refusal == nil {
			return 0, "", ""
		}
	}
	token := given(r)
	switch {
	case token != "" && a.cfg.TokenFile != "":
		if a.matches(token) {
			return 0, "", ""
		}
		return http.StatusUnauthorized, refusedWrong, "this token opens nothing: is --admin-token-file the file of this process?"
	case refusal != nil:
		return http.StatusForbidden, refusedCertificate, refusal.Error()
	case a.cfg.TokenFile == "":
		return http.StatusForbidden, refusedCertificate, "show a certificate of an operator: --admin-tls-cert, --admin-tls-key and --admin-tls-ca"
	}
	return http.StatusUnauthorized, refusedMissing, "a token is needed: --admin-token-file or RINGWAY_ADMIN_TOKEN_FILE"
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
	_ = a.readTokens() // those read last count while it fails
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
