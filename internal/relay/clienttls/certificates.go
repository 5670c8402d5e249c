package clienttls

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/keyfile"
)

// Config describes Certificates.
type Config struct {
	// Sites are the ways in which TLS ends, one or more. Required. A file that several of them
	// name is read once.
	Sites []Site
	// Admit returns why a client is refused whose certificate, which is the first of these, one of
	// the authorities has issued. Default: none is.
	Admit func(presented []*x509.Certificate) error
	// AdmitChanged returns a channel that is closed when Admit may refuse others than before: then
	// Run closes the connections of clients that it refuses now. Default: never.
	AdmitChanged func() <-chan struct{}
	// Interval is the time between two reads of the files in Run. Default 5 s: the files are
	// small, and their content decides.
	Interval time.Duration
	// Now is the clock for the validity of the relay's own certificates. Default time.Now.
	Now func() time.Time
	// Logger gets a line for each change, each broken state and each certificate that ends.
	// Required.
	Logger *slog.Logger
	// Registerer gets the metrics. Required.
	Registerer prometheus.Registerer
}

// Site is which certificates the clients of an address see, and which they present.
type Site struct {
	// Pairs are the certificates with their keys; the first is the default. Required.
	Pairs []Pair
	// ClientCA is a PEM file of authorities. With it clients must present a certificate that one
	// of them issued. Default: clients present none.
	ClientCA string
}

// Certificates are the certificates of an ingress and the authorities of its clients. They
// are safe for concurrent use.
type Certificates struct {
	cfg     Config
	metrics *metrics
	current atomic.Pointer[material]

	mu      sync.Mutex // one reader of the files at a time; guards the fields below
	pairs   []*pairFiles
	clients []*authorities

	opened   sync.Mutex           // guards admitted
	admitted map[*ending]struct{} // the open connections of clients with a certificate
	judged   atomic.Uint64        // how many times they were judged again
}

// authorities are the authorities of clients in a file and what was last read of them.
type authorities struct {
	path  string
	hash  [sha256.Size]byte
	pool  *x509.CertPool
	end   time.Time // of the authority that is valid longest
	state fileState
}

// material is what a handshake uses. It is never changed after it is published.
type material struct {
	sites    []*tls.Config // in the order of Config.Sites
	firstEnd time.Time     // of the pair that ends first
	authsEnd time.Time     // of the first file in which no authority of clients is valid any more; zero without
}

