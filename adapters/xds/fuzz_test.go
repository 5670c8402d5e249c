package xds

import (
	"log/slog"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/loglimit"
)

// Whatever a client sends, only valid ids and names are kept, and no more than the limits; when
// its streams have ended, nothing is left.
func FuzzRequestsOfAClient(f *testing.F) {
	add := func(r *discovery.DiscoveryRequest, d *discovery.DeltaDiscoveryRequest) {
		first, _ := proto.Marshal(r)
		second, _ := proto.Marshal(d)
		f.Add(first, second)
	}
	node := &core.Node{Id: "envoy-1", Locality: &core.Locality{Zone: "fra", Region: "eu"}}
	add(&discovery.DiscoveryRequest{Node: node, TypeUrl: resource.EndpointType, ResourceNames: []string{"echo"}},
		&discovery.DeltaDiscoveryRequest{Node: node, TypeUrl: resource.EndpointType, ResourceNamesSubscribe: []string{"a", "b"}, ResourceNamesUnsubscribe: []string{"a"}, InitialResourceVersions: map[string]string{"x": "1"}})
	add(&discovery.DiscoveryRequest{TypeUrl: resource.EndpointType, ResourceNames: []string{"*"}}, &discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: "~"}})
	f.Fuzz(func(t *testing.T, first, second []byte) {
		r, d := &discovery.DiscoveryRequest{}, &discovery.DeltaDiscoveryRequest{}
		if proto.Unmarshal(first, r) != nil || proto.Unmarshal(second, d) != nil {
			return // gRPC refuses it
		}
		cfg := Config{MaxClients: 2, MaxServices: 3}
		lines := loglimit.New(slog.New(slog.DiscardHandler))
		defer lines.Stop()
		c := callbacks{newClients(cfg, nil, newMetrics(prometheus.NewRegistry()), lines)}
		_ = c.OnStreamOpen(t.Context(), 1, resource.AnyType)
		_ = c.OnDeltaStreamOpen(t.Context(), 1, resource.EndpointType)
		for range 2 {
			_ = c.OnStreamRequest(1, proto.Clone(r).(*discovery.DiscoveryRequest))
			_ = c.OnStreamDeltaRequest(1, proto.Clone(d).(*discovery.DeltaDiscoveryRequest))
		}
		for id, one := range c.byID {
			if id != one.ID || checkClient(one.Relay) != nil || len(one.services) > cfg.MaxServices {
				t.Fatalf("%q: %+v", id, one)
			}
			for name := range one.services {
				if affinity.ValidateService(name) != nil {
					t.Fatalf("subscribed to %q", name)
				}
			}
		}
		c.OnStreamClosed(1, nil)
		c.OnDeltaStreamClosed(1, nil)
		if len(c.byID)+len(c.streams) > 0 {
			t.Fatalf("left: %v, %v", c.byID, c.streams)
		}
	})
}
