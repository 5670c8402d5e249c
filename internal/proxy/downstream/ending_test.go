package downstream_test

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringway/ringway/internal/proxy/downstream"
	"github.com/ringway/ringway/internal/proxy/http2"
)

func TestSwitchingProtocolsIsAFinalAnswer(t *testing.T) {
	addr, _ := start(t, downstream.Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Upgrade", "x")
		w.WriteHeader(http.StatusSwitchingProtocols)
		w.WriteHeader(http.StatusOK)
	})})
	c := dial(t, addr).say("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
	if all, err := io.ReadAll(c.Reader); err != nil || !bytes.HasPrefix(all, []byte("HTTP/1.1 101 ")) || bytes.Count(all, []byte("HTTP/1.1")) != 1 {
		t.Errorf("%q, %v", all, err)
	}
}

// halved is a connection in memory whose server may end its side first.
type halved struct {
	*memory
	times int
}

func (h *halved) CloseWrite() error { h.times++; return nil }

// Closed with unread bytes a connection is reset, and the client may lose the answer.
func TestAConnectionEndsByHalvesIfMoreMayArrive(t *testing.T) {
	l := serveMemory(t, downstream.Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })})
	const head = "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
	for name, c := range map[string]struct {
		says  string
		times int
	}{
		"all was read":         {head + "\r\n", 0},
		"a body that was sent": {head + "Content-Length: 3\r\n\r\nabc", 0},
		"a body that was not":  {head + "Content-Length: 3\r\n\r\n", 1},
		"something behind it":  {head + "\r\n" + get, 1},
		"no request":           {"GET /\r\n\r\n", 1},
	} {
		conn := &halved{memory: newMemory([]byte(c.says), 1000)}
		l <- conn
		within(t, conn.closed, "the end of the connection")
		if conn.times != c.times {
			t.Errorf("%s: its side was ended %d times first, want %d", name, conn.times, c.times)
		}
	}
}

func TestAHandlerLearnsThatItsClientHasResetTheStream(t *testing.T) {
	errs := make(chan error, 3)
	addr, _ := start(t, downstream.Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "x")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		_, err := w.Write(make([]byte, 64<<10))
		errs <- err
		_, _ = io.WriteString(w, "x") // is held back
		errs <- http.NewResponseController(w).Flush()
		_, err = r.Body.Read(make([]byte, 1))
		errs <- err
	})})
	s := streamsTo(t, addr).NewStream()
	if err := s.Open(request("POST", "/"), false, false); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Answer(); err != nil {
		t.Fatal(err)
	}
	s.Close()
	for _, what := range []string{"a write", "a flush", "a read"} {
		if err := <-errs; err == nil || err == io.EOF {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A handler has limited the time of a request before it takes the stream over.
func TestTheDeadlinesOfARequestEndWhenItsStreamBecomesATunnel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := downstream.New(downstream.Config{Logger: slog.New(slog.DiscardHandler), Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			control := http.NewResponseController(w)
			_, _ = control.SetReadDeadline(time.Now().Add(time.Second)), control.SetWriteDeadline(time.Now().Add(time.Second))
			tunnel, _, err := control.Hijack()
			if err == nil {
				err = tunnel.(interface{ Switched(http.Header) error }).Switched(nil)
			}
			if err != nil {
				t.Error(err)
				return
			}
			began := time.Now()
			_ = tunnel.SetReadDeadline(began.Add(time.Minute))
			if _, err = tunnel.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != time.Minute {
				t.Errorf("a read has ended after %v: %v", time.Since(began), err)
			}
			if _, err = io.WriteString(tunnel, "x"); err != nil {
				t.Errorf("a write: %v", err)
			}
			if _, _, err = control.Hijack(); err == nil {
				t.Error("a stream is taken over twice")
			}
		})})
		l := make(pipes)
		var running sync.WaitGroup
		running.Go(func() { _ = s.Serve(l) })
		ours, theirs := net.Pipe()
		l <- theirs
		c := http2.NewClient(ours, http2.Config{MaxHead: 64 << 10})
		running.Go(func() { _ = c.Run() })
		stream := c.NewStream()
		if err := stream.Open(append(request("CONNECT", "/"), http2.Field{Name: ":protocol", Value: "websocket"}), false, false); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(readerOf(stream.Read), make([]byte, 1)); err != nil {
			t.Error(err)
		}
		stream.Close()
		_ = c.Close()
		_ = s.Close()
		close(l)
		running.Wait()
		if err := s.Shutdown(t.Context()); err != nil { // waits for the watch
			t.Error(err)
		}
	})
}
