package identity

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/keyfile"
)

// defaultInterval is the default time between two reads of the files: rotation takes hours,
// and reading three small files this often costs almost nothing.
const defaultInterval = 5 * time.Second

// SourceConfig holds the settings of a Source.
type SourceConfig struct {
	// Logger receives lines about replaced certificates, failed reloads and approaching expiry;
	// default: discarded.
	Logger *slog.Logger
	// Registerer receives the metrics; nil: no metrics.
	Registerer prometheus.Registerer
	// Now is the clock for checking certificates; default time.Now.
	Now func() time.Time
	// Interval is the time between two reads of the files in Run; default 5 s.
	Interval time.Duration
	// Template is where the SPIFFE ID of a certificate has its claims, for authorities that do not
	// issue names ringway://…: spiffe://TRUST-DOMAIN/ and a path of fixed elements and {environment},
	// {cluster}, {role} and {node}, each once and a whole element, in any order. Default: none. With a
	// template every certificate, of this process and of peers, needs a matching ID as its only URI
	// name: names ringway://… do not count, so that no certificate names its holder twice. Such
	// a certificate names no datacenter and no services. All members need the same template.
	Template string
}

// Source holds this process's certificate and key and its trusted authorities, and makes
// TLS configurations that always use the newest ones. All methods are safe for concurrent
// use.
type Source struct {
	files    *Files // nil: in memory, never reloaded
	cfg      SourceConfig
	template *template
	metrics  *metrics
	current  atomic.Pointer[material]

	connections registry // open connections, checked again by Run

	reload       sync.Mutex // one reader of the files at a time; guards the fields below
	certificates fileState
	deny         fileState
	warned       string // fingerprint and stage of the last warning about expiry
}

// fileState is the result of the newest read of the certificate files, or of the deny list.
type fileState struct {
	problem error  // nil if the content on disk is in use
	failed  string // the broken state that was last counted and logged
}

// NewSource reads the files and checks that other members will accept them. The error lists
// all problems. Run and Reload read the files again. A key file that others can write is
// refused; one that others can read causes a warning.
func NewSource(files Files, cfg SourceConfig) (*Source, error) {
	s, err := newSource(cfg)
	if err != nil {
		return nil, err
	}
	s.files = &files
	content, err := files.read()
	if err != nil {
		return nil, fmt.Errorf("load certificates: %w", err)
	}
	m, parseErr := content.parse(s.cfg.Now(), s.template)
	warning, err := keyfile.CheckAccess(files.Key)
	if err := errors.Join(parseErr, err); err != nil {
		return nil, fmt.Errorf("load certificates from %s, %s and %s: %w", files.Certificate, files.Key, files.Authorities, err)
	}
	if m.denyList, m.listed, err = files.readDenyList(); err != nil {
		return nil, err
	}
	if warning != "" {
		s.cfg.Logger.Warn("key file " + warning)
	}
	s.start(m)
	return s, nil
}

// NewStaticSource returns a Source in memory: Run and Reload have no files to read.
func NewStaticSource(content PEM, cfg SourceConfig) (*Source, error) {
	s, err := newSource(cfg)
	if err != nil {
		return nil, err
	}
	m, err := content.parse(s.cfg.Now(), s.template)
	if err != nil {
		return nil, fmt.Errorf("load certificates: %w", err)
	}
	if m.denyList, err = parseDenyList(content.Denied); err != nil {
		return nil, fmt.Errorf("load the deny list: %w", err)
	}
	s.start(m)
	return s, nil
}

// start puts the first material into use.
func (s *Source) start(m *material) {
	s.current.Store(m)
	s.register()
	s.warnOfDenial(m)
}

func newSource(cfg SourceConfig) (*Source, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Interval <= 0 {
		cfg.Interval = defaultInterval
	}
	t, err := parseTemplate(cfg.Template)
	if err != nil {
		return nil, refusedTemplate(cfg.Template, err)
	}
	return &Source{cfg: cfg, template: t}, nil
}

