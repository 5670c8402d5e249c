package browser

import (
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

// LoadConfig describes a load.
type LoadConfig struct {
	// Targets are the ingress addresses that take turns.
	Targets []string
	// Services are asked for at random; one that is listed twice twice as often.
	Services []string
	// PerSecond is how many requests are sent; their gaps are exponential.
	PerSecond float64
}

// Load sends requests until ctx ends; then it waits for those under way. What becomes
// of them is the relays' affair.
func Load(ctx context.Context, cfg LoadConfig) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	defer client.CloseIdleConnections()
	var wg sync.WaitGroup
	defer wg.Wait()
	under := make(chan struct{}, 256)
	for n := 0; ; n++ {
		wait := time.NewTimer(time.Duration(rand.ExpFloat64() / cfg.PerSecond * float64(time.Second)))
		select {
		case <-ctx.Done():
			wait.Stop()
			return
		case <-wait.C:
		}
		select {
		case under <- struct{}{}:
		default:
			continue // too many are under way: this one is not sent
		}
		wg.Go(func() {
			defer func() { <-under }()
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+cfg.Targets[n%len(cfg.Targets)]+"/", nil)
			if err != nil {
				return
			}
			req.Header.Set("Ringway-Service", cfg.Services[rand.IntN(len(cfg.Services))])
			answer, err := client.Do(req)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, answer.Body)
			_ = answer.Body.Close()
		})
	}
}
