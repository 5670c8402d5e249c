package process_test

import (
	"fmt"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"github.com/ringway/ringway/internal/process"
)

// What memberlist calls memberlist.msg.suspect is a counter with a bounded label.
func ExampleGossipSink() {
	registry := prometheus.NewRegistry()
	sink := process.NewGossipSink(registry)
	sink.IncrCounter([]string{"memberlist", "msg", "suspect"}, 1)
	sink.IncrCounter([]string{"something", "else"}, 1)

	families, err := registry.Gather()
	if err != nil {
		fmt.Println(err)
	}
	for _, family := range families {
		if family.GetName() == "ringway_memberlist_messages_total" {
			_, _ = expfmt.MetricFamilyToText(os.Stdout, family)
		}
	}
	// Output:
	// # HELP ringway_memberlist_messages_total Gossip about members, by the state of the member: alive, suspect or dead.
	// # TYPE ringway_memberlist_messages_total counter
	// ringway_memberlist_messages_total{kind="alive"} 0
	// ringway_memberlist_messages_total{kind="dead"} 0
	// ringway_memberlist_messages_total{kind="suspect"} 1
}
