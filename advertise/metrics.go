package advertise

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/metric"
)

// metrics are the metrics of a catalogue. Every label value is a constant of the code; no
// label contains data from the network.
type metrics struct {
	received  *prometheus.CounterVec // by result
	exchanges *prometheus.CounterVec // by direction, result
	cutOffs   *prometheus.CounterVec // by reason
	bytes     *prometheus.CounterVec // by direction: sent, received
	// offersRefused counts, by reason, services of valid records that the rules refuse.
	offersRefused *prometheus.CounterVec

	published prometheus.Counter
	views     prometheus.Counter
	restarts  prometheus.Counter
	services  prometheus.Gauge
	endpoints prometheus.Gauge
	records   prometheus.Gauge
	full      prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) *metrics {
	f := metric.With(reg)
	m := &metrics{
		received:  f.CounterVec("ringway_advertise_records_received_total", "Records and hints received, by result: applied, old, foreign (in this node's name), role (of a member whose role does not write such records), forged (not signed by its author), unproven (of an author whose certificate is not known yet), refused (too many of members that are not alive), limited (its author publishes more than 120 a minute, or too many hints of it led to no record), hint, overflow or invalid_<reason>.", "result"),
		exchanges: f.CounterVec("ringway_advertise_exchanges_total", "Record exchanges with one peer, by direction (out, in) and result (same, synced, fetched, busy, failed, slow, hostile).", "direction", "result"),
		cutOffs:   f.CounterVec("ringway_advertise_exchange_cut_offs_total", "Record exchanges ended here because of what the peer sent, by reason (frame_size, bomb, endless, out_of_turn, malformed, slow, silent (the oldest of too many streams that had sent nothing) or a field).", "reason"),
		bytes:     f.CounterVec("ringway_advertise_exchange_bytes_total", "Bytes of record exchanges, by direction (sent, received).", "direction"),
		published: f.Counter("ringway_advertise_published_total", "Publications of this node's own record."),
		views:     f.Counter("ringway_advertise_views_total", "Views published to this process."),
		restarts:  f.Counter("ringway_advertise_loop_restarts_total", "Restarts of the loop that merges records after a panic: 0 unless this build has a defect."),
		services:  f.Gauge("ringway_advertise_services", "Known services in the newest view."),
		endpoints: f.Gauge("ringway_advertise_endpoints", "Endpoints of all services in the newest view."),
		full:      f.Gauge("ringway_advertise_full", "1 while --max-services is reached and services are refused: the newest view lacks them."),
		records:   f.Gauge("ringway_advertise_records", "Records stored, including those of members that are not alive."),

		offersRefused: f.CounterVec("ringway_advertise_offers_refused_total", "Services offered by workers and refused by this node, once per record, by reason: host_name, foreign_host (an address on another host than its worker), local_host (an address that only its own host can reach), service_name (the certificate of the worker names other services), no_service_names (it names none, and --require-service-names is set), services_per_record, services (too many names) or new_services (too many new names per minute).", "reason"),
	}
	m.initialise()
	return m
}

// initialise creates every series of the counters at 0, because rate() misses the first
// event of a series that begins with 1.
func (m *metrics) initialise() {
	metric.StartAtZero(m.received, applied, old, foreign, refused, limited, wrongRole, forged, unproven, hinted, overflowed)
	for _, reason := range recordReasons {
		m.received.WithLabelValues("invalid_" + reason)
	}
	for _, direction := range []string{outward, inward} {
		for _, result := range []string{resultSame, resultSynced, resultFetched, resultBusy, resultFailed, resultSlow, resultHostile} {
			m.exchanges.WithLabelValues(direction, result)
		}
	}
	metric.StartAtZero(m.cutOffs, slices.Concat(recordReasons, frameReasons, []string{resultSlow})...)
	metric.StartAtZero(m.offersRefused, refusals...)
	metric.StartAtZero(m.bytes, "sent", "received")
}

// panicked is the reason of a record that this build cannot examine because of a defect.
const panicked = "panic"

// recordReasons are the reasons to refuse a record, frameReasons the additional reasons to
// end an exchange.
var (
	recordReasons = []string{
		"address", "duplicate", "format", "future_epoch", "malformed", "name", "node_id", panicked, "plan", "policy", "protocol", "proxy_protocol", "relays",
		"selection", "sequence", "services", "signature", "slots", "state", "tags", "too_large", "traffic", "version", "weight",
	}
	frameReasons = []string{"bad_records", "bomb", "endless", "frame_size", "out_of_turn", "silent"}
)

func (m *metrics) receive(result outcome) { m.received.WithLabelValues(string(result)).Inc() }
