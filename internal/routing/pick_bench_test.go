package routing_test

import (
	"strconv"
	"testing"

	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/selection"
)

// BenchmarkPick is the pick of one request by the strategies, from 200 workers: all of them usable,
// one evicted, or all with slots.
func BenchmarkPick(b *testing.B) {
	for _, text := range []string{"p2c", "stable", "random", "slots"} {
		for _, state := range []string{"usable", "evicted", "limited"} {
			b.Run(text+"/"+state, func(b *testing.B) {
				p := newPicking(b, 200, text)
				switch state {
				case "evicted":
					p.evict("w01")
				case "limited":
					p.route(200, func(_ int, t *routing.Target) { t.Limit = 100 })
				}
				p.now += 10 * second
				p.Refresh(p.now)
				keys := make([]string, 64)
				for i := range keys {
					keys[i] = strconv.Itoa(i)
				}
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					var tried routing.Tried
					pick, err := p.Pick(keys[i%64], p.now, &tried)
					if err != nil {
						b.Fatal(err)
					}
					p.Endpoints.Done(pick, p.now, selection.Result{Outcome: selection.Success})
				}
			})
		}
	}
}
