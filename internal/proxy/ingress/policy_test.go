package ingress_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/proxy/ingress"
	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/internal/wire"
)

// advertises makes the workers of the service advertise a policy.
func (x *trial) advertises(p advertise.Policy) {
	x.t.Helper()
	route := *x.Route()
	route.Policy = p
	if err := x.SetRoute(&route, x.now()); err != nil {
		x.t.Fatal(err)
	}
}

func TestAPolicyReplacesTheTimeLimitsOfTheRelay(t *testing.T) {
	t.Parallel()
	x := try(t, 3, hang, func(*ingress.Config) {})
	x.advertises(advertise.Policy{RequestTimeout: 200 * time.Millisecond})
	if resp, body := x.send("POST", "x"); resp.StatusCode != http.StatusGatewayTimeout || !strings.Contains(body, "within 200ms") {
		t.Errorf("request timeout: %s %s", resp.Status, body)
	}

	x = try(t, 3, func(n int64, w http.ResponseWriter, r *http.Request) {
		if n == 1 {
			hang(n, w, r)
		}
	}, func(*ingress.Config) {})
	x.advertises(advertise.Policy{AttemptTimeout: 2 * time.Second})
	if resp, body := x.send("GET", ""); resp.StatusCode != http.StatusOK || resp.Header.Get(wire.AttemptsHeader) != "2" {
		t.Errorf("attempt timeout: %s %s", resp.Status, body)
	}

	x = try(t, 1, func(_ int64, w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}, func(*ingress.Config) {})
	x.advertises(advertise.Policy{ProgressTimeout: 300 * time.Millisecond})
	conn := procs.Dial(t, x.addr)
	if _, err := conn.Write([]byte("GET / HTTP/1.1\r\nHost: a\r\n" + wire.ServiceHeader + ": echo\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	for err := error(nil); err == nil; { // until the relay ends the answer
		_, err = conn.Read(make([]byte, 1024))
	}
	if n := x.count("ringway_relay_silent_requests_total", "endpoint"); n != 1 {
		t.Errorf("progress timeout: %d exchanges ended for a silent endpoint", n)
	}
}

func TestAPolicyDecidesWhatIsRepeated(t *testing.T) {
	picks := func(retry advertise.Retry, change func(*routing.Route)) int {
		x := try(t, 3, func(n int64, w http.ResponseWriter, r *http.Request) {
			if n == 1 {
				breakOff(n, w, r)
			}
		}, func(*ingress.Config) {})
		route := *x.Route()
		route.Policy = advertise.Policy{Retry: retry}
		change(&route)
		if err := x.SetRoute(&route, x.now()); err != nil {
			t.Fatal(err)
		}
		x.send("GET", "")
		picked, _ := x.blamed()
		return picked
	}
	refused := func(route *routing.Route) {
		for _, target := range route.Range {
			pool, err := upstream.NewPool(upstream.Config{Address: target.Address, Dial: func(context.Context, string, string) (net.Conn, error) {
				return nil, syscall.ECONNREFUSED
			}})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(pool.Close)
			target.Pool = pool
		}
	}
	for _, c := range []struct {
		retry           advertise.Retry
		sent, connected int
	}{
		{advertise.RetryNever, 1, 1}, {advertise.RetryConnect, 1, 3}, {advertise.RetryIdempotent, 2, 3}, {advertise.RetryAlways, 2, 3}, {"", 2, 3},
	} {
		if n := picks(c.retry, func(*routing.Route) {}); n != c.sent {
			t.Errorf("retry %q, after the worker broke off: %d attempts, want %d", c.retry, n, c.sent)
		}
		if n := picks(c.retry, refused); n != c.connected {
			t.Errorf("retry %q, to workers that refuse connections: %d attempts, want %d", c.retry, n, c.connected)
		}
	}
}

// Four workers break off after they have read the body, and the fifth answers with it.
func TestEveryRequestToAServiceThatAllowsItIsRepeated(t *testing.T) {
	long := strings.Repeat("x", wire.ReplayLimit+1)
	for name, c := range map[string]struct {
		retry        advertise.Retry
		method, body string
		headers      []string
		change       func(*ingress.Config)
		attempts     int64
	}{
		"POST":                        {advertise.RetryAlways, "POST", "x", nil, nil, 5},
		"POST without a body":         {advertise.RetryAlways, "POST", "", nil, nil, 5},
		"PATCH":                       {advertise.RetryAlways, "PATCH", "x", nil, nil, 5},
		"PUT":                         {advertise.RetryAlways, "PUT", "x", nil, nil, 5},
		"gRPC":                        {advertise.RetryAlways, "POST", "\x00\x00\x00\x00\x00", []string{"Content-Type: application/grpc", "TE: trailers"}, nil, 5},
		"a service that allows less":  {advertise.RetryIdempotent, "POST", "x", nil, nil, 1},
		"a service without a policy":  {"", "POST", "x", nil, nil, 1},
		"a body too long to be kept":  {advertise.RetryAlways, "POST", long, nil, nil, 1},
		"no retry budget":             {advertise.RetryAlways, "POST", "x", nil, func(c *ingress.Config) { c.RetryBudget = 0 }, 1},
		"fewer attempts":              {advertise.RetryAlways, "POST", "x", nil, func(c *ingress.Config) { c.MaxAttempts = 3 }, 3},
		"attempts that hang for long": {advertise.RetryAlways, "POST", "x", nil, func(c *ingress.Config) { c.AttemptTimeout = time.Second }, 5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.change == nil {
				c.change = func(*ingress.Config) {}
			}
			x := try(t, 5, func(n int64, w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				if err != nil {
					panic(http.ErrAbortHandler)
				}
				switch {
				case n == 5:
					_, _ = w.Write(body)
				case name == "attempts that hang for long":
					<-r.Context().Done()
				default:
					breakOff(n, w, r)
				}
			}, c.change)
			x.advertises(advertise.Policy{Retry: c.retry})
			resp, body := x.send(c.method, c.body, c.headers...)
			if picks, _ := x.blamed(); int64(picks) != c.attempts {
				t.Errorf("%d attempts, want %d", picks, c.attempts)
			}
			if answered := resp.StatusCode == http.StatusOK && body == c.body; answered != (c.attempts == 5) {
				t.Errorf("%s, %q", resp.Status, body)
			}
		})
	}
}

