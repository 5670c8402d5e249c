package relay

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/wire"
)

// shop is a service that serves a number of requests at a time, lets the others wait, and does
// not notice that a client has gone.
type shop struct {
	slots  chan struct{}
	served atomic.Int64
}

// visit is how long a request of a shop takes.
const visit = 50 * time.Millisecond

func (s *shop) ServeHTTP(http.ResponseWriter, *http.Request) {
	s.slots <- struct{}{}
	time.Sleep(visit)
	<-s.slots
	s.served.Add(1)
}

// roundsTime is how long rounds that show nothing are repeated.
const roundsTime = 2 * time.Minute

// crowd is clients of a shop. Each sends one request and waits a second for the answer.
type crowd struct {
	client                   *http.Client
	url                      string
	answered, refused, other atomic.Int64
	under                    sync.WaitGroup
}

func (c *crowd) send(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", c.url, nil)
	if err != nil {
		t.Error(err)
		return
	}
	req.Header.Set(wire.ServiceHeader, "shop")
	resp, err := c.client.Do(req)
	if err != nil {
		c.other.Add(1)
		return
	}
	_ = resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
		c.answered.Add(1)
	case http.StatusServiceUnavailable:
		c.refused.Add(1)
	default:
		c.other.Add(1)
	}
}

// stallsFrom is how late a turn of come is in a stall of the machine.
const stallsFrom = 50 * time.Millisecond

// come sends requests at a rate, whether answers come or not. It skips those that a stall of the
// machine missed, and returns whether there was one.
func (c *crowd) come(t *testing.T, rate float64, span time.Duration) (stalled bool) {
	began, sent := time.Now(), 0
	end, last := began.Add(span), began
	for {
		now := time.Now()
		if late := now.Sub(last); late > stallsFrom {
			stalled = true
			began = began.Add(late) // or all that did not come would come now
		}
		if last = now; !now.Before(end) {
			return stalled
		}
		for ; float64(sent) < rate*now.Sub(began).Seconds(); sent++ {
			c.under.Go(func() { c.send(t) })
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// newShop is a relay before two shops, and a crowd.
func newShop(t *testing.T) (*runningRelay, *crowd, [2]*shop) {
	f := newFleet(t)
	r := f.relay(func(*Settings) {})
	var shops [2]*shop
	for i := range shops {
		shops[i] = &shop{slots: make(chan struct{}, 4)}
		backend := httptest.NewServer(shops[i])
		t.Cleanup(backend.Close)
		f.worker(fmt.Sprintf("w%d", i+1), service("shop", backend))
	}
	r.settled(t, "shop", 2)
	transport := &http.Transport{MaxIdleConnsPerHost: 200}
	t.Cleanup(transport.CloseIdleConnections)
	c := &crowd{client: &http.Client{Transport: transport}, url: "http://" + r.IngressAddr()}
	t.Cleanup(c.under.Wait)
	return r, c, shops
}

// most is what the shops of newShop serve in a second, on a machine that has time for it.
const most = 2 * 4 * float64(time.Second) / float64(visit)

// usually lets a few clients come one after the other for some time, and returns how many
// requests per second are answered.
func (c *crowd) usually(t *testing.T, span time.Duration) float64 {
	var all sync.WaitGroup
	began, before := time.Now(), c.answered.Load()
	for range 10 {
		all.Go(func() {
			for time.Since(began) < span {
				c.send(t)
			}
		})
	}
	all.Wait()
	return float64(c.answered.Load()-before) / time.Since(began).Seconds()
}

// What the shops serve nearly all reaches clients that still wait for it. Without the limit
// nothing does.
func TestAnOverloadedServiceServesClientsThatStillWait(t *testing.T) {
	r, c, shops := newShop(t)
	c.usually(t, 2*time.Second)
	c.come(t, 3*most, 5*time.Second) // until it has settled
	served := func() int64 { return shops[0].served.Load() + shops[1].served.Load() }
	// The limit learns from answers, and needs 25 a second of them. A machine that is busy with
	// other tests may allow fewer for some time.
	const span, enough = 4 * time.Second, 2 * 25 * 4
	did, useful := 0.0, 0.0
	for began := time.Now(); did < enough; {
		if time.Since(began) > roundsTime {
			t.Fatalf("the shops served %.0f requests in %v, want %d: the limit keeps too few, or this machine is too busy, then run the test alone", did, span, enough)
		}
		before, answered := served(), c.answered.Load()
		c.come(t, 3*most, span)
		did, useful = float64(served()-before), float64(c.answered.Load()-answered)
	}
	t.Logf("the shops served %.0f requests of %.0f that they could, %.0f in time; %d were refused", did, span.Seconds()*most, useful, c.refused.Load())
	// How large the share is, sims overload shows in virtual time. Here clients, relay and
	// shops share the processors with other tests: half distinguishes the limit from none.
	if useful < 0.5*did {
		t.Errorf("%.0f of %.0f answers were in time", useful, did)
	}
	_, page := r.api(t, "/metrics", nil)
	for _, series := range []string{`ringway_relay_overload_refusals_total{limit="adaptive",service="shop"}`, `ringway_relay_adaptive_limit_requests{service="shop"}`} {
		if !regexp.MustCompile("(?m)^" + regexp.QuoteMeta(series) + " [1-9]").MatchString(page) {
			t.Errorf("%s is 0 or missing", series)
		}
	}
}

func TestABusyServiceIsRefusedNothing(t *testing.T) {
	for began, round := time.Now(), 1; ; round++ {
		var refused, answered int64
		var stalled bool
		t.Run(fmt.Sprint("round ", round), func(t *testing.T) { // with a relay of its own: a limit remembers a stall
			refused, answered, stalled = almostBusy(t)
			t.Logf("stalled %t, %d refused", stalled, refused)
		})
		switch {
		case t.Failed():
			return
		case stalled && refused == 0 && time.Since(began) > roundsTime:
			return // stalled or not, no round had a refusal
		case stalled && time.Since(began) > roundsTime: // a round that stalled shows nothing
			t.Fatalf("this machine stalled in each of %d rounds, the last of which refused %d requests: run the test alone", round, refused)
		case stalled:
		case refused > 0:
			t.Fatalf("%d of %d requests are refused at 90 %% of what the shops serve", refused, refused+answered)
		default:
			return
		}
	}
}

// almostBusy sends 90 % of what the shops serve to a relay of its own. In a stall of the machine the
// shops serve less than that.
func almostBusy(t *testing.T) (refused, answered int64, stalled bool) {
	_, c, _ := newShop(t)
	rate := min(most, c.usually(t, 2*time.Second))
	for range 4 {
		steady := c.come(t, 0.8*rate, 900*time.Millisecond)
		burst := c.come(t, 1.8*rate, 100*time.Millisecond) // 90 % on average
		stalled = stalled || steady || burst
	}
	c.under.Wait()
	refused, answered = c.refused.Load(), c.answered.Load()
	if refused > 0 && !stalled { // what they serve may have become less meanwhile, at any relay
		_, other, _ := newShop(t)
		stalled = other.usually(t, 2*time.Second) < 0.9*rate
	}
	return refused, answered, stalled
}
