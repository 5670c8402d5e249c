package process_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringway/ringway/internal/memnet"
	"github.com/ringway/ringway/internal/process"
	"github.com/ringway/ringway/internal/procs"
)

// client keeps no connection.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// monitored is a logger at level info and what lets people read it.
func monitored(t *testing.T) (logger *slog.Logger, log *bytes.Buffer, m *process.Monitor, url string) {
	t.Helper()
	log = &bytes.Buffer{}
	base, err := process.NewLogger(log, "info", "json")
	if err != nil {
		t.Fatal(err)
	}
	m = process.NewMonitor()
	server := httptest.NewServer(m)
	t.Cleanup(server.Close)
	return m.Tap(base), log, m, server.URL
}

// read opens the stream; its head is there when the reader is.
func read(t *testing.T, url string) (lines *bufio.Scanner, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%v %v", resp, err)
	}
	stop = func() {
		cancel()
		_ = resp.Body.Close()
	}
	t.Cleanup(stop)
	return bufio.NewScanner(resp.Body), stop
}

func TestAReaderSeesWhatTheLogLeavesOut(t *testing.T) {
	logger, log, m, url := monitored(t)
	if logger.Enabled(t.Context(), slog.LevelDebug) {
		t.Error("debug records are made without readers")
	}
	lines, stop := read(t, url+"?level=debug")
	logger.With("member", "r1").WithGroup("peer").Debug("a detail", "took", 1500*time.Millisecond)
	if !lines.Scan() {
		t.Fatal(lines.Err())
	}
	var got map[string]any
	if err := json.Unmarshal(lines.Bytes(), &got); err != nil {
		t.Fatalf("%v: %s", err, lines.Text())
	}
	if got["level"] != "debug" || got["message"] != "a detail" || got["member"] != "r1" || got["peer.took"] != "1.5s" || got["time"] == nil {
		t.Errorf("%v", got)
	}
	logger.Info("news")
	if !lines.Scan() || !strings.Contains(lines.Text(), "news") {
		t.Errorf("%s", lines.Text())
	}
	if text := log.String(); strings.Contains(text, "a detail") || !strings.Contains(text, "news") {
		t.Errorf("the log's own level has changed: %s", text)
	}
	stop()
	procs.Await(t, "a reader that went is not served", func() bool { return m.Level() != slog.LevelDebug })
	if logger.Enabled(t.Context(), slog.LevelDebug) {
		t.Error("debug records are made for a reader that went")
	}
}

func TestEachReaderHasItsOwnLevel(t *testing.T) {
	logger, _, _, url := monitored(t)
	all, _ := read(t, url+"?level=debug")
	plain, _ := read(t, url)
	grave, _ := read(t, url+"?level=error")
	logger.Debug("one")
	logger.Info("two")
	logger.Error("three")
	for _, c := range []struct {
		lines *bufio.Scanner
		want  []string
	}{{all, []string{"one", "two", "three"}}, {plain, []string{"two", "three"}}, {grave, []string{"three"}}} {
		for _, want := range c.want {
			if !c.lines.Scan() || !strings.Contains(c.lines.Text(), want) {
				t.Errorf("%q, want %s", c.lines.Text(), want)
			}
		}
	}
}

// stuck is a client that takes nothing until it is released.
type stuck struct {
	header  http.Header
	begun   chan struct{}
	release chan struct{}
	body    bytes.Buffer
}

func (s *stuck) Header() http.Header { return s.header }
func (s *stuck) WriteHeader(int)     { close(s.begun) }
func (s *stuck) Flush()              {}
func (s *stuck) Write(p []byte) (int, error) {
	<-s.release
	return s.body.Write(p)
}

func TestASlowReaderDelaysNoOtherAndGetsTheNumberOfMissedLines(t *testing.T) {
	logger, _, m, _ := monitored(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w := &stuck{header: http.Header{}, begun: make(chan struct{}), release: make(chan struct{})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		m.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", "/?level=info", nil))
	}()
	<-w.begun
	const lines = 2000
	for i := range lines {
		logger.Info("line", "n", i) // returns although no reader takes them
	}
	close(w.release)
	procs.Await(t, "the queue is empty", m.Idle)
	logger.Info("the end")
	procs.Await(t, "the queue is empty again", m.Idle)
	cancel()
	<-done
	got, dropped := 0, 0
	for line := range strings.Lines(w.body.String()) {
		var record struct {
			Message string
			Lines   int
		}
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			t.Fatal(err)
		}
		if dropped += record.Lines; record.Message == "line" {
			got++
		}
	}
	if dropped == 0 || got+dropped != lines {
		t.Errorf("%d lines came and %d were reported as dropped, of %d", got, dropped, lines)
	}
}

// An operator pages through the lines.
func TestAReaderThatPausesLosesLinesAndNotItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base, err := process.NewLogger(io.Discard, "info", "json")
		if err != nil {
			t.Fatal(err)
		}
		m := process.NewMonitor()
		logger := m.Tap(base)
		network := memnet.New(memnet.Config{})
		defer network.Close()
		socket, err := network.Host("192.0.2.1").Listen("192.0.2.1:80")
		if err != nil {
			t.Fatal(err)
		}
		server := &http.Server{Handler: m}
		served := make(chan error, 1)
		go func() { served <- server.Serve(socket) }()
		conn, err := network.Host("192.0.2.2").Dial(t.Context(), socket.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: relay\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		const lines = 2000
		for i := range lines {
			logger.Info("line "+strings.Repeat("x", 100), "n", i)
		}
		time.Sleep(time.Minute)
		got, dropped := 0, 0
		for in := bufio.NewScanner(resp.Body); got+dropped < lines && in.Scan(); {
			var record struct{ Lines int }
			if err := json.Unmarshal(in.Bytes(), &record); err != nil {
				t.Error(err)
			}
			if dropped += record.Lines; record.Lines == 0 {
				got++
			}
		}
		if dropped == 0 || got+dropped != lines {
			t.Errorf("%d lines came and %d were reported as dropped, of %d", got, dropped, lines)
		}
		_ = conn.Close()
		_ = server.Close()
		<-served
	})
}

func TestReadersAreBounded(t *testing.T) {
	_, _, _, url := monitored(t)
	for range 8 {
		read(t, url)
	}
	resp, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(string(body), "too many") {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	loud, err := client.Get(url + "?level=loud")
	if err != nil {
		t.Fatal(err)
	}
	defer loud.Body.Close()
	if loud.StatusCode != http.StatusBadRequest {
		t.Errorf("%v", loud.Status)
	}
}

func BenchmarkADebugRecordWithoutReaders(b *testing.B) {
	base, _ := process.NewLogger(io.Discard, "info", "json")
	for name, logger := range map[string]*slog.Logger{"log": base, "log and monitor": process.NewMonitor().Tap(base)} {
		b.Run(fmt.Sprint(name), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				logger.Debug("a detail", "n", 1)
			}
		})
	}
}
