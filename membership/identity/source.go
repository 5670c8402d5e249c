package identity

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// defaultInterval between two looks at the files: rotation is a matter of hours,
// and reading three small files this often costs nothing.
const defaultInterval = 5 * time.Second

// SourceConfig is how a Source works.
type SourceConfig struct {
	// Logger gets replaced certificates, failed reloads and approaching ends;
	// default: discarded.
	Logger *slog.Logger
	// Registerer gets the metrics; nil: nowhere.
	Registerer prometheus.Registerer
	// Now is the clock that certificates are judged by; default time.Now.
	Now func() time.Time
	// Interval between two looks at the files in Run; default 5 s.
	Interval time.Duration
}

// Source holds this process's certificate and key and the authorities that it
// trusts, and makes TLS configurations that always use the newest ones. All
// methods are safe for concurrent use.
type Source struct {
	files   *Files // nil: in memory, never reloaded
	cfg     SourceConfig
	metrics *metrics
	current atomic.Pointer[material]

	connections registry // open ones, judged again by Run

	reload       sync.Mutex // one reader of the files at a time; guards what follows
	certificates fileState
	deny         fileState
	warned       string // fingerprint and stage of the last warning about an end
}

// fileState is what became of the newest look at the certificate files, or at the deny
// list.
type fileState struct {
	problem error  // nil when what is on disk is in use
	failed  string // which broken state was last counted and logged
}

// NewSource reads the files and checks that others will accept what is in them.
// The error lists everything that is wrong. Files are read again by Run and
// Reload. A key file that others can write is refused, one that others can read
// is warned about.
func NewSource(files Files, cfg SourceConfig) (*Source, error) {
	s := newSource(cfg)
	s.files = &files
	content, err := files.read()
	if err != nil {
		return nil, fmt.Errorf("load certificates: %w", err)
	}
	m, parseErr := content.parse(s.cfg.Now())
	warning, err := JudgeSecretFile(files.Key)
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

// NewStaticSource is a Source that lives in memory: Run and Reload find no files
// to read.
func NewStaticSource(content PEM, cfg SourceConfig) (*Source, error) {
	s := newSource(cfg)
	m, err := content.parse(s.cfg.Now())
	if err != nil {
		return nil, fmt.Errorf("load certificates: %w", err)
	}
	if m.denyList, err = parseDenyList(content.Denied); err != nil {
		return nil, fmt.Errorf("load the deny list: %w", err)
	}
	s.start(m)
	return s, nil
}

// start puts the first material to use.
func (s *Source) start(m *material) {
	s.current.Store(m)
	s.register()
	s.warnOfDenial(m)
}

func newSource(cfg SourceConfig) *Source {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Interval <= 0 {
		cfg.Interval = defaultInterval
	}
	return &Source{cfg: cfg}
}

func (s *Source) register() {
	s.metrics = newMetrics(s.cfg.Registerer, func() float64 {
		return float64(s.current.Load().pair.Leaf.NotAfter.Unix())
	}, func() float64 {
		return float64(s.current.Load().authority.NotAfter.Unix())
	}, func() float64 {
		return float64(s.current.Load().size())
	})
}

// Claims says who this process is. They never change: a certificate with other
// claims is not taken in a reload.
func (s *Source) Claims() Claims { return s.current.Load().claims }

// Info describes the certificate in use.
func (s *Source) Info() Info { return Describe(s.current.Load().pair.Leaf, s.cfg.Now()) }

// Authority describes what our certificate rests on: of the certificates above it the
// one that ends first. When it ends nobody accepts ours any more.
func (s *Source) Authority() Info { return Describe(s.current.Load().authority, s.cfg.Now()) }

// Policy is the policy for this process in the given mode.
func (s *Source) Policy(mode Mode) Policy { return Policy{Self: s.Claims(), Mode: mode} }

// Changed returns a channel that is closed when the certificate, the authorities or
// the deny list are replaced. Take it before you look at what may change; take a new
// one after it is closed. The end of a certificate is no change: it is known before.
func (s *Source) Changed() <-chan struct{} { return s.current.Load().replaced }

// Problem says why the certificate files on disk are not in use; nil when they are.
// It is the outcome of the newest look at them.
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

// Run looks at the files every Interval until ctx ends, closes the open connections
// whose other end's certificate no longer counts, and warns of an approaching end of
// our certificate. It returns nil; run it on a goroutine of
// the caller's.
func (s *Source) Run(ctx context.Context) error {
	tick := time.NewTicker(s.cfg.Interval)
	defer tick.Stop()
	for {
		_, _ = s.Reload() // logged and counted inside, once for each broken state
		s.judgeOpen()
		s.warnOfEnd()
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// Reload reads the files now and reports whether something new is in use. With
// an error the old certificates, or the old deny list, stay in use; an error that
// stays the same is logged and counted once. Handshakes that are under way finish
// with what they began with.
//
// The content is compared, not times or sizes: this way a swapped symbolic link,
// as Kubernetes does it, and a file rewritten within one tick of its clock are
// both seen.
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

// reloadCertificates returns the material with what is in the certificate files
// now, or old.
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
	m, err := content.parse(s.cfg.Now())
	if err != nil {
		// The files may have been swapped between two of our reads.
		if again, readErr := s.files.read(); readErr == nil && again.hash() != hash {
			hash = again.hash()
			m, err = again.parse(s.cfg.Now())
		}
	}
	if err == nil && m.claims != old.claims {
		err = fmt.Errorf("the new certificate is for another identity (%s, ours is %s): restart to take it", m.claims, old.claims)
	}
	if err == nil {
		_, err = JudgeSecretFile(s.files.Key)
	}
	if err != nil {
		return old, s.keepCertificates(err, string(hash[:]))
	}
	m.denyList, m.listed = old.denyList, old.listed
	s.certificates = fileState{}
	s.metrics.reloads.WithLabelValues(resultReplaced).Inc()
	s.cfg.Logger.Info("certificates replaced", "fingerprint", Fingerprint(m.pair.Leaf), "not_after", stamp(m.pair.Leaf.NotAfter))
	return m, nil
}

// keepCertificates notes a failed reload, under the lock. State tells one broken
// state of the files from another.
func (s *Source) keepCertificates(cause error, state string) error {
	s.certificates.problem = fmt.Errorf("reload certificates (the old ones stay in use): %w", cause)
	if s.certificates.failed != state {
		s.certificates.failed = state
		s.metrics.reloads.WithLabelValues(resultFailed).Inc()
		s.cfg.Logger.Warn("certificates not replaced, the old ones stay in use", "error", cause)
	}
	return s.certificates.problem
}

// reloadDenyList returns the material with the deny list as it is now, or m.
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

// warnOfDenial says that the others refuse us. It is no error: the list is the same
// on all hosts, and ours has to be in use although we are on it.
func (s *Source) warnOfDenial(m *material) {
	if err := m.denied(m.pair.Leaf); err != nil {
		s.cfg.Logger.Warn("our own certificate is on the deny list: the others refuse it", "err", err)
	}
}

// warnOfEnd warns once when a fifth of the certificate's life is left and once
// more when it has ended.
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
	key := Fingerprint(leaf) + stage
	if stage == "" || key == s.warned {
		return
	}
	s.warned = key
	s.cfg.Logger.Warn("our certificate "+stage+": renew it, the files are read again by themselves",
		"not_after", stamp(leaf.NotAfter), "node", s.Claims().Node)
}
