package reference

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/daemon"
	"github.com/ringway/ringway/internal/gossipmetrics"
	"github.com/ringway/ringway/internal/relay"
	"github.com/ringway/ringway/internal/worker"
	"github.com/ringway/ringway/membership/identity"
)

// Metrics writes every metric that a relay or a worker registers.
func Metrics(w io.Writer) error {
	where := map[metric][]string{}
	for _, of := range []struct {
		process string
		metrics func(func(*prometheus.Registry) error) error
	}{{"relay", relayMetrics}, {"worker", workerMetrics}} {
		if err := of.metrics(func(reg *prometheus.Registry) error {
			described, err := describe(reg)
			for _, m := range described {
				if !slices.Contains(where[m], of.process) { // one with constant labels is there once for each value
					where[m] = append(where[m], of.process)
				}
			}
			return err
		}); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprint(w, generated, "# Metrics\n\n",
		"Units are base units; labels have values that the code or the catalogue bounds.\n",
		"The Go runtime's and the process's own metrics are there, too.\n\n",
		"| metric | labels | on | meaning |\n|---|---|---|---|\n"); err != nil {
		return err
	}
	all := make([]metric, 0, len(where))
	for m := range where {
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b metric) int { return strings.Compare(a.name, b.name) })
	for _, m := range all {
		if _, err := fmt.Fprintf(w, "| `%s` | %s | %s | %s |\n", m.name, m.labels, strings.Join(where[m], ", "), strings.ReplaceAll(m.help, "|", "\\|")); err != nil {
			return err
		}
	}
	return writeSources(w)
}

type metric struct{ name, labels, help string }

// relayMetrics makes a relay on free ports, hands what it registered to look, and never
// runs it.
func relayMetrics(look func(*prometheus.Registry) error) error {
	s := relay.DefaultSettings()
	s.Cluster, s.Environment, s.ID = "reference", "reference", "reference"
	s.GossipAddr, s.IngressAddr, s.PeerAddr, s.AdminAddr = anyPort, anyPort, anyPort, anyPort
	s.Circuit.Mode = "on" // circuits that are off register nothing, nor does tracing
	s.OTLPEndpoint = "http://127.0.0.1:4318"
	s.SessionCookies = []string{"reference=reference"}
	reg := processMetrics()
	cfg, err := s.Config(slog.New(slog.DiscardHandler), reg)
	if err != nil {
		return err
	}
	if cfg.Membership.Identity, err = certificate(reg, identity.RoleRelay); err != nil {
		return err
	}
	r, err := relay.New(cfg)
	if err != nil {
		return err
	}
	return errors.Join(look(reg), r.Close())
}

// workerMetrics does the same with a worker.
func workerMetrics(look func(*prometheus.Registry) error) error {
	s := worker.DefaultSettings()
	s.Cluster, s.Environment, s.ID, s.Services = "reference", "reference", "reference", []string{"s=127.0.0.1:1"}
	s.GossipAddr, s.AdminAddr, s.SidecarAddr = anyPort, anyPort, anyPort
	reg := processMetrics()
	cfg, err := s.Config(slog.New(slog.DiscardHandler), reg)
	if err != nil {
		return err
	}
	if cfg.Membership.Identity, err = certificate(reg, identity.RoleWorker); err != nil {
		return err
	}
	a, err := worker.New(cfg)
	if err != nil {
		return err
	}
	return errors.Join(look(reg), a.Close())
}

// processMetrics are those of the process, which the command line registers.
func processMetrics() *prometheus.Registry {
	reg := prometheus.NewRegistry()
	reg.MustRegister(daemon.BuildInfo())
	gossipmetrics.New(reg)
	return reg
}

// certificate is a member's, whose source registers its metrics, too. A worker has
// a sidecar only with one.
func certificate(reg prometheus.Registerer, role identity.Role) (*identity.Source, error) {
	authority, err := identity.NewAuthority(identity.AuthorityConfig{Name: "reference", Validity: 2 * time.Hour})
	if err != nil {
		return nil, err
	}
	claims := identity.Claims{Role: role, Cluster: "reference", Environment: "reference", Node: "reference"}
	cert, key, err := authority.Issue(claims, time.Hour)
	if err != nil {
		return nil, err
	}
	return identity.NewStaticSource(identity.PEM{Certificate: cert, Key: key, Authorities: authority.CertificatePEM()}, identity.SourceConfig{Registerer: reg})
}

const anyPort = "127.0.0.1:0"

// descText is the only form in which a Desc shows what it holds.
var descText = regexp.MustCompile(`^Desc\{fqName: "([^"]*)", help: "((?:[^"\\]|\\.)*)", unit: "[^"]*", constLabels: \{([^}]*)\}, variableLabels: \{([^}]*)\}`)

var (
	labelNames = regexp.MustCompile(`[a-z_]+`)
	constLabel = regexp.MustCompile(`([a-z_]+)="(?:[^"\\]|\\.)*"`)
)

func describe(c prometheus.Collector) ([]metric, error) {
	descs := make(chan *prometheus.Desc)
	go func() {
		defer close(descs)
		c.Describe(descs)
	}()
	var out []metric
	var err error
	for d := range descs {
		parts := descText.FindStringSubmatch(d.String())
		if parts == nil {
			err = fmt.Errorf("a metric's description has an unknown form: %s", d)
			continue
		}
		names := labelNames.FindAllString(parts[4], -1)
		for _, label := range constLabel.FindAllStringSubmatch(parts[3], -1) {
			names = append(names, label[1])
		}
		labels := "–"
		if len(names) > 0 {
			labels = "`" + strings.Join(names, "`, `") + "`"
		}
		out = append(out, metric{parts[1], labels, strings.ReplaceAll(parts[2], `\"`, `"`)})
	}
	return out, err
}
