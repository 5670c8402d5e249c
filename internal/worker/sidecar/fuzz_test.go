package sidecar

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/http/httpguts"

	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/internal/wire"
)

// scripted is the connection to a service that sends the same whatever it reads.
type scripted struct {
	io.Reader
	heard *bytes.Buffer
}

func (s scripted) Write(b []byte) (int, error)    { return s.heard.Write(b) }
func (scripted) Close() error                     { return nil }
func (scripted) LocalAddr() net.Addr              { return nil }
func (scripted) RemoteAddr() net.Addr             { return nil }
func (scripted) SetDeadline(time.Time) error      { return nil }
func (scripted) SetReadDeadline(time.Time) error  { return nil }
func (scripted) SetWriteDeadline(time.Time) error { return nil }

// recorder takes informational answers for what they are.
type recorder struct {
	*httptest.ResponseRecorder
	t *testing.T
}

func (w recorder) WriteHeader(code int) {
	if code >= 200 || code == http.StatusSwitchingProtocols {
		w.ResponseRecorder.WriteHeader(code)
		return
	}
	nothingReserved(w.t, "relay", w.Header())
}

// FuzzSidecar lets a relay and a service send anything through a sidecar: no
// field of the name space of relays passes in either direction, a request
// that counts as unsent was not sent, and nothing stays in flight.
func FuzzSidecar(f *testing.F) {
	s := &Sidecar{cfg: Config{Logger: slog.New(slog.DiscardHandler), bodyPatience: time.Millisecond}}
	s.services.Store(&map[string]*service{})
	s.metrics = newMetrics(prometheus.NewRegistry(), &s.activity, func() map[string]*service { return *s.services.Load() })
	f.Fuzz(func(t *testing.T, request, answer []byte) {
		in, want := readRequest(request), readRequest(request)
		if in == nil {
			return
		}
		wantBody, bodyErr := io.ReadAll(want.Body)
		var heard []*bytes.Buffer
		pool, err := upstream.NewPool(upstream.Config{Address: "127.0.0.1:1", Dial: func(context.Context, string, string) (net.Conn, error) {
			heard = append(heard, new(bytes.Buffer))
			return scripted{bytes.NewReader(answer), heard[len(heard)-1]}, nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		echo := &service{name: "echo", pool: pool, counters: new(counters)}
		s.services.Store(&map[string]*service{"echo": echo})

		w := recorder{httptest.NewRecorder(), t}
		aborted := serves(t, s, w, in)
		if n := echo.inFlight.Load(); n != 0 || pool.Stats().InFlight != 0 {
			t.Fatalf("%d requests stay in flight", n)
		}
		got := w.Result()
		failed := got.Header[wire.FailedHeader]
		if in.Header.Get(wire.ServiceHeader) != "echo" {
			if len(heard) > 0 || got.StatusCode != http.StatusNotFound || !slices.Equal(failed, []string{wire.FailedUnsent}) {
				t.Fatalf("for another service: status %d, failed %q, %d connections", got.StatusCode, failed, len(heard))
			}
			return
		}

		for _, one := range heard {
			if one.Len() == 0 {
				continue
			}
			if slices.Equal(failed, []string{wire.FailedUnsent}) {
				t.Fatalf("unsent, but the service heard %q", one)
			}
			out, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(one.Bytes())))
			if err != nil {
				t.Fatalf("net/http refuses what the service heard: %v\n%q", err, one)
			}
			body, err := io.ReadAll(out.Body)
			for _, fields := range []http.Header{out.Header, out.Trailer} {
				delete(fields, wire.CallerHeader) // a relay names only callers that presented a certificate
				nothingReserved(t, "service", fields)
			}
			if out.Method != want.Method || out.Host != want.Host || !bytes.HasPrefix(wantBody, body) || err == nil && (bodyErr != nil || len(body) != len(wantBody)) {
				t.Fatalf("the service heard %s to %q with %q (%v), of %s to %q with %q (%v)", out.Method, out.Host, body, err, want.Method, want.Host, wantBody, bodyErr)
			}
		}

		own := echo.results[resultUnsent].Load()+echo.results[resultSent].Load()+echo.results[resultRejected].Load() > 0
		if failed != nil && !own {
			t.Fatalf("a service says %s %q", wire.FailedHeader, failed)
		}
		if load := got.Header[wire.LoadHeader]; !own && !aborted && !(len(load) == 1 && (load[0] == "0" || load[0] == "" && got.StatusCode == http.StatusServiceUnavailable)) {
			t.Fatalf("the load is %q with status %d", load, got.StatusCode)
		}
		got.Header.Del(wire.FailedHeader)
		got.Header.Del(wire.LoadHeader)
		nothingReserved(t, "relay", got.Header)
		nothingReserved(t, "relay", got.Trailer)
		if counted := echo.results[resultOfStatus(got.StatusCode)].Load(); !own && !aborted && counted != 1 {
			t.Fatalf("status %s is counted %s times", strconv.Itoa(got.StatusCode), strconv.FormatUint(counted, 10))
		}
	})
}

// serves reports whether the connection to the relay is broken off. Any other panic is
// the test's failure.
func serves(t *testing.T, s *Sidecar, w http.ResponseWriter, r *http.Request) (aborted bool) {
	defer func() {
		switch p := recover(); p {
		case nil:
		case http.ErrAbortHandler:
			aborted = true
		default:
			t.Fatalf("the sidecar panics: %v", p)
		}
	}()
	s.serve(w, r)
	return false
}

// readRequest reads what net/http's server would give to the handler, nil for what it
// refuses.
func readRequest(raw []byte) *http.Request {
	r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(raw)))
	if err != nil || !httpguts.ValidHostHeader(r.Host) {
		return nil
	}
	for name, values := range r.Header {
		for _, v := range values {
			if !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(v) {
				return nil
			}
		}
	}
	return r
}

func nothingReserved(t *testing.T, who string, h http.Header) {
	t.Helper()
	for name, values := range h {
		if wire.Reserved(name) && len(values) > 0 {
			t.Fatalf("the %s gets %s %q", who, name, values)
		}
	}
}
