package xds

import (
	"errors"
	"log/slog"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/prometheus/client_golang/prometheus"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/loglimit"
)

// decode decodes as the server does.
func decode(bytes []byte, into proto.Message) error {
	return newLean(defaultMaxServices).Unmarshal(mem.BufferSlice{mem.SliceBuffer(bytes)}, into)
}

// forget clears what the server does not read.
func forget(request proto.Message) {
	lean := func(node *core.Node, failed *rpcstatus.Status) (*core.Node, *rpcstatus.Status) {
		if node != nil {
			node = &core.Node{Id: node.GetId(), Locality: node.GetLocality()}
		}
		if failed != nil {
			failed = &rpcstatus.Status{Code: failed.GetCode(), Message: failed.GetMessage()}
		}
		return node, failed
	}
	switch r := request.(type) {
	case *discovery.DiscoveryRequest:
		r.Node, r.ErrorDetail = lean(r.GetNode(), r.GetErrorDetail())
		r.ResourceLocators = nil
	case *discovery.DeltaDiscoveryRequest:
		r.Node, r.ErrorDetail = lean(r.GetNode(), r.GetErrorDetail())
		r.ResourceLocatorsSubscribe, r.ResourceLocatorsUnsubscribe = nil, nil
	}
}

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
	full := &core.Node{Id: "envoy-1", Cluster: "c", Locality: &core.Locality{Zone: "fra"}, ClientFeatures: []string{"f"}, Extensions: []*core.Extension{{}}}
	failed := &rpcstatus.Status{Code: 3, Message: "no", Details: []*anypb.Any{{TypeUrl: "t"}}}
	add(&discovery.DiscoveryRequest{Node: full, VersionInfo: "1", ResponseNonce: "2", ErrorDetail: failed, ResourceLocators: []*discovery.ResourceLocator{{Name: "a"}}},
		&discovery.DeltaDiscoveryRequest{Node: full, ResponseNonce: "2", ErrorDetail: failed, ResourceLocatorsSubscribe: []*discovery.ResourceLocator{{Name: "a"}}})
	add(&discovery.DiscoveryRequest{TypeUrl: resource.EndpointType, ResourceNames: []string{"*"}}, &discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: "~"}})
	f.Fuzz(func(t *testing.T, first, second []byte) {
		r, d := &discovery.DiscoveryRequest{}, &discovery.DeltaDiscoveryRequest{}
		whole, errs := proto.UnmarshalOptions{DiscardUnknown: true}, [2]error{decode(first, r), decode(second, d)}
		for i, one := range []struct {
			bytes []byte
			got   proto.Message
			want  proto.Message
		}{{first, r, &discovery.DiscoveryRequest{}}, {second, d, &discovery.DeltaDiscoveryRequest{}}} {
			if whole.Unmarshal(one.bytes, one.want) != nil || errors.Is(errs[i], errManyFields) {
				continue
			}
			if forget(one.want); errs[i] != nil || !proto.Equal(one.got, one.want) {
				t.Fatalf("got %v, %v, want %v", one.got, errs[i], one.want)
			}
		}
		if errs[0] != nil || errs[1] != nil {
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
