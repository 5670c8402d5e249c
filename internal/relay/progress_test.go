package relay

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/ringway/ringway/internal/logtest"
	"github.com/ringway/ringway/internal/wire"
)

// slowReaders take every place of the service and read nothing of their answers.
var slowReaders = map[string]func(t *testing.T, addr string, places int){
	"connections that are not read": func(t *testing.T, addr string, places int) {
		for range places {
			connect(t, addr, "GET /endless HTTP/1.1\r\nHost: a\r\n"+wire.ServiceHeader+": stream\r\n\r\n")
		}
	},
	"streams of one connection without a window": func(t *testing.T, addr string, places int) {
		conn := connect(t, addr, http2.ClientPreface)
		framer := http2.NewFramer(conn, conn)
		if err := framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}); err != nil {
			t.Fatal(err)
		}
		var block bytes.Buffer
		head := hpack.NewEncoder(&block)
		for n := range places {
			block.Reset()
			for _, f := range [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "a"}, {":path", "/endless"}, {strings.ToLower(wire.ServiceHeader), "stream"}} {
				_ = head.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}) // to memory
			}
			if err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*n + 1), BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true}); err != nil {
				t.Fatal(err)
			}
		}
		go func() { _, _ = io.Copy(io.Discard, conn) }() // it reads what there is; no DATA
	},
}

func connect(t *testing.T, addr, say string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := io.WriteString(conn, say); err != nil {
		t.Fatal(err)
	}
	return conn
}

func TestClientsThatDoNotReadGiveTheirPlacesBack(t *testing.T) {
	t.Parallel()
	const places = 20
	f := newFleet(t)
	var relays []*runningRelay
	for _, limit := range []time.Duration{5 * time.Second, 0} { // a busy machine may delay a client that reads by a second
		relays = append(relays, f.relay(func(s *Settings) { s.Requests.MaxInFlight, s.ProgressTimeout = places, limit }))
	}
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for block := make([]byte, 64<<10); r.URL.Path == "/endless"; {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	}))
	t.Cleanup(backend.Close)
	f.worker("w1", service("stream", backend))
	for i, r := range relays {
		r.settled(t, "stream", 1)
		inFlight := func() int64 {
			s, _ := r.Routes.Service("stream")
			return s.InFlight.Load()
		}
		for name, occupy := range slowReaders {
			if i > 0 { // without the limit they stay
				occupy(t, r.IngressAddr(), places/2)
				continue
			}
			before := ended(t, r)
			occupy(t, r.IngressAddr(), places)
			r.await(t, name+": all end", func() bool { return ended(t, r) == before+places && inFlight() == 0 })
		}
		if i > 0 {
			r.await(t, "every place taken", func() bool { return inFlight() == places })
			if resp, _ := r.call(t, "GET", "/", nil, wire.ServiceHeader+": stream"); resp.StatusCode != http.StatusServiceUnavailable {
				t.Errorf("without a limit: %s", resp.Status)
			}
			continue
		}
		for range places {
			if resp, _ := r.call(t, "GET", "/", nil, wire.ServiceHeader+": stream"); resp.StatusCode != http.StatusOK {
				t.Errorf("another client: %s", resp.Status)
			}
		}
		_, text := r.api(t, "/metrics", nil)
		for _, want := range []string{
			`ringway_relay_requests_total{outcome="aborted",service="stream"} 0`,
			`ringway_relay_silent_requests_total{side="endpoint"} 0`,
		} {
			if !strings.Contains(text, want+"\n") {
				t.Errorf("no %s", want)
			}
		}
	}
}

// ended is how many requests were ended because their clients were silent.
func ended(t *testing.T, r *runningRelay) int {
	t.Helper()
	return int(logtest.Series(t, r.cfg.Registry, "ringway_relay_silent_requests_total")["client"])
}