// New reads all files. The error lists all problems.
func New(cfg Config) (*Certificates, error) {
	if cfg.Interval <= 0 {
		cfg.Interval = 5 * time.Second
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Admit == nil {
		cfg.Admit = func([]*x509.Certificate) error { return nil }
	}
	if cfg.AdmitChanged == nil {
		cfg.AdmitChanged = func() <-chan struct{} { return nil }
	}
	c := &Certificates{cfg: cfg, admitted: map[*ending]struct{}{}}
	var errs []error
	for _, site := range cfg.Sites {
		if len(site.Pairs) == 0 {
			return nil, errors.New("TLS at the ingress needs a certificate and its key")
		}
		for _, paths := range site.Pairs {
			if c.pair(paths) != nil {
				continue
			}
			p := &pairFiles{Pair: paths}
			certificate, key, hash, err := p.read()
			if err == nil {
				p.loaded, err = p.parse(certificate, key)
			}
			p.hash = hash
			errs = append(errs, err)
			c.pairs = append(c.pairs, p)
		}
		if site.ClientCA != "" && c.authorities(site.ClientCA) == nil {
			a, err := readAuthorities(site.ClientCA)
			errs = append(errs, err)
			c.clients = append(c.clients, &a)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("load the certificates of the ingress: %w", err)
	}
	for _, p := range c.pairs {
		if warning, err := keyfile.CheckAccess(p.Key); err == nil && warning != "" {
			cfg.Logger.Warn("key file " + warning)
		}
	}
	c.publish()
	c.metrics = newMetrics(cfg, &c.current)
	return c, nil
}

// pair returns the files of a pair, nil if they were not read.
func (c *Certificates) pair(paths Pair) *pairFiles {
	for _, p := range c.pairs {
		if p.Pair == paths {
			return p
		}
	}
	return nil
}

// authorities returns those of a file, nil if it was not read.
func (c *Certificates) authorities(path string) *authorities {
	for _, a := range c.clients {
		if a.path == path {
			return a
		}
	}
	return nil
}

// Run reads the files every Interval until ctx ends, warns before a certificate ends, and closes
// connections that Admit refuses now. It returns nil. It blocks: the caller owns the goroutine.
func (c *Certificates) Run(ctx context.Context) error {
	tick := time.NewTicker(c.cfg.Interval)
	defer tick.Stop()
	changed := c.cfg.AdmitChanged()
	for {
		_ = c.Reload() // it logs and counts each broken state once
		c.warnOfEnds()
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-changed:
			changed = c.cfg.AdmitChanged()
			c.judgeOpen()
		}
	}
}

// judgeOpen closes the open connections of clients that are not admitted any more.
func (c *Certificates) judgeOpen() {
	c.judged.Add(1)
	c.opened.Lock()
	open := slices.Collect(maps.Keys(c.admitted))
	c.opened.Unlock()
	closed, cause := 0, error(nil)
	for _, e := range open {
		if err := c.cfg.Admit(e.presented); err != nil {
			closed, cause = closed+1, err
			e.end()
		}
	}
	if closed > 0 {
		c.cfg.Logger.Warn("open connections of clients closed: their certificates no longer count", "connections", closed, "err", cause)
	}
}

// Reload reads the files now. Pairs that cannot be used stay as they are, and are in the
// error. Running handshakes finish with what they began with.
func (c *Certificates) Reload() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	changed := false
	var errs []error
	for _, p := range c.pairs {
		replaced, err := c.reloadPair(p)
		changed = changed || replaced
		errs = append(errs, err)
	}
	for _, a := range c.clients {
		replaced, err := c.reloadAuthorities(a)
		changed = changed || replaced
		errs = append(errs, err)
	}
	if changed {
		c.publish()
	}
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	c.metrics.refused.Set(float64(len(errs)))
	return errors.Join(errs...)
}

// First returns the certificate that ends first, and why files on disk are not in use, nil if
// all are.
func (c *Certificates) First() (leaf *x509.Certificate, problem error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var problems []error
	for _, a := range c.clients {
		problems = append(problems, a.state.problem)
	}
	for _, p := range c.pairs {
		problems = append(problems, p.state.problem)
		if leaf == nil || p.loaded.Leaf.NotAfter.Before(leaf.NotAfter) {
			leaf = p.loaded.Leaf
		}
	}
	return leaf, errors.Join(problems...)
}

// reloadPair reports whether the pair was replaced.
func (c *Certificates) reloadPair(p *pairFiles) (bool, error) {
	certificate, key, hash, err := p.read()
	if err != nil {
		return false, c.keep(&p.state, p.Certificate, failure{err, err.Error()})
	}
	if hash == p.hash {
		p.state = fileState{}
		return false, nil
	}
	next, err := p.parse(certificate, key)
	if err != nil { // the files may have been replaced between two of these reads
		if certificate, key, again, readErr := p.read(); readErr == nil && again != hash {
			hash = again
			next, err = p.parse(certificate, key)
		}
	}
	if err == nil && stage(next.Leaf, c.cfg.Now()) == "has expired" {
		err = fmt.Errorf("%s: it expired at %s: renew it", p.Certificate, stamp(next.Leaf.NotAfter))
	}
	if err != nil {
		return false, c.keep(&p.state, p.Certificate, failure{err, string(hash[:])})
	}
	p.hash, p.loaded, p.state = hash, next, fileState{}
	c.metrics.reloads.WithLabelValues(resultReplaced).Inc()
	c.cfg.Logger.Info("certificate of the ingress replaced", "file", p.Certificate, "not_after", stamp(next.Leaf.NotAfter))
	return true, nil
}

