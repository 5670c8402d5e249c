package router_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/fleet"
	"github.com/ringway/ringway/selection/router"
)

// raw hijacks the connection of each request and answers with these bytes. Then it reads until
// the relay closes.
func raw(answer string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			return // of cluster.knows
		}
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, answer)
		_, _ = io.Copy(io.Discard, conn)
	}
}

func TestTrailersAfterAnEmptyBodyComeWithItsEnd(t *testing.T) {
	t.Parallel()
	c := startCluster(t, fleet.Config{Insecure: true})
	c.relay("relay-1", nil)
	c.workers("echo", same(1, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "Sum")
		_ = http.NewResponseController(w).Flush()
		w.Header().Set("Sum", "42")
	})...)
	r := c.router("relay-2", nil)
	c.knows(r, "echo")
	server := proxy(t, "echo", r)
	for range 200 {
		resp, err := server.Client().Get(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(resp.Body); err != nil || len(body) > 0 || resp.Trailer.Get("Sum") != "42" {
			t.Fatalf("%q %v: %v", body, resp.Trailer, err)
		}
		_ = resp.Body.Close()
	}
}

func TestAContextThatEndsEndsAResponseThatIsNotRead(t *testing.T) {
	t.Parallel()
	left := make(chan struct{}, 1)
	c := startCluster(t, fleet.Config{Insecure: true})
	c.relay("relay-1", nil)
	c.workers("endless", same(1, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			return
		}
		for r.Context().Err() == nil {
			if _, err := io.WriteString(w, strings.Repeat("x", 1<<16)); err != nil {
				break
			}
		}
		left <- struct{}{}
	})...)
	r := c.router("relay-2", nil)
	c.knows(r, "endless")
	ctx, leave := context.WithCancel(t.Context())
	req, _ := http.NewRequestWithContext(ctx, "GET", "http://endless/x", nil)
	resp, err := r.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	leave()
	select {
	case <-left:
	case <-time.After(waitTime):
		t.Error("the service still sends")
	}
	if _, err := io.Copy(io.Discard, resp.Body); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestARequestMayBeUsedAgainWhenItsResponseIsClosed(t *testing.T) {
	t.Parallel()
	c := startCluster(t, fleet.Config{})
	c.relay("relay-1", nil)
	c.workers("echo", same(2, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat("x", 1<<16))
	})...)
	r := c.router("relay-2", nil)
	c.knows(r, "echo")
	req, _ := http.NewRequestWithContext(t.Context(), "GET", "http://echo/", nil)
	for i := range 100 { // each ends its connection, and the next one makes a handshake
		req.Header["X-Number"] = []string{string(rune('a' + i%26))}
		resp, err := r.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
	}
}

func TestARequestThatNoProtocolCarriesIsRefused(t *testing.T) {
	t.Parallel()
	for name, insecure := range map[string]bool{"HTTP/2 to sidecars": false, "HTTP/1.1": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := startCluster(t, fleet.Config{Insecure: insecure})
			c.relay("relay-1", nil)
			c.workers("echo", same(1, service)...)
			r := c.router("relay-2", nil)
			c.knows(r, "echo")
			for what, change := range map[string]func(*http.Request){
				"a line in a value": func(r *http.Request) { r.Header.Set("X-Name", "a\r\nX-Admin: 1") },
				"a NUL in a value":  func(r *http.Request) { r.Header.Set("X-Name", "a\x00") },
				"a space in a name": func(r *http.Request) { r.Header["X Name"] = []string{"a"} },
				"a line in a name":  func(r *http.Request) { r.Header["X-Name: a\r\nX"] = []string{"a"} },
				"an empty name":     func(r *http.Request) { r.Header[""] = []string{"a"} },
				"a line in the host": func(r *http.Request) {
					r.Host = "a\r\nX-Admin: 1"
				},
				"a line in a method": func(r *http.Request) { r.Method = "GET / HTTP/1.1\r\nX: y" },
			} {
				req, _ := http.NewRequestWithContext(t.Context(), "GET", "http://echo/echo", nil)
				change(req)
				resp, err := r.RoundTrip(req)
				var e *router.Error
				if !errors.As(err, &e) || e.Code != "bad_request" {
					t.Errorf("%s: %v %v", what, resp, err)
				}
				if err == nil {
					_ = resp.Body.Close()
				}
			}
			req, _ := http.NewRequestWithContext(t.Context(), "GET", "http://echo/fields", nil)
			req.Header["transfer-encoding"] = []string{"chunked"}
			req.Header["ringway-caller"] = []string{"admin"}
			resp, err := r.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if body, err := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK || strings.Contains(string(body), "admin") {
				t.Errorf("fields in another form changed the request: %d %q %v", resp.StatusCode, body, err)
			}
			if len(req.Header) != 2 {
				t.Errorf("the header of the program was changed: %v", req.Header)
			}
		})
	}
}

func TestAServiceThatBreaksTheProtocolFailsOnlyItsRequest(t *testing.T) {
	t.Parallel()
	c := startCluster(t, fleet.Config{Insecure: true})
	c.relay("relay-1", nil)
	// Informational answers are bounded by their bytes.
	const hint = "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
	const mostHints = 256 << 10 / len(hint)
	answers := map[string]string{
		"switch": "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n",
		"flood":  strings.Repeat(hint, 10_000),
		"large":  "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 1<<20) + "\r\n\r\n",
		"two":    "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
	}
	for service, answer := range answers {
		c.workers(service, raw(answer))
	}
	r := c.router("relay-2", nil)
	for service := range answers {
		c.knows(r, service)
		hints := 0
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(int, textproto.MIMEHeader) error { hints++; return nil }})
		req, _ := http.NewRequestWithContext(ctx, "GET", "http://"+service+"/x", nil)
		resp, err := r.RoundTrip(req)
		var e *router.Error
		if !errors.As(err, &e) || e.Code != "upstream_failed" || hints > mostHints {
			t.Errorf("%s: %v %v, %d hints", service, resp, err, hints)
		}
		if err == nil {
			_ = resp.Body.Close()
		}
	}
}

func TestATunnelThatTheProgramClosesEndsAtAServiceThatIgnoresIt(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{}, 1)
	c := startCluster(t, fleet.Config{Insecure: true})
	c.relay("relay-1", nil)
	c.workers("deaf", same(1, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			return
		}
		conn, _, _ := http.NewResponseController(w).Hijack()
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: lines\r\n\r\n")
		_, _ = io.Copy(io.Discard, conn) // the end of what the program sends
		for err := error(nil); err == nil; time.Sleep(10 * time.Millisecond) {
			_, err = conn.Write([]byte("x"))
		}
		ended <- struct{}{}
	})...)
	r := c.router("relay-2", nil)
	c.knows(r, "deaf")
	req, _ := http.NewRequestWithContext(t.Context(), "GET", "http://deaf/x", nil)
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "lines")
	resp, err := r.RoundTrip(req)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(resp, err)
	}
	_ = resp.Body.Close()
	select {
	case <-ended:
	case <-time.After(waitTime):
		t.Error("the tunnel is open")
	}
}
