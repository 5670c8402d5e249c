package process_test

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringway/ringway/internal/memnet"
	"github.com/ringway/ringway/internal/process"
)

// admin is an admin API in a bubble of synctest, and a way to it.
type admin struct {
	dial func(ctx context.Context, _, _ string) (net.Conn, error)
	// gone gets a value for each connection that ends.
	gone chan struct{}
}

func serveAdmin(t *testing.T, mux *http.ServeMux) admin {
	t.Helper()
	network := memnet.New(memnet.Config{})
	socket, err := network.Host("192.0.2.1").Listen("192.0.2.1:80")
	if err != nil {
		t.Fatal(err)
	}
	a := admin{gone: make(chan struct{}, 1)}
	a.dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return network.Host("192.0.2.2").Dial(ctx, socket.Addr().String())
	}
	server := &http.Server{Protocols: new(http.Protocols), ConnState: func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			a.gone <- struct{}{}
		}
	}}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	if err := (process.AdminConfig{}).Serve(server, mux, process.AccessConfig{}); err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(socket) }()
	t.Cleanup(func() {
		_ = server.Close()
		<-served
		_ = network.Close()
	})
	return a
}

// Probes need no token, so any peer can ask for them.
func TestACallerThatReadsNoAnswerKeepsNoConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := serveAdmin(t, process.NewMux(config()))
		conn, err := a.dial(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		probes := strings.Repeat("GET /readyz HTTP/1.1\r\nHost: 192.0.2.1\r\n\r\n", 10_000)
		go func() { _, _ = io.WriteString(conn, probes) }() // it ends with the connection
		select {
		case <-a.gone:
		case <-time.After(2 * time.Minute):
			t.Error("the connection is there after two minutes")
		}
	})
}

func TestAReaderMayPageThroughALargeAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mux, text := http.NewServeMux(), strings.Repeat("x", 1<<20)
		mux.HandleFunc("GET /api/v1/members", func(w http.ResponseWriter, _ *http.Request) { process.WriteJSON(w, http.StatusOK, text) })
		a := serveAdmin(t, mux)
		conn, err := a.dial(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, "GET /api/v1/members HTTP/1.1\r\nHost: 192.0.2.1\r\nConnection: close\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		for got := 0; ; time.Sleep(2 * time.Minute) { // a screen
			n, err := io.CopyN(io.Discard, conn, 256<<10)
			if got += int(n); err == io.EOF && got > len(text) {
				return
			}
			if err != nil {
				t.Fatalf("after %d bytes: %v", got, err)
			}
		}
	})
}

func TestAStreamOutlivesItsSilence(t *testing.T) {
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		synctest.Test(t, func(t *testing.T) {
			base, err := process.NewLogger(io.Discard, "info", "json")
			if err != nil {
				t.Fatal(err)
			}
			m := process.NewMonitor()
			logger, mux := m.Tap(base), http.NewServeMux()
			mux.Handle("GET /", m)
			a := serveAdmin(t, mux)
			transport := &http.Transport{DialContext: a.dial, Protocols: new(http.Protocols)}
			defer transport.CloseIdleConnections()
			transport.Protocols.SetHTTP1(protocol == "HTTP/1.1")
			transport.Protocols.SetUnencryptedHTTP2(protocol == "HTTP/2.0")
			resp, err := (&http.Client{Transport: transport}).Get("http://192.0.2.1/")
			if err != nil || resp.Proto != protocol {
				t.Fatal(resp, err)
			}
			defer resp.Body.Close()
			lines := bufio.NewScanner(resp.Body)
			for range 3 {
				time.Sleep(time.Hour)
				logger.Log(t.Context(), slog.LevelInfo, "news")
				if !lines.Scan() {
					t.Fatal(protocol, lines.Err())
				}
			}
		})
	}
}
