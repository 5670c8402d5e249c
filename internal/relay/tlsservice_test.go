package relay_test

import (
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ringway/ringway/internal/fleet"
	"github.com/ringway/ringway/internal/logtest"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/relay"
	"github.com/ringway/ringway/internal/relay/clienttls/clienttlstest"
	"github.com/ringway/ringway/internal/worker"
	"github.com/ringway/ringway/membership/identity"
)

// tlsFleet is relay r1, gate g1 and workers whose service billing speaks HTTP/2 over TLS.
type tlsFleet struct {
	*fleet.Fleet
	t   *testing.T
	log *logtest.Log
	// conns are the connections with requests of clients, by the address of the other end.
	conns sync.Map
}

// tlsService returns the address of a service and a file with its certificate, which is for
// 127.0.0.1 and example.com. It answers with its own trailers.
func (f *tlsFleet) tlsService() (address, certificate string) {
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/call" {
			f.conns.Store(r.RemoteAddr, true)
		}
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Trailer", "Grpc-Status")
		_, _ = fmt.Fprintf(w, "%s %s %s", r.Proto, r.TLS.ServerName, body)
		w.(http.Flusher).Flush() // without a length, as gRPC answers
		w.Header().Set("Grpc-Status", "7")
	}))
	srv.EnableHTTP2 = true
	srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	srv.StartTLS()
	f.t.Cleanup(srv.Close)
	certificate = filepath.Join(f.t.TempDir(), "service.pem")
	if err := os.WriteFile(certificate, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}), 0o600); err != nil {
		f.t.Fatal(err)
	}
	return srv.Listener.Addr().String(), certificate
}