func (s *Source) register() {
	s.metrics = newMetrics(s.cfg.Registerer, func() float64 {
		return float64(s.current.Load().pair.Leaf.NotAfter.Unix())
	}, func() float64 {
		return float64(s.current.Load().authority.NotAfter.Unix())
	}, func() float64 {
		return float64(s.current.Load().size())
	}, map[string]func() error{"certificate": s.Problem, "deny_list": s.DenyProblem})
}

// Claims returns the identity of this process. A reload changes only its services: it refuses
// a certificate that differs in any other claim.
func (s *Source) Claims() Claims { return s.current.Load().claims }

// FromCertificate reads the claims of a certificate where this process expects them: in its SPIFFE
// ID if there is a template, else as the function [FromCertificate] does. It does not check the
// signature or the validity.
func (s *Source) FromCertificate(cert *x509.Certificate) (Claims, error) {
	return s.template.claims(cert)
}

// Info describes the certificate in use.
func (s *Source) Info() Info { return describe(s.current.Load().pair.Leaf, s.cfg.Now(), s.template) }

// Authority describes the certificate above ours that expires first. After that no member
// accepts our certificate any more.
func (s *Source) Authority() Info {
	return describe(s.current.Load().authority, s.cfg.Now(), s.template)
}

// Policy returns the policy of this process for the given mode.
func (s *Source) Policy(mode Mode) Policy { return Policy{Self: s.Claims(), Mode: mode} }

// Issued reports whether an authority of the fleet has issued the first of these certificates, with the
// others in between. The error is why the fleet refuses such a certificate, whatever it claims. Of another
// authority, such as one that the fleet has replaced, it refuses what its deny list has.
func (s *Source) Issued(presented []*x509.Certificate) (bool, error) {
	t := trust{s.current.Load(), s.cfg.Now()}
	_, err := t.check(presented, x509.ExtKeyUsageClientAuth)
	if reason, _ := reasonOf(err); reason == reasonUnknownAuthority {
		return false, t.refuseDenied(presented[0])
	}
	return true, err
}

// Changed returns a channel that is closed when the certificate, the authorities or the
// deny list are replaced. Get the channel before reading the values that may change; get a
// new one after it is closed. The expiry of a certificate does not close it.
func (s *Source) Changed() <-chan struct{} { return s.current.Load().replaced }

// Problem returns why the certificate files on disk are not in use, according to the newest
// read; nil if they are.
func (s *Source) Problem() error {
	s.reload.Lock()
	defer s.reload.Unlock()
	return s.certificates.problem
}

// DenyProblem is Problem for the deny list.
func (s *Source) DenyProblem() error {
	s.reload.Lock()
	defer s.reload.Unlock()
	return s.deny.problem
}

