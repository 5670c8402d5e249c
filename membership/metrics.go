package membership

import (
	"bytes"
	"context"
	"log"
	"log/slog"
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/handshake"
	"github.com/ringway/ringway/internal/metric"
	"github.com/ringway/ringway/membership/identity"
	"github.com/ringway/ringway/membership/internal/trust"
)

// metrics holds every metric of the package. No label contains data of a peer.
type metrics struct {
	members    *prometheus.GaugeVec
	events     *prometheus.CounterVec
	refusals   *prometheus.CounterVec
	dropped    *prometheus.CounterVec
	joins      *prometheus.CounterVec
	duplicates atomic.Uint64
	snapshots  prometheus.Counter
	problems   prometheus.Counter
	degraded   prometheus.Gauge
	full       prometheus.Gauge
	unproven   *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer, queued func() float64) *metrics {
	f := metric.With(reg)
	m := &metrics{
		members:   f.GaugeVec("ringway_membership_members", "Live members in the newest snapshot, this node included, by role.", "role"),
		events:    f.CounterVec("ringway_membership_events_total", "Members that joined, left, failed, were superseded by a newer instance of the same id, changed, or lost their proof (unproven): their certificate expired or was denied; outdated is gossip about an instance older than the known one.", "event"),
		refusals:  f.CounterVec("ringway_membership_refusals_total", "Streams refused in the hello, by direction and the field that differed, and members refused by their metadata; timeout, too_many and too_many_from_source: closed before the peer had identified itself, because of a timeout or to make room for newer connections; too_fast_from_source: its address began more TLS handshakes per second than one address may; silent: a stream for gossip keys on which the member sent no request within 5 s, or that gave way to newer ones of it or of all.", "direction", "reason"),
		dropped:   f.CounterVec("ringway_membership_packets_dropped_total", "Gossip packets and messages dropped before they were used, by reason; too_many_streams, too_many_exchanges and too_many_sessions: one certificate had more than its share; short_question: a question for certificates was shorter than a third of the answers.", "reason"),
		joins:     f.CounterVec("ringway_membership_joins_total", "Attempts to join through a seed or a lost member, by result.", "result"),
		degraded:  f.Gauge("ringway_membership_degraded", "1 while the newest snapshot is degraded: this node may be cut off and keeps its peers."),
		full:      f.Gauge("ringway_membership_full", "1 while --max-members is reached and more members are refused: this node sees an arbitrary part of the cluster."),
		snapshots: f.Counter("ringway_membership_snapshots_total", "Snapshots published."),
		unproven:  f.CounterVec("ringway_membership_unproven_total", "Gossip about instances that was ignored because it is not proven, by reason; superseded: of an instance older than two later boots of its node, or the end of one that a third boot displaced; too_many_boots: its node started too often in a minute. Only with certificates.", "reason"),
		problems:  f.Counter("ringway_membership_gossip_problems_total", "Warnings and errors that memberlist logged."),
	}
	f.GaugeFunc("ringway_membership_broadcasts_queued", "Broadcasts waiting to be gossiped.", queued)
	f.NewCounterFunc(prometheus.CounterOpts{
		Name: "ringway_membership_duplicate_ids_total", Help: "Times another live process with this node's id and another address was seen.",
	}, func() float64 { return float64(m.duplicates.Load()) })

	m.initialise()
	return m
}

// initialise creates every series of the counters at 0, because rate() misses the first event of
// a series that begins with 1.
func (m *metrics) initialise() {
	metric.StartAtZero(m.events, eventNames...)
	for _, direction := range []string{inbound, outbound} {
		for _, field := range refusalFields {
			m.refusals.WithLabelValues(direction, reasonOf(field))
		}
		for _, reason := range identity.Reasons() {
			m.refusals.WithLabelValues(direction, string(reason))
		}
	}
	metric.StartAtZero(m.unproven, trust.UnprovenReasons()...)
	for _, reason := range handshake.PendingReasons() {
		m.refusals.WithLabelValues(inbound, reason)
	}
	metric.StartAtZero(m.dropped, dropReasons...)
	metric.StartAtZero(m.joins, joinOK, joinRefused, joinFailed)
}

// eventNames are the events that the table and the proofs report.
var eventNames = []string{"joined", "left", "failed", "superseded", "changed", "outdated", "unproven"}

// Reasons why packets and messages are dropped, in addition to those of the guard.
const (
	dropLabel        = "label"
	dropQueueFull    = "queue_full"
	dropMessageTopic = "message_topic"
	dropBadAddress   = "bad_address"
	dropWrite        = "write"
	dropEvicted      = "broadcast_evicted" // an own broadcast, from a full queue
)

var dropReasons = append([]string{
	dropLabel, dropQueueFull, dropMessageTopic, dropBadAddress, dropWrite, dropEvicted,
}, trust.DropReasons()...)

// The results of attempts to join.
const (
	joinOK      = "ok"
	joinRefused = "refused"
	joinFailed  = "failed"
)

// reasonOf converts a field to a label value.
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
	// Roles without a member are set to 0 as well: the gauge would keep the last number.
	byRole := map[identity.Role]int{}
	for i := range s.members {
		byRole[s.members[i].Role]++
	}
	for _, role := range []identity.Role{identity.RoleRelay, identity.RoleGate, identity.RoleWorker, identity.RoleObserver} {
		m.members.WithLabelValues(string(role)).Set(float64(byRole[role]))
	}
}

// logBridge parses memberlist's log lines, "[WARN] memberlist: text". They are logged at debug
// level: strangers and normal churn cause most of memberlist's warnings, and this package logs
// the important events itself. Warnings and errors are counted.
type logBridge struct {
	logger   *slog.Logger
	problems prometheus.Counter
}

func newMemberlistLogger(logger *slog.Logger, problems prometheus.Counter) *log.Logger {
	return log.New(logBridge{logger, problems}, "", 0)
}

func (b logBridge) Write(line []byte) (int, error) {
	text := bytes.TrimSpace(line)
	level := ""
	if rest, ok := bytes.CutPrefix(text, []byte("[")); ok {
		if name, after, ok := bytes.Cut(rest, []byte("] ")); ok {
			level, text = string(name), after
		}
	}
	if level == "WARN" || level == "ERR" {
		b.problems.Inc()
	}
	if b.logger.Enabled(context.Background(), slog.LevelDebug) {
		b.logger.Debug("gossip: "+string(bytes.TrimPrefix(text, []byte("memberlist: "))), "memberlist_level", level)
	}
	return len(line), nil
}