// startTLSFleet starts the relays. With a certificate of a service and a name they trust it.
func startTLSFleet(t *testing.T, f *tlsFleet, sidecars bool, certificate string) {
	t.Helper()
	f.log = &logtest.Log{}
	f.Fleet = fleet.New(fleet.Config{Cluster: "test", Environment: "ci", Insecure: !sidecars, Logger: slog.New(slog.NewTextHandler(f.log, nil))})
	t.Cleanup(func() {
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
	})
	for _, id := range []string{"r1", "g1"} {
		if err := f.StartRelay(id, func(s *relay.Settings) {
			if id == "g1" {
				s.Role = identity.RoleGate
			} else if !sidecars {
				s.ServiceCA = certificate
				s.ServiceServerNames.Set("billing=example.com")
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
}

func (f *tlsFleet) offer(id, address, certificate, options string) {
	f.t.Helper()
	if err := f.StartWorker(fleet.WorkerConfig{ID: id, Change: func(s *worker.Settings) {
		s.Services, s.ServiceCA = []string{"billing=" + address + ";protocol=h2" + options}, certificate
	}}); err != nil {
		f.t.Fatal(err)
	}
}

// ask sends a request to a relay over HTTP/1.1 or HTTP/2.
func (f *tlsFleet) ask(id string, http2 bool) (status int, body, trailer string) {
	f.t.Helper()
	tr := &http.Transport{Protocols: new(http.Protocols)}
	tr.Protocols.SetHTTP1(!http2)
	tr.Protocols.SetUnencryptedHTTP2(http2)
	defer tr.CloseIdleConnections()
	req, err := http.NewRequestWithContext(f.t.Context(), http.MethodPost, "http://"+f.Relay(id).IngressAddr()+"/call", strings.NewReader("ping"))
	if err != nil {
		f.t.Fatal(err)
	}
	req.Header.Set("Ringway-Service", "billing")
	req.Header.Set("Te", "trailers")
	resp, err := tr.RoundTrip(req)
	if err != nil {
		return 0, err.Error(), "" // the relay does not listen yet
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	return resp.StatusCode, string(raw), resp.Trailer.Get("Grpc-Status")
}

// metric returns the lines of a metric that a member shows.
func metric(t *testing.T, admin, line string) (lines []string) {
	t.Helper()
	resp, err := http.Get("http://" + admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for l := range strings.Lines(string(body)) {
		if strings.HasPrefix(l, line) {
			lines = append(lines, strings.TrimSpace(l))
		}
	}
	return lines
}

func TestAServiceWithItsOwnTLSIsReachedDirectlyAndThroughASidecar(t *testing.T) {
	for _, sidecars := range []bool{false, true} {
		t.Run(fmt.Sprint("sidecars ", sidecars), func(t *testing.T) {
			t.Parallel()
			f := &tlsFleet{t: t}
			address, certificate := f.tlsService()
			startTLSFleet(t, f, sidecars, certificate)
			f.offer("w1", address, certificate, ";server-name=example.com;check=http:/healthz")
			for _, id := range []string{"r1", "g1"} {
				procs.Await(t, id+" reaches the service", func() bool { status, _, _ := f.ask(id, false); return status == 200 })
			}
			for range 5 {
				for _, id := range []string{"r1", "g1"} {
					for _, http2 := range []bool{false, true} {
						if status, body, trailer := f.ask(id, http2); status != 200 || body != "HTTP/2.0 example.com ping" || trailer != "7" {
							t.Fatalf("through %s, HTTP/2 %v: %d %q, Grpc-Status %q", id, http2, status, body, trailer)
						}
					}
				}
			}
			conns := 0
			f.conns.Range(func(any, any) bool { conns++; return true })
			if conns != 1 {
				t.Errorf("%d connections to the service carried the requests, want 1", conns)
			}
			if lines := metric(t, f.Worker("w1").AdminAddr(), `ringway_worker_health_checks_total{result="success",service="billing"}`); len(lines) != 1 {
				t.Errorf("the checks over TLS: %q", lines)
			}
		})
	}
}

func TestAWorkerWhoseServiceHasAnotherCertificateIsEvictedAndNamed(t *testing.T) {
	for _, sidecars := range []bool{false, true} {
		t.Run(fmt.Sprint("sidecars ", sidecars), func(t *testing.T) {
			t.Parallel()
			f := &tlsFleet{t: t}
			address, certificate := f.tlsService()
			startTLSFleet(t, f, sidecars, certificate)
			for _, id := range []string{"w1", "w2"} {
				f.offer(id, address, certificate, ";server-name=example.com;selection=random")
			}
			procs.Await(t, "the service answers", func() bool { status, _, _ := f.ask("r1", false); return status == 200 })
			// The certificate of the third is for the name and from itself, as that of an attacker.
			wrong := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it got a request") }))
			wrong.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
			wrong.EnableHTTP2 = true
			wrong.TLS = &tls.Config{Certificates: []tls.Certificate{clienttlstest.New(t).Pair(clienttlstest.Certificate{DNS: []string{"example.com"}})}}
			wrong.StartTLS()
			t.Cleanup(wrong.Close)
			f.offer("w3", wrong.Listener.Addr().String(), certificate, ";server-name=example.com;selection=random")
			member, counted := f.Relay("r1").AdminAddr(), `ringway_relay_upstream_dials_total{result="untrusted"}`
			if sidecars {
				member, counted = f.Worker("w3").AdminAddr(), `ringway_sidecar_requests_total{result="untrusted",service="billing"}`
			}
			procs.Await(t, "the worker is evicted", func() bool {
				if status, body, _ := f.ask("r1", true); status != 200 {
					t.Fatalf("a request got %d %q", status, body)
				}
				return slices.ContainsFunc(metric(t, f.Relay("r1").AdminAddr(), "ringway_selection_evictions_total"), func(line string) bool { return !strings.HasSuffix(line, " 0") })
			})
			if lines := metric(t, member, counted); len(lines) != 1 || strings.HasSuffix(lines[0], " 0") {
				t.Errorf("%q: want them counted", lines)
			}
			if log := f.log.String(); !strings.Contains(log, "cannot use a service over TLS") || !strings.Contains(log, "--service-ca") {
				t.Errorf("not logged:\n%s", log)
			}
		})
	}
}