// Run reads the files every Interval until ctx ends, closes open connections whose peer's
// certificate is not valid any more, and warns before our certificate expires. It returns
// nil. It blocks: the caller owns the goroutine.
func (s *Source) Run(ctx context.Context) error {
	tick := time.NewTicker(s.cfg.Interval)
	defer tick.Stop()
	for {
		_, _ = s.Reload() // Reload logs and counts each broken state once
		s.judgeOpen()
		s.warnOfEnd()
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// Reload reads the files now and reports whether new content is in use. If it returns an
// error, the old certificates, or the old deny list, stay in use; a repeated error is
// logged and counted only once. Running handshakes finish with the material with which they
// began.
//
// Reload compares the content, not times or sizes, so that it detects both a swapped
// symbolic link, as used by Kubernetes, and a file rewritten within one tick of the clock.
func (s *Source) Reload() (replaced bool, err error) {
	if s.files == nil {
		return false, nil
	}
	s.reload.Lock()
	defer s.reload.Unlock()
	old := s.current.Load()
	next, certErr := s.reloadCertificates(old)
	next, denyErr := s.reloadDenyList(next)
	if next != old {
		next.trusts = old.trusts
		if next.trusted != old.trusted || next.listed != old.listed {
			next.trusts++
		}
		s.current.Store(next)
		close(old.replaced)
		s.warnOfDenial(next)
	}
	return next != old, errors.Join(certErr, denyErr)
}

// reloadCertificates returns the material with the current content of the certificate
// files, or old.
func (s *Source) reloadCertificates(old *material) (*material, error) {
	content, err := s.files.read()
	if err != nil {
		return old, s.keepCertificates(err, err.Error())
	}
	hash := content.hash()
	if hash == old.hash {
		s.certificates = fileState{}
		return old, nil
	}
	m, err := content.parse(s.cfg.Now(), s.template)
	if err != nil {
		// The files may have been swapped between two of these reads.
		if again, readErr := s.files.read(); readErr == nil && again.hash() != hash {
			hash = again.hash()
			m, err = again.parse(s.cfg.Now(), s.template)
		}
	}
	if err == nil && m.claims.holder() != old.claims.holder() {
		err = fmt.Errorf("the new certificate is for another identity (%s, ours is %s): restart to take it", m.claims, old.claims)
	}
	if err == nil {
		_, err = keyfile.CheckAccess(s.files.Key)
	}
	if err != nil {
		return old, s.keepCertificates(err, string(hash[:]))
	}
	m.denyList, m.listed = old.denyList, old.listed
	s.certificates = fileState{}
	s.metrics.reloads.WithLabelValues(resultReplaced).Inc()
	s.cfg.Logger.Info("certificates replaced", "fingerprint", fingerprint(m.pair.Leaf), "not_after", stamp(m.pair.Leaf.NotAfter))
	return m, nil
}

// keepCertificates records a failed reload, with the lock held. state identifies the broken
// state of the files.
func (s *Source) keepCertificates(cause error, state string) error {
	s.certificates.problem = fmt.Errorf("reload certificates (the old ones stay in use): %w", cause)
	if s.certificates.failed != state {
		s.certificates.failed = state
		s.metrics.reloads.WithLabelValues(resultFailed).Inc()
		s.cfg.Logger.Warn("certificates not replaced, the old ones stay in use", "error", cause)
	}
	return s.certificates.problem
}

// reloadDenyList returns the material with the current deny list, or m.
func (s *Source) reloadDenyList(m *material) (*material, error) {
	list, listed, err := s.files.readDenyList()
	if err != nil {
		s.deny.problem = fmt.Errorf("%w (the old list stays in use)", err)
		if state := err.Error(); s.deny.failed != state {
			s.deny.failed = state
			s.metrics.denyReloads.WithLabelValues(resultFailed).Inc()
			s.cfg.Logger.Warn("deny list not replaced, the old one stays in use", "err", err)
		}
		return m, s.deny.problem
	}
	s.deny = fileState{}
	if listed == m.listed {
		return m, nil
	}
	next := *m
	next.denyList, next.listed, next.replaced = list, listed, make(chan struct{})
	s.metrics.denyReloads.WithLabelValues(resultReplaced).Inc()
	s.cfg.Logger.Info("deny list replaced", "serials", len(list.serials), "nodes", len(list.nodes))
	return &next, nil
}

// warnOfDenial warns if our own certificate is on the deny list. This is not an error: the
// list is the same on all hosts, and must be used even though it contains our certificate.
func (s *Source) warnOfDenial(m *material) {
	if err := m.refuseDenied(m.pair.Leaf); err != nil {
		s.cfg.Logger.Warn("our own certificate is on the deny list: the others refuse it", "err", err)
	}
}

// warnOfEnd warns once when a fifth of the certificate's lifetime is left, and once more
// when it has expired.
func (s *Source) warnOfEnd() {
	s.reload.Lock()
	defer s.reload.Unlock()
	leaf := s.current.Load().pair.Leaf
	left := leaf.NotAfter.Sub(s.cfg.Now())
	stage := ""
	switch {
	case left < 0:
		stage = "expired"
	case left < leaf.NotAfter.Sub(leaf.NotBefore)/5:
		stage = "expires soon"
	}
	key := fingerprint(leaf) + stage
	if stage == "" || key == s.warned {
		return
	}
	s.warned = key
	s.cfg.Logger.Warn("our certificate "+stage+": renew it, the files are read again by themselves",
		"not_after", stamp(leaf.NotAfter), "node", s.Claims().Node)
}

// maxNamed limits the nodes in one log line.
const maxNamed = 10
