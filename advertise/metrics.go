package advertise

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
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
	services  prometheus.Gauge
	endpoints prometheus.Gauge
	records   prometheus.Gauge
}

func newMetrics() *metrics {
	counter := func(name, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Namespace: "ringway", Subsystem: "advertise", Name: name, Help: help}
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "ringway", Subsystem: "advertise", Name: name, Help: help})
	}
	m := &metrics{
		received:  prometheus.NewCounterVec(counter("records_received_total", "Records and hints received, by result: applied, old, foreign (in this node's name), role (of a member that is no worker), forged (not signed by its author), unproven (of an author whose certificate is not known yet), refused (too many of members that are not alive), hint, overflow or invalid_<reason>."), []string{"result"}),
		exchanges: prometheus.NewCounterVec(counter("exchanges_total", "Record exchanges with one peer, by direction (out, in) and result (same, synced, fetched, busy, failed, slow, hostile)."), []string{"direction", "result"}),
		cutOffs:   prometheus.NewCounterVec(counter("exchange_cut_offs_total", "Record exchanges ended here because of what the peer sent, by reason (frame_size, bomb, endless, out_of_turn, malformed, slow or a field)."), []string{"reason"}),
		bytes:     prometheus.NewCounterVec(counter("exchange_bytes_total", "Bytes of record exchanges, by direction (sent, received)."), []string{"direction"}),
		published: prometheus.NewCounter(counter("published_total", "Publications of this node's own record.")),
		views:     prometheus.NewCounter(counter("views_total", "Views published to this process.")),
		services:  gauge("services", "Known services in the newest view."),
		endpoints: gauge("endpoints", "Endpoints of all services in the newest view."),
		records:   gauge("records", "Records stored, including those of members that are not alive."),

		offersRefused: prometheus.NewCounterVec(counter("offers_refused_total", "Services offered by workers and refused by this node, once per record, by reason: host_name, foreign_host (an address on another host than its worker), local_host (an address that only its own host can reach), services_per_record, services (too many names) or new_services (too many new names per minute)."), []string{"reason"}),
	}
	m.initialise()
	return m
}

// initialise creates every series of the counters at 0, because rate() misses the first
// event of a series that begins with 1.
func (m *metrics) initialise() {
	for _, result := range []outcome{applied, old, foreign, refused, notWorker, forged, unproven, hinted, overflowed} {
		m.received.WithLabelValues(string(result))
	}
	for _, reason := range recordReasons {
		m.received.WithLabelValues("invalid_" + reason)
	}
	for _, direction := range []string{outward, inward} {
		for _, result := range []string{resultSame, resultSynced, resultFetched, resultBusy, resultFailed, resultSlow, resultHostile} {
			m.exchanges.WithLabelValues(direction, result)
		}
	}
	for _, reason := range slices.Concat(recordReasons, frameReasons, []string{resultSlow}) {
		m.cutOffs.WithLabelValues(reason)
	}
	for _, reason := range refusals {
		m.offersRefused.WithLabelValues(reason)
	}
	m.bytes.WithLabelValues("sent")
	m.bytes.WithLabelValues("received")
}

// recordReasons are the reasons to refuse a record, frameReasons the additional reasons to
// end an exchange.
var (
	recordReasons = []string{
		"address", "duplicate", "format", "future_epoch", "malformed", "name", "node_id", "policy", "protocol", "proxy_protocol", "relays",
		"selection", "sequence", "services", "signature", "slots", "state", "tags", "too_large", "version", "weight",
	}
	frameReasons = []string{"bad_records", "bomb", "endless", "frame_size", "out_of_turn"}
)

func (m *metrics) register(r prometheus.Registerer) error {
	if r == nil {
		return nil
	}
	for _, c := range []prometheus.Collector{m.received, m.exchanges, m.cutOffs, m.bytes, m.offersRefused, m.published, m.views, m.services, m.endpoints, m.records} {
		if err := r.Register(c); err != nil {
			return err
		}
	}
	return nil
}

func (m *metrics) receive(result outcome) { m.received.WithLabelValues(string(result)).Inc() }
