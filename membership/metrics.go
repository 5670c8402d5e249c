package membership

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/ringway/ringway/membership/identity"
)

// metrics holds every metric of the package. No label value comes from a peer.
type metrics struct {
	members    *prometheus.GaugeVec
	events     *prometheus.CounterVec
	refusals   *prometheus.CounterVec
	dropped    *prometheus.CounterVec
	joins      *prometheus.CounterVec
	duplicates prometheus.Counter
	snapshots  prometheus.Counter
	broadcasts prometheus.GaugeFunc
	problems   prometheus.Counter
	degraded   prometheus.Gauge
	unproven   *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer, queued func() float64) *metrics {
	f := promauto.With(reg)
	m := &metrics{
		members: f.NewGaugeVec(prometheus.GaugeOpts{
			Name: "ringway_membership_members", Help: "Live members in the newest snapshot, this node included, by role.",
		}, []string{"role"}),
		events: f.NewCounterVec(prometheus.CounterOpts{
			Name: "ringway_membership_events_total", Help: "Members that joined, left, failed, were superseded by a newer instance of the same id, changed, or lost their proof (unproven): their certificate ended or was denied; outdated is news of an instance older than the one known.",
		}, []string{"event"}),
		refusals: f.NewCounterVec(prometheus.CounterOpts{
			Name: "ringway_membership_refusals_total", Help: "Streams refused in the hello, by direction and the field that differed, and members refused by their metadata; timeout, too_many and too_many_from_source: closed before they had said who they are, because that took too long or newer ones needed the place.",
		}, []string{"direction", "reason"}),
		dropped: f.NewCounterVec(prometheus.CounterOpts{
			Name: "ringway_membership_packets_dropped_total", Help: "Gossip packets and messages dropped before they were used, by reason.",
		}, []string{"reason"}),
		joins: f.NewCounterVec(prometheus.CounterOpts{
			Name: "ringway_membership_joins_total", Help: "Attempts to join through a seed or a lost member, by result.",
		}, []string{"result"}),
		duplicates: f.NewCounter(prometheus.CounterOpts{
			Name: "ringway_membership_duplicate_ids_total", Help: "Times another live process with this node's id and another address was seen.",
		}),
		degraded: f.NewGauge(prometheus.GaugeOpts{
			Name: "ringway_membership_degraded", Help: "1 while the newest snapshot is degraded: this node may be cut off and keeps its peers.",
		}),
		snapshots: f.NewCounter(prometheus.CounterOpts{
			Name: "ringway_membership_snapshots_total", Help: "Snapshots published.",
		}),
		broadcasts: f.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "ringway_membership_broadcasts_queued", Help: "Broadcasts waiting to be gossiped.",
		}, queued),
		unproven: f.NewCounterVec(prometheus.CounterOpts{
			Name: "ringway_membership_unproven_total", Help: "News of instances that was not believed because nothing proves it, by reason. With certificates only.",
		}, []string{"reason"}),
		problems: f.NewCounter(prometheus.CounterOpts{
			Name: "ringway_membership_gossip_problems_total", Help: "Warnings and errors that memberlist logged.",
		}),
	}
	m.initialise()
	return m
}

// initialise makes every series of the counters, at 0: rates do not see the first
// event of a series that begins with it.
func (m *metrics) initialise() {
	for _, event := range eventNames {
		m.events.WithLabelValues(event)
	}
	for _, direction := range []string{inbound, outbound} {
		for _, field := range refusalFields {
			m.refusals.WithLabelValues(direction, reasonOf(field))
		}
		for _, reason := range identity.Reasons() {
			m.refusals.WithLabelValues(direction, string(reason))
		}
	}
	for _, reason := range unprovenReasons {
		m.unproven.WithLabelValues(reason)
	}
	for _, reason := range identity.StrangerReasons() {
		m.refusals.WithLabelValues(inbound, reason)
	}
	for _, reason := range dropReasons {
		m.dropped.WithLabelValues(reason)
	}
	for _, result := range []string{joinOK, joinRefused, joinFailed} {
		m.joins.WithLabelValues(result)
	}
}

// eventNames are what the table and the proofs report.
var eventNames = [...]string{"joined", "left", "failed", "superseded", "changed", "outdated", "unproven"}

// Why packets and messages are dropped.
const (
	dropLabel         = "label"
	dropQueueFull     = "queue_full"
	dropMessageFormat = "message_format"
	dropMessageTopic  = "message_topic"
	dropMetadata      = "metadata"
	dropBadAddress    = "bad_address"
	dropWrite         = "write"
	dropEvicted       = "broadcast_evicted" // of ours, from a full queue
	// With certificates only.
	dropUnsigned    = "unsigned"    // not in the form that signed packets have
	dropSeal        = "seal"        // sealed with a gossip key that is not installed
	dropStranger    = "stranger"    // of a sender that has not shown a certificate
	dropCertificate = "certificate" // of a sender whose certificate is refused
	dropSignature   = "signature"   // forged or damaged
	dropReplayed    = "replayed"    // seen before, or overtaken by too many
	dropStale       = "stale"       // under way for too long
	dropIncarnation = "incarnation" // a claim that no honest member makes
	dropUnproven    = "unproven"    // news of an instance that is not proven
	dropForged      = "forged"      // a notice that its author did not sign
	dropTooMany     = "too_many"    // beyond a bound
)

var dropReasons = [...]string{
	dropLabel, dropQueueFull, dropMessageFormat, dropMessageTopic, dropMetadata, dropBadAddress, dropWrite, dropEvicted,
	dropUnsigned, dropSeal, dropStranger, dropCertificate, dropSignature, dropReplayed, dropStale,
	dropIncarnation, dropUnproven, dropForged, dropTooMany,
}

// The results of attempts to join.
const (
	joinOK      = "ok"
	joinRefused = "refused"
	joinFailed  = "failed"
)

// reasonOf is a field as a label value.
func reasonOf(field string) string { return strings.ReplaceAll(field, " ", "_") }

func (m *metrics) refused(direction, field string) {
	m.refusals.WithLabelValues(direction, reasonOf(field)).Inc()
}
func (m *metrics) packetDropped(reason string) { m.dropped.WithLabelValues(reason).Inc() }

func (m *metrics) published(s *Snapshot) {
	m.snapshots.Inc()
	m.degraded.Set(0)
	if s.Degraded() {
		m.degraded.Set(1)
	}
	for _, role := range roles {
		m.members.WithLabelValues(string(role)).Set(float64(len(s.WithRole(role))))
	}
}