// With the default, a third of the time for each attempt.
func TestAllAttemptsFindTimeHoweverManyWorkersHang(t *testing.T) {
	for _, share := range []float64{0.1, ingress.DefaultAttemptShare} {
		t.Run(fmt.Sprint(share), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				x := tryOn(t, inMemory(t), 6, hang, func(c *ingress.Config) {
					c.Timeout, c.AttemptTimeout = 2*time.Second, time.Duration(share*float64(2*time.Second))
				})
				resp, body := x.send("GET", "")
				if picks, failures := x.blamed(); resp.StatusCode != http.StatusGatewayTimeout || picks != 5 || failures != 5 {
					t.Errorf("%s after %d attempts, %d failures: %s", resp.Status, picks, failures, body)
				}
			})
		})
	}
}

func TestTheOperatorsPolicyHasPrecedence(t *testing.T) {
	requests := ingress.Requests{
		Timeout: 30 * time.Second, AttemptTimeout: 10 * time.Second, AttemptShare: 1.0 / 3,
		Policies: ingress.Policies{
			ByService: map[string]advertise.Policy{"billing": {RequestTimeout: 3 * time.Second}, "": {Retry: advertise.RetryConnect}},
		},
	}
	advertised := advertise.Policy{RequestTimeout: time.Minute, ProgressTimeout: 5 * time.Second, Retry: advertise.RetryNever}
	for service, want := range map[string]string{
		"billing": "request-timeout=3s;attempt-timeout=1s;progress-timeout=5s;retry=connect",
		"other":   "request-timeout=1m0s;attempt-timeout=20s;progress-timeout=5s;retry=connect",
	} {
		if got := requests.Policy(service, advertised, time.Hour).String(); got != want {
			t.Errorf("%s: %s, want %s", service, got, want)
		}
	}
	if got := requests.Policy("third", advertise.Policy{}, time.Hour).String(); got != "request-timeout=30s;attempt-timeout=10s;progress-timeout=1h0m0s;retry=connect" {
		t.Errorf("without an advertisement: %s", got)
	}
	for key, want := range map[string]routing.Origin{
		"request-timeout": routing.FromServiceSetting, "retry": routing.FromSetting, "progress-timeout": routing.FromAdvertisement, "attempt-timeout": routing.FromDefault,
	} {
		if got := requests.Policies.Origin("billing", advertised, key); got != want {
			t.Errorf("%s comes from %s, want %s", key, got, want)
		}
	}
}
