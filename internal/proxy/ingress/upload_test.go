package ingress_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringway/ringway/internal/proxy/ingress"
	"github.com/ringway/ringway/internal/wire"
	"github.com/ringway/ringway/selection"
)

// post begins a POST of which the body follows.
func (x *trial) post(framing string) net.Conn {
	x.t.Helper()
	dial := x.dial()
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	conn, err := dial(x.t.Context(), "tcp", x.addr)
	if err != nil {
		x.t.Fatal(err)
	}
	x.t.Cleanup(func() { _ = conn.Close() })
	if _, err := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: a\r\nRingway-Service: echo\r\n"+framing+"\r\n\r\n"); err != nil {
		x.t.Fatal(err)
	}
	return conn
}

// silence returns how long requests have waited for the only worker.
func (x *trial) silence() time.Duration { return x.Endpoints.Silence("w1.1", x.now()) }

func readAll(_ int64, _ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }

func TestASlowUploadIsNeitherSilenceNorLatencyOfItsWorker(t *testing.T) {
	const parts = 12
	for name, body := range map[string]struct{ framing, part, end string }{
		"sent with the head": {fmt.Sprintf("Content-Length: %d", parts), "x", ""},
		"long":               {fmt.Sprintf("Content-Length: %d", parts*20_000), strings.Repeat("x", 20_000), ""},
		"in chunks":          {"Transfer-Encoding: chunked", "1\r\nx\r\n", "0\r\n\r\n"},
	} {
		for _, chosen := range []string{"slots;fresh=200ms", "p2c"} {
			t.Run(name+" with "+chosen, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					x := tryOn(t, inMemory(t), 1, readAll, func(*ingress.Config) {})
					x.choose(chosen)
					conn := x.post(body.framing)
					for i := range parts {
						time.Sleep(50 * time.Millisecond) // is slow
						if i == parts*2/3 {
							if resp, text := x.send("GET", ""); resp.StatusCode != http.StatusOK {
								t.Errorf("another request while the client sends: %d %s", resp.StatusCode, text)
							}
							if silence := x.silence(); silence != 0 {
								t.Errorf("the worker has been silent for %v, though it waits for the client", silence)
							}
						}
						_, _ = io.WriteString(conn, body.part)
					}
					_, _ = io.WriteString(conn, body.end)
					if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || resp.StatusCode != http.StatusOK {
						t.Fatal(resp, err)
					}
					x.awaitInFlight(0)
					if latency := x.Endpoints.Stats(x.now())[0].Latency; latency > 50*time.Millisecond {
						t.Errorf("a latency of %v, which the client took", latency)
					}
				})
			})
		}
	}
}

func TestAWorkerIsSilentFromTheEndOfASlowUploadOn(t *testing.T) {
	const pause = 500 * time.Millisecond
	for name, body := range map[string]struct{ framing, first, last string }{
		"sent with the head": {"Content-Length: 2", "x", "x"},
		"in chunks":          {"Transfer-Encoding: chunked", "1\r\nx\r\n", "0\r\n\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := tryOn(t, inMemory(t), 1, func(n int64, w http.ResponseWriter, r *http.Request) {
					readAll(n, w, r)
					time.Sleep(2 * pause) // is slow
				}, func(*ingress.Config) {})
				conn := x.post(body.framing)
				_, _ = io.WriteString(conn, body.first)
				time.Sleep(pause)
				_, _ = io.WriteString(conn, body.last)
				time.Sleep(pause)
				if got := x.silence(); got < pause-time.Millisecond || got > pause+time.Millisecond {
					t.Errorf("silent for %v, want the %v since the request is whole", got, pause)
				}
				if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || resp.StatusCode != http.StatusOK {
					t.Fatal(resp, err)
				}
				x.awaitInFlight(0)
				if got := x.Endpoints.Stats(x.now())[0].Latency; got < 2*pause-time.Millisecond || got > 2*pause+time.Millisecond {
					t.Errorf("a latency of %v, want %v", got, 2*pause)
				}
				if got := x.Endpoints.Silence("w1.1", x.now()+selection.Instant(time.Hour)); got != 0 {
					t.Errorf("silent for %v with nothing in flight", got)
				}
			})
		})
	}
}

func TestAWorkerThatReadsNoBodyIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		x := tryOn(t, inMemory(t), 1, func(int64, http.ResponseWriter, *http.Request) { <-end }, func(*ingress.Config) {})
		conn := x.post("Content-Length: 100000000")
		go func() { _, _ = conn.Write(make([]byte, 100_000_000)) }() // until the test closes it
		time.Sleep(time.Second)
		if got := x.silence(); got < 900*time.Millisecond {
			t.Errorf("silent for %v, though the client has sent more than the worker reads for a second", got)
		}
		close(end)
		x.awaitInFlight(0)
	})
}

