package docgen

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/process"
	"github.com/ringway/ringway/internal/relay"
	"github.com/ringway/ringway/internal/worker"
	"github.com/ringway/ringway/membership/identity"
)

// Metrics writes the reference of all metrics that a relay or a worker registers.
func Metrics(w io.Writer) error {
	where := map[metric][]string{}
	for _, of := range []struct {
		process string
		metrics func(func(*prometheus.Registry) error) error
	}{{"relay", relayMetrics}, {"worker", workerMetrics()}, {"worker", workerMetrics("127.0.0.1:1")}} {
		if err := of.metrics(func(reg *prometheus.Registry) error {
			described, err := describe(reg)
			for _, m := range described {
				if !slices.Contains(where[m], of.process) { // a metric with constant labels occurs once for each value
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
		"The Go runtime's and the process's own metrics are there, too. A worker has only what\n"+
			"changes at `/metrics`, and all at `/metrics?all`.\n\n",
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

// relayMetrics builds a relay on free ports without running it, and passes its registry to
// look.
func relayMetrics(look func(*prometheus.Registry) error) error {
	s := relay.DefaultSettings()
	s.Cluster, s.Environment, s.ID = "reference", "reference", "reference"
	s.GossipAddr, s.IngressAddrs, s.PeerAddr, s.AdminAddr = anyPort, []string{"tls://" + anyPort}, anyPort, anyPort
	dir, err := os.MkdirTemp("", "ringway-reference-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // a directory for temporary files
	pair := filepath.Join(dir, "ingress.pem")
	if err := selfSigned(pair); err != nil {
		return err
	}
	s.IngressTLSCerts, s.IngressTLSKeys, s.IngressClientCA = []string{pair}, []string{pair}, pair
	s.Circuit.Mode = "on" // circuits and tracing register metrics only if enabled
	s.Tracing.Endpoint = "http://127.0.0.1:4318"
	s.SessionCookies.Set("reference=reference")
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

// selfSigned writes a certificate of an ingress, which is also its own authority, and its key.
func selfSigned(path string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"reference.test"}, NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return err
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return os.WriteFile(path, slices.Concat(
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded})), 0o600)
}

// workerMetrics does the same with a worker, attached or not.
func workerMetrics(attach ...string) func(look func(*prometheus.Registry) error) error {
	return func(look func(*prometheus.Registry) error) error { return metricsOfWorker(attach, look) }
}

func metricsOfWorker(attach []string, look func(*prometheus.Registry) error) error {
	s := worker.DefaultSettings()
	s.Attach = attach
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

// processMetrics returns the metrics of the process, which the command line registers.
func processMetrics() *prometheus.Registry {
	reg := prometheus.NewRegistry()
	reg.MustRegister(process.BuildInfo())
	process.NewOutput(process.OutputConfig{Out: io.Discard, Registerer: reg}).Close()
	process.NewGossipSink(reg)
	return reg
}

// certificate returns the certificate of a member; its source registers metrics, too. A
// worker has a sidecar only with a certificate.
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

// descText parses Desc.String, the only access to the fields of a Desc.
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

// source maps one metric of the systems that Ringway's designs come from to Ringway's
// metrics.
type source struct {
	// Row is the row of docs/reference/sources.md that describes the metric.
	Row string
	// Theirs is the name there, with its labels.
	Theirs string
	// Ours are the metrics with the same information, maybe with one label value. Empty:
	// there is none, and Note has the reason.
	Ours []string
	// Note describes the difference.
	Note string
}

const (
	perPeer     = "a label for each peer has no bound; `relay services SERVICE` and `GET /api/v1/services/{name}` show it"
	noClock     = "of one in about 1024 picks: two clock reads cost more than the pick"
	ownInstance = "where it is measured, Prometheus adds (`instance`)"
)

// sources lists all metrics in the documents of those systems, in their order.
var sources = []source{
	{"HS-G", "discovery_dns_lookups_total{datacenter,result}", []string{"ringway_discovery_dns_lookups_total"}, ownInstance},
	{"HS-G", "discovery_dns_cache_hits_total{type}", []string{"ringway_discovery_dns_cache_hits_total"}, "one type more: stale"},
	{"HS-G", "discovery_dns_resolution_duration_ms{datacenter}", []string{"ringway_discovery_dns_resolution_duration_seconds"}, "seconds"},
	{"HS-G", "discovery_candidate_set_size{role,datacenter}", nil, "it is 8, or all where there are fewer; `ringway_membership_members` counts those it is chosen from"},
	{"HS-G", "discovery_candidate_set_changes_total{reason}", []string{"ringway_pool_candidate_changes_total"}, ""},
	{"HS-G", "discovery_locality_tier_selected_total{tier}", []string{"ringway_pool_locality_tier_selected_total"}, ""},
	{"HS-G", "discovery_selection_duration_ms", []string{"ringway_relay_pick_duration_seconds"}, noClock},
	{"HS-G", "discovery_pool_connections{state,role}", []string{"ringway_pool_connections"}, "pools are of relays only, so no role"},
	{"HS-G", "discovery_pool_promotions_total{from_state,to_state}", []string{"ringway_pool_promotions_total"}, "there is one promotion, from backup to primary"},
	{"HS-G", "discovery_pool_evictions_total{reason}", []string{"ringway_pool_evictions_total", "ringway_selection_evictions_total"}, "of relays from a pool, of workers from a range"},
	{"HS-G", "discovery_peer_ewma_latency_ms{peer_id,datacenter}", nil, perPeer},
	{"HS-G", "discovery_peer_error_rate{peer_id}", nil, perPeer},
	{"HS-G", "discovery_cluster_id_rejections_total{expected,received}", []string{`ringway_membership_refusals_total{reason="cluster"}`, `ringway_identity_refusals_total{reason="cluster"}`}, "without the ids: a stranger could make as many series as it likes; the log has them"},
	{"HS-G", "discovery_environment_id_rejections_total{expected,received}", []string{`ringway_membership_refusals_total{reason="environment"}`, `ringway_identity_refusals_total{reason="environment"}`}, "the same"},
	{"HS-G", "discovery_role_rejections_total{initiator_role,target_role}", []string{`ringway_identity_refusals_total{reason="matrix"}`, `ringway_identity_refusals_total{reason="role"}`}, "the roles are in the log"},
	{"HS-G", "snapshot: queries, hits, misses, negative hits, failures, average", []string{"ringway_discovery_dns_lookups_total", "ringway_discovery_dns_cache_hits_total", "ringway_discovery_dns_resolution_duration_seconds"}, ""},
	{"HS-G", "snapshot: selections in all, balanced, by tier", []string{"ringway_relay_requests_total", "ringway_selection_picks_total", "ringway_pool_locality_tier_selected_total"}, ""},
	{"HS-G", "snapshot: connections active, idle, created, closed, failed", []string{"ringway_pool_connections", "ringway_pool_connect_failures_total", "ringway_peering_links", "ringway_peering_events_total"}, ""},
	{"HS-G", "snapshot: sticky in all, healthy, evictions", nil, "`bindings` in `GET /api/v1/services/{name}` are the keys that stick to a relay now"},
	{"HS-G", "snapshot: peers by health", nil, "`relay services SERVICE` and `GET /api/v1/services/{name}` show the health of each"},
	{"HS-G", "snapshot: average, p50, p99 of 1000 latencies", []string{"ringway_relay_request_duration_seconds"}, "a histogram, so that fleets can be added up"},

	{"RV-M2", "envoy_lb_allocation_total{namespace_id,pool_name,strategy}", []string{`ringway_selection_picks_total{result="picked"}`}, "picks by p2c are what remains of `ringway_relay_requests_total`"},
	{"RV-M2", "envoy_lb_no_envoy_available_total{namespace_id,pool_name,strategy}", []string{"ringway_selection_picks_total", `ringway_relay_rejections_total{code="no_endpoint"}`}, "with the reason"},
	{"RV-M2", "envoy_lb_scan_depth{namespace_id,pool_name,strategy}", []string{"ringway_selection_scan_depth"}, ""},
	{"RV-M2", "envoy_lb_wrap_total{namespace_id,pool_name,strategy}", []string{"ringway_selection_wraps_total"}, ""},
	{"RV-M2", "envoy_lb_alloc_duration_seconds{namespace_id,pool_name,strategy}", []string{"ringway_relay_pick_duration_seconds"}, noClock},
	{"RV-M3", "envoy_lb_samples_effective{namespace_id,pool_name}", []string{"ringway_selection_samples_effective"}, ""},
	{"RV-M3", "envoy_lb_sample_dedupe_total{namespace_id,pool_name}", []string{"ringway_selection_sample_dedupes_total"}, ""},
	{"RV-M3", "envoy_lb_tied_min_total{namespace_id,pool_name}", []string{"ringway_selection_ties_total"}, ""},
	{"RV-M4", "envoy_lb_scan_circuit_breaker_total{namespace_id,pool_name,strategy}", []string{"ringway_selection_scan_budget_exhausted_total"}, ""},
	{"RV-M5", "envoy_expire_scheduler_enqueued_total{result}", []string{"ringway_expiry_observations_total"}, ""},
	{"RV-M5", "envoy_expire_scheduler_completed_total{result}", []string{"ringway_expiry_outcomes_total"}, "fresh and already expired are separate results"},
	{"RV-M5", "envoy_expire_scheduler_in_flight", []string{"ringway_expiry_running"}, ""},
	{"RV-M5", "envoy_expire_scheduler_pending", []string{"ringway_expiry_pending"}, ""},
	{"RV-M5", "envoy_expire_scheduler_duration_seconds", []string{"ringway_expiry_duration_seconds"}, "waiting included, as there"},
	{"RV-M6", "the label strategy", []string{"ringway_selection_picks_total"}, "eight names, from the code"},

	{"HB-F", "services.<service>.peers", []string{"ringway_peering_links", "ringway_relay_coverage_min_relays"}, "by service in `relay services`"},
	{"HB-F", "services.<service>.connections.in, .out, .any", []string{"ringway_peering_links", "ringway_relay_forward_links", "ringway_relay_connections_total"}, "connections of clients belong to no service"},
	{"HB-F", "circuits.<state>.*", []string{"ringway_circuits", "ringway_circuit_transitions_total"}, ""},
	{"HB-F", "rate-limiting.*", []string{"ringway_relay_rate_limited_requests_total"}, "by what the limit counts"},
	{"HB-F", "health", []string{"ringway_ready"}, "and `/healthz`, `/readyz`"},
	{"HB-F", "rps_counters", []string{"ringway_relay_requests_total"}, "a rate is the reader's to take"},

	{"XM-19", "xmtp_gateway_publish_duration_seconds{originator_id}", []string{"ringway_relay_request_duration_seconds"}, "not by node"},
	{"XM-19", "…messages_originated", []string{"ringway_relay_requests_total"}, "not by node"},
	{"XM-19", "…failed_attempts_to_publish_to_node_via_banlist", []string{"ringway_relay_retries_total"}, "also of requests that failed in the end, with the reason"},
	{"XM-19", "…get_nodes_available_nodes", []string{"ringway_advertise_endpoints", "ringway_membership_members"}, ""},
}

// writeSources writes the table from their names to Ringway's.
func writeSources(w io.Writer) error {
	if _, err := fmt.Fprint(w, "\n## Other names\n\n",
		"What the systems that the designs come from measure, by the rows of [sources.md](sources.md), and where it is here.\n\n",
		"| row | there | here | |\n|---|---|---|---|\n"); err != nil {
		return err
	}
	for _, s := range sources {
		ours := "none"
		if len(s.Ours) > 0 {
			ours = "`" + strings.Join(s.Ours, "`, `") + "`"
		}
		if _, err := fmt.Fprintf(w, "| %s | %s | %s | %s |\n", s.Row, theirs(s.Theirs), ours, s.Note); err != nil {
			return err
		}
	}
	return nil
}

// theirs formats names as code and leaves descriptions unchanged.
func theirs(name string) string {
	if strings.Contains(name, " ") {
		return name
	}
	return "`" + name + "`"
}
