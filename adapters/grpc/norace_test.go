//go:build !race

package ringwaygrpc_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/metadata"

	ringwaygrpc "github.com/ringway/ringway/adapters/grpc"
	"github.com/ringway/ringway/internal/fleet"
	"github.com/ringway/ringway/selection"
)

var answered = balancer.DoneInfo{BytesSent: true, BytesReceived: true}

func TestAPickAllocatesNothing(t *testing.T) {
	c := startCluster(t, fleet.Config{Insecure: true})
	c.worker("a", "")
	c.worker("b", "")
	c.worker("c", "")
	c.sees("a", "b", "c")
	picker := ringwaygrpc.ReadyPicker(c.router, "echo")
	for name, ctx := range map[string]context.Context{
		"plain":          t.Context(),
		"key":            ringwaygrpc.WithKey(t.Context(), "alice"),
		"other metadata": metadata.AppendToOutgoingContext(t.Context(), "traceparent", "00-0"),
	} {
		info := balancer.PickInfo{Ctx: ctx}
		if allocations := testing.AllocsPerRun(1000, func() {
			result, err := picker.Pick(info)
			if err != nil {
				t.Fatal(err)
			}
			result.Done(answered)
		}); allocations > 0 {
			t.Errorf("%s: %v allocations", name, allocations)
		}
	}
}

// BenchmarkPick compares a pick of the client with one of the router alone.
func BenchmarkPick(b *testing.B) {
	c := startCluster(b, fleet.Config{Insecure: true})
	for _, id := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		c.worker(id, "")
	}
	c.sees("a", "b", "c", "d", "e", "f", "g", "h")
	ctx, cancel := context.WithTimeout(b.Context(), time.Hour) // as RPCs have
	defer cancel()
	b.Run("router", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			pick, err := c.router.Pick(ctx, "echo", "")
			if err != nil {
				b.Fatal(err)
			}
			pick.Done(selection.Success)
		}
	})
	b.Run("client", func(b *testing.B) {
		picker := ringwaygrpc.ReadyPicker(c.router, "echo")
		info := balancer.PickInfo{Ctx: ctx}
		b.ReportAllocs()
		for b.Loop() {
			result, err := picker.Pick(info)
			if err != nil {
				b.Fatal(err)
			}
			result.Done(answered)
		}
	})
}