// reloadAuthorities reports whether the authorities of clients were replaced.
func (c *Certificates) reloadAuthorities(a *authorities) (bool, error) {
	next, err := readAuthorities(a.path)
	if err != nil {
		return false, c.keep(&a.state, a.path, failure{err, err.Error() + string(next.hash[:])})
	}
	if next.hash == a.hash {
		a.state = fileState{}
		return false, nil
	}
	*a = next
	c.metrics.reloads.WithLabelValues(resultReplaced).Inc()
	c.cfg.Logger.Info("authorities of clients replaced", "file", a.path)
	return true, nil
}

// readAuthorities reads the authorities of clients. The hash is set unless the file cannot be
// read.
func readAuthorities(path string) (authorities, error) {
	data, err := keyfile.Read(path)
	if err != nil {
		return authorities{path: path}, err
	}
	a := authorities{path: path, hash: sha256.Sum256(data), pool: x509.NewCertPool()}
	certificates, err := keyfile.Certificates(data)
	if err != nil {
		return a, fmt.Errorf("%s: %w", path, err)
	}
	usable := 0
	for _, one := range certificates {
		if one.IsCA {
			a.pool.AddCert(one)
			usable++
			if one.NotAfter.After(a.end) {
				a.end = one.NotAfter
			}
		}
	}
	if usable == 0 {
		return a, fmt.Errorf("%s: no authority in it: a certificate that may sign others (IsCA) is needed", path)
	}
	return a, nil
}

// failure is why files are not used, and what identifies their broken state.
type failure struct {
	cause error
	state string
}

// keep records that what was read before stays in use. The lock is held.
func (c *Certificates) keep(state *fileState, file string, f failure) error {
	state.problem = fmt.Errorf("reload %s (the old content stays in use): %w", file, f.cause)
	if state.failed != f.state {
		state.failed = f.state
		c.metrics.reloads.WithLabelValues(resultFailed).Inc()
		c.cfg.Logger.Warn("certificate of the ingress not replaced, the old one stays in use", "file", file, "err", f.cause)
	}
	return state.problem
}

// publish makes the next handshakes use what was read.
func (c *Certificates) publish() {
	m := &material{}
	for _, p := range c.pairs {
		m.firstEnd = earlier(m.firstEnd, p.loaded.Leaf.NotAfter)
	}
	for _, a := range c.clients {
		m.authsEnd = earlier(m.authsEnd, a.end)
	}
	for _, site := range c.cfg.Sites {
		config := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
		for _, paths := range site.Pairs {
			config.Certificates = append(config.Certificates, c.pair(paths).loaded)
		}
		if site.ClientCA != "" {
			config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, c.authorities(site.ClientCA).pool
			config.SessionTicketsDisabled = true
			config.VerifyConnection = func(state tls.ConnectionState) error {
				if _, err := callerName(state.PeerCertificates[0]); err != nil {
					return err
				}
				return c.cfg.Admit(shown(&state))
			}
		}
		m.sites = append(m.sites, config)
	}
	c.current.Store(m)
}

// earlier returns the earlier of two times, the second if the first is zero.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// warnOfEnds warns once when a fifth of the lifetime of a certificate is left, and once more
// when it has expired.
func (c *Certificates) warnOfEnds() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.pairs {
		leaf := p.loaded.Leaf
		stage := stage(leaf, c.cfg.Now())
		key := leaf.SerialNumber.String() + stage
		if stage == "" || key == p.warned {
			continue
		}
		p.warned = key
		c.cfg.Logger.Warn("a certificate of the ingress "+stage+": renew it, the files are read again by themselves",
			"file", p.Certificate, "not_after", stamp(leaf.NotAfter))
	}
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
