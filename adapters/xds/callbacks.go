package xds

import (
	"context"
	"maps"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// callbacks are the callbacks of go-control-plane's server.
type callbacks struct{ *clients }

func (c callbacks) OnStreamOpen(ctx context.Context, id int64, typeURL string) error {
	return c.open(ctx, streamID{false, id}, typeURL)
}

func (c callbacks) OnDeltaStreamOpen(ctx context.Context, id int64, typeURL string) error {
	return c.open(ctx, streamID{true, id}, typeURL)
}

func (c callbacks) OnStreamClosed(id int64, _ *core.Node) { c.close(streamID{false, id}) }

func (c callbacks) OnDeltaStreamClosed(id int64, _ *core.Node) { c.close(streamID{true, id}) }

func (c callbacks) OnStreamRequest(id int64, r *discovery.DiscoveryRequest) error {
	return c.handle(streamID{false, id}, request{
		node: r.GetNode(), typeURL: r.GetTypeUrl(), nonce: r.GetResponseNonce(), failed: r.GetErrorDetail(), names: r.GetResourceNames(),
		services: func(map[string]bool) map[string]bool { return set(nil, r.GetResourceNames(), nil) },
	})
}

func (c callbacks) OnStreamDeltaRequest(id int64, r *discovery.DeltaDiscoveryRequest) error {
	if n := len(r.GetInitialResourceVersions()); n > c.cfg.MaxServices {
		return c.refuse(refusedServices, codes.ResourceExhausted, "%d initial resource versions: at most %d", n, c.cfg.MaxServices)
	}
	return c.handle(streamID{true, id}, request{
		node: r.GetNode(), typeURL: r.GetTypeUrl(), nonce: r.GetResponseNonce(), failed: r.GetErrorDetail(), names: r.GetResourceNamesSubscribe(),
		services: func(before map[string]bool) map[string]bool {
			return set(before, r.GetResourceNamesSubscribe(), r.GetResourceNamesUnsubscribe())
		},
	})
}

func (callbacks) OnStreamResponse(context.Context, int64, *discovery.DiscoveryRequest, *discovery.DiscoveryResponse) {
}

func (callbacks) OnStreamDeltaResponse(int64, *discovery.DeltaDiscoveryRequest, *discovery.DeltaDiscoveryResponse) {
}

func (callbacks) OnFetchRequest(context.Context, *discovery.DiscoveryRequest) error {
	return status.Error(codes.Unimplemented, "ringway: requests without a stream are not served: use ADS")
}

func (callbacks) OnFetchResponse(*discovery.DiscoveryRequest, *discovery.DiscoveryResponse) {}

// set returns a copy of before with names added and others removed.
func set(before map[string]bool, add, remove []string) map[string]bool {
	out := maps.Clone(before)
	if out == nil {
		out = make(map[string]bool, len(add))
	}
	for _, name := range add {
		out[name] = true
	}
	for _, name := range remove {
		delete(out, name)
	}
	return out
}
