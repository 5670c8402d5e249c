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

	reload  sync.Mutex // one reader of the files at a time; guards what follows
	problem error      // of the newest reload; nil when the files are in use
	failed  string     // what problem was last counted and logged
	warned  string     // fingerprint and stage of the last warning about an end
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
	warning, err := keyPermission(files.Key)
	if err := errors.Join(parseErr, err); err != nil {
		return nil, fmt.Errorf("load certificates from %s, %s and %s: %w", files.Certificate, files.Key, files.Authorities, err)
	}
	s.current.Store(m)
	if warning != "" {
		s.cfg.Logger.Warn(warning)
	}
	s.register()
	return s, nil
}

// NewStaticSource is a Source that lives in memory: Run and Reload find nothing
// to do.
func NewStaticSource(content PEM, cfg SourceConfig) (*Source, error) {
	s := newSource(cfg)
	m, err := content.parse(s.cfg.Now())
	if err != nil {
		return nil, fmt.Errorf("load certificates: %w", err)
	}
	s.current.Store(m)
	s.register()
	return s, nil
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

// Problem says why the files on disk are not in use; nil when they are. It is
// the outcome of the newest look at them.
func (s *Source) Problem() error {
	s.reload.Lock()
	defer s.reload.Unlock()
	return s.problem
}

// Run looks at the files every Interval until ctx ends, and warns of an
// approaching end of the certificate. It returns nil; run it on a goroutine of
// the caller's.
func (s *Source) Run(ctx context.Context) error {
	tick := time.NewTicker(s.cfg.Interval)
	defer tick.Stop()
	for {
		_, _ = s.Reload() // logged and counted inside, once for each broken state
		s.warnOfEnd()
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// Reload reads the files now and reports whether something new is in use. With
// an error the old certificates stay in use; an error that stays the same is
// logged and counted once. Handshakes that are under way finish with what they
// began with, and open connections are not touched.
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
	content, err := s.files.read()
	if err != nil {
		return false, s.keepOld(err, err.Error())
	}
	hash, old := content.hash(), s.current.Load()
	if hash == old.hash {
		s.problem, s.failed = nil, ""
		return false, nil
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
		_, err = keyPermission(s.files.Key)
	}
	if err != nil {
		return false, s.keepOld(err, string(hash[:]))
	}
	s.current.Store(m)
	s.problem, s.failed = nil, ""
	s.metrics.reloads.WithLabelValues(resultReplaced).Inc()
	s.cfg.Logger.Info("certificates replaced", "fingerprint", Fingerprint(m.pair.Leaf), "not_after", stamp(m.pair.Leaf.NotAfter))
	return true, nil
}

// keepOld notes a failed reload, under the lock. State tells one broken state of
// the files from another.
func (s *Source) keepOld(cause error, state string) error {
	s.problem = fmt.Errorf("reload certificates (the old ones stay in use): %w", cause)
	if s.failed != state {
		s.failed = state
		s.metrics.reloads.WithLabelValues(resultFailed).Inc()
		s.cfg.Logger.Warn("certificates not replaced, the old ones stay in use", "error", cause)
	}
	return s.problem
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