func TestAWorkerThatGivesUpASlowUploadHasNoLatencyOfIt(t *testing.T) {
	t.Parallel()
	const patience = 500 * time.Millisecond
	x := try(t, 1, func(_ int64, w http.ResponseWriter, _ *http.Request) {
		time.Sleep(patience) // in which nothing comes
		w.Header().Set("Connection", "close")
		w.WriteHeader(http.StatusRequestTimeout)
	}, func(*ingress.Config) {})
	conn := x.post("Content-Length: 100000") // too long to be sent together with the head
	_, _ = conn.Write(make([]byte, 20_000))
	if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || resp.StatusCode != http.StatusRequestTimeout {
		t.Fatal(resp, err)
	}
	_ = conn.Close()
	x.awaitInFlight(0)
	if got := x.Endpoints.Stats(x.now())[0].Latency; got >= patience {
		t.Errorf("a latency of %v, which the client took", got)
	}
}

func TestASlowUploadWithoutLengthOverHTTP2IsNoLatency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := tryOn(t, inMemory(t), 1, readAll, func(*ingress.Config) {})
		body, client := io.Pipe()
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/", body)
		r.Header.Set(wire.ServiceHeader, "echo")
		r.Proto, r.ProtoMajor, r.ProtoMinor, r.ContentLength = "HTTP/2.0", 2, 0, -1
		go func() {
			_, _ = io.WriteString(client, "hello")
			time.Sleep(500 * time.Millisecond)
			_ = client.Close()
		}()
		x.handler.ServeHTTP(httptest.NewRecorder(), r)
		if got := x.Endpoints.Stats(x.now())[0].Latency; got > 50*time.Millisecond {
			t.Errorf("a latency of %v, which the client took", got)
		}
	})
}

func TestSlowUploadsDoNotLimitHowManyRequestsOfTheServiceWait(t *testing.T) {
	for slow, limited := range map[string]bool{"clients": false, "workers": true} {
		t.Run("slow "+slow, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pause, latency := time.Duration(0), time.Duration(0)
				x := tryOn(t, inMemory(t), 16, func(n int64, w http.ResponseWriter, r *http.Request) {
					readAll(n, w, r)
					time.Sleep(latency)
				}, func(cfg *ingress.Config) { cfg.AdaptiveInFlight, cfg.MaxInFlight, cfg.MaxAttempts = true, 10_000, 1 })
				waiting := &x.Service.Waiting
				burst := func() {
					var all sync.WaitGroup
					for range 60 {
						all.Go(func() {
							body, client := io.Pipe()
							r := httptest.NewRequestWithContext(t.Context(), "POST", "/", body)
							r.Header.Set(wire.ServiceHeader, "echo")
							r.ContentLength = 2
							go func() {
								_, _ = io.WriteString(client, "x")
								time.Sleep(pause)
								_, _ = io.WriteString(client, "x")
								_ = client.Close()
							}()
							x.served.ServeHTTP(httptest.NewRecorder(), r)
						})
					}
					all.Wait()
				}
				tick := func(n int) { waiting.Tick(time.Duration(n)*250*time.Millisecond, 16) }
				tick(0)
				burst()
				tick(1)
				if limited {
					latency = time.Second
				} else {
					pause = time.Second
				}
				for n := range 2 {
					for range 600 { // many more wait, each time
						if !waiting.Enter() {
							t.Fatal("the limit came before the first slow answer")
						}
					}
					burst()
					tick(2 + n)
				}
				if got := waiting.Limit() > 0; got != limited {
					t.Errorf("a limit of %d", waiting.Limit())
				}
			})
		})
	}
}

// Over HTTP/2 either side of an open stream may wait for the other, as in a call of gRPC.
func TestAnOpenStreamIsNoSilenceButTheWayToItsHeadIsLatency(t *testing.T) {
	const slow = 300 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		x := tryOn(t, inMemory(t), 1, func(_ int64, w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).EnableFullDuplex()
			_, _ = io.ReadFull(r.Body, make([]byte, 5))
			time.Sleep(slow) // until the head
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			_, _ = io.Copy(io.Discard, r.Body)
		}, func(*ingress.Config) {})
		body, client := io.Pipe()
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/", body)
		r.Header.Set(wire.ServiceHeader, "echo")
		r.Proto, r.ProtoMajor, r.ProtoMinor, r.ContentLength = "HTTP/2.0", 2, 0, -1
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			x.handler.ServeHTTP(httptest.NewRecorder(), r)
		}()
		_, _ = io.WriteString(client, "hello")
		time.Sleep(slow / 2)
		if got := x.silence(); got != 0 {
			t.Errorf("silent for %v while the client may send", got)
		}
		time.Sleep(slow)
		if got := x.Endpoints.Stats(x.now())[0].Latency; got < slow-time.Millisecond || got > slow+time.Millisecond {
			t.Errorf("a latency of %v, want %v", got, slow)
		}
		_ = client.Close()
		<-ended
		if got := x.Endpoints.Silence("w1.1", x.now()+selection.Instant(time.Hour)); got != 0 {
			t.Errorf("silent for %v with nothing in flight", got)
		}
	})
}
