package process

import (
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/go-metrics"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/metric"
)

// GossipSink receives the measurements of memberlist. Times are in seconds.
type GossipSink struct {
	counters  map[string]prometheus.Counter // by memberlist's name
	gauges    map[string]prometheus.Gauge
	samples   map[string]prometheus.Observer
	instances map[string]prometheus.Gauge // by state
}

// stateLabel is the label that memberlist uses on instancesKey.
const stateLabel = "node_state"

const instancesKey = "memberlist.node.instances"

// ignored are the measurements of memberlist that are not exported, with the reason.
var ignored = map[string]string{
	"memberlist.size.local":   "memberlist reads the size from bytes 1 to 4 of the message, which do not hold a size",
	"memberlist.udp.received": "of the UDP transport of memberlist, which members do not use",
}

// NewGossipSink registers the metrics.
func NewGossipSink(reg prometheus.Registerer) *GossipSink {
	f := metric.With(reg)
	seconds := func(name, help string) prometheus.Histogram {
		return f.Histogram(name, help, []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10})
	}
	messages := f.CounterVec("ringway_memberlist_messages_total", "Gossip about members, by the state of the member: alive, suspect or dead.", "kind")
	degraded := f.CounterVec("ringway_memberlist_degraded_total", "Times the failure detector was slower because this node or its network is: probe (waited longer), timeout (a suspicion ended with fewer confirmations than expected).", "kind")
	streams := f.CounterVec("ringway_memberlist_streams_total", "Streams of memberlist, by who opened them: accepted, opened.", "direction")
	instances := f.GaugeVec("ringway_memberlist_instances", "Instances that memberlist remembers, by state, at the last exchange of states; one that was restarted counts once for each life.", "state")
	s := &GossipSink{
		counters: map[string]prometheus.Counter{
			"memberlist.msg.alive":        messages.WithLabelValues("alive"),
			"memberlist.msg.suspect":      messages.WithLabelValues("suspect"),
			"memberlist.msg.dead":         messages.WithLabelValues("dead"),
			"memberlist.degraded.probe":   degraded.WithLabelValues("probe"),
			"memberlist.degraded.timeout": degraded.WithLabelValues("timeout"),
			"memberlist.tcp.accept":       streams.WithLabelValues("accepted"),
			"memberlist.tcp.connect":      streams.WithLabelValues("opened"),
			"memberlist.udp.sent":         f.Counter("ringway_memberlist_packet_sent_bytes_total", "Bytes of gossip packets sent, without headers of UDP and IP."),
			"memberlist.tcp.sent":         f.Counter("ringway_memberlist_stream_sent_bytes_total", "Bytes that memberlist sent over streams, before TLS."),
		},
		gauges: map[string]prometheus.Gauge{
			"memberlist.health.score": f.Gauge("ringway_memberlist_health_score", "How slow this node finds itself, 0 (well) to 7: it waits longer before it suspects others."),
		},
		samples: map[string]prometheus.Observer{
			"memberlist.probeNode":    seconds("ringway_memberlist_probe_duration_seconds", "Time of probes of one member, indirect ones included."),
			"memberlist.gossip":       seconds("ringway_memberlist_gossip_duration_seconds", "Time to hand one round of gossip to the network."),
			"memberlist.pushPullNode": seconds("ringway_memberlist_exchange_duration_seconds", "Time of exchanges of the whole state with one member that this node began."),
			"memberlist.size.remote":  f.Histogram("ringway_memberlist_exchange_received_bytes", "Sizes of whole states received, encrypted with the gossip key; without one nothing is measured.", prometheus.ExponentialBuckets(1<<10, 4, 8)),
		},
		instances: map[string]prometheus.Gauge{},
	}
	queued := f.Gauge("ringway_memberlist_broadcasts_queued", "News of members waiting to be gossiped.")
	s.samples["memberlist.queue.broadcasts"] = prometheus.ObserverFunc(func(messages float64) {
		queued.Set(max(0, messages-1)) // without the placeholder of package membership
	})
	for _, state := range []string{"alive", "suspect", "dead", "left"} {
		s.instances[state] = instances.WithLabelValues(state)
	}
	return s
}

// Install makes the sink the receiver of the measurements of all members in this process.
func (s *GossipSink) Install() error {
	// With this granularity go-metrics reports times in seconds.
	if _, err := metrics.NewGlobal(&metrics.Config{TimerGranularity: time.Second, FilterDefault: true}, s); err != nil {
		return fmt.Errorf("install the sink for memberlist's metrics: %w", err)
	}
	return nil
}

func name(key []string) string { return strings.Join(key, ".") }

// IncrCounterWithLabels adds to a counter. It ignores memberlist's labels.
func (s *GossipSink) IncrCounterWithLabels(key []string, val float32, _ []metrics.Label) {
	if c, known := s.counters[name(key)]; known && val > 0 {
		c.Add(float64(val))
	}
}

// SetGaugeWithLabels sets a gauge.
func (s *GossipSink) SetGaugeWithLabels(key []string, val float32, labels []metrics.Label) {
	of := name(key)
	if of == instancesKey {
		for _, l := range labels {
			if g, known := s.instances[l.Value]; known && l.Name == stateLabel {
				g.Set(float64(val))
			}
		}
		return
	}
	if g, known := s.gauges[of]; known {
		g.Set(float64(val))
	}
}

// AddSampleWithLabels passes a sample to its metric.
func (s *GossipSink) AddSampleWithLabels(key []string, val float32, _ []metrics.Label) {
	if o, known := s.samples[name(key)]; known {
		o.Observe(float64(val))
	}
}

// IncrCounter is IncrCounterWithLabels without labels.
func (s *GossipSink) IncrCounter(key []string, val float32) { s.IncrCounterWithLabels(key, val, nil) }

// SetGauge is SetGaugeWithLabels without labels.
func (s *GossipSink) SetGauge(key []string, val float32) { s.SetGaugeWithLabels(key, val, nil) }

// AddSample is AddSampleWithLabels without labels.
func (s *GossipSink) AddSample(key []string, val float32) { s.AddSampleWithLabels(key, val, nil) }

// EmitKey does nothing: memberlist does not emit keys.
func (s *GossipSink) EmitKey([]string, float32) {}

var _ metrics.MetricSink = (*GossipSink)(nil)
