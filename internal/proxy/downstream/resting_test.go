package downstream_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/proxy/downstream"
)

// startResting starts a server whose connections rest at the first look of the watch.
func startResting(t *testing.T, cfg downstream.Config) (string, *downstream.Server) {
	t.Helper()
	if cfg.Handler == nil {
		cfg.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				w.WriteHeader(http.StatusBadRequest)
			}
			_, _ = w.Write(body)
		})
	}
	cfg.Logger = slog.New(slog.DiscardHandler)
	s := downstream.New(cfg)
	s.RestAfter(0)
	l := procs.Listen(t)
	serve(t, s, l)
	return l.Addr().String(), s
}

// rested opens n connections that have had a request, and waits until they rest.
func rested(t *testing.T, addr string, s *downstream.Server, n int) (conns []net.Conn) {
	t.Helper()
	for i := range n {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		conns = append(conns, c)
		if err := echo(c, bufio.NewReader(c), fmt.Sprint("request ", i)); err != nil {
			t.Fatal(err)
		}
	}
	procs.Await(t, "the connections rest", func() bool { return s.Resting() == n })
	return conns
}

// echo sends a body and reads it back.
func echo(c net.Conn, in *bufio.Reader, body string) error {
	_ = c.SetDeadline(time.Now().Add(patience))
	half := len(body) / 2 // the server waits for the rest of the body
	if _, err := fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body[:half]); err != nil {
		return err
	}
	if _, err := io.WriteString(c, body[half:]); err != nil {
		return err
	}
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		return err
	}
	got, err := io.ReadAll(resp.Body)
	if err == nil && (string(got) != body || resp.StatusCode != http.StatusOK) {
		err = fmt.Errorf("answer %d %q, want %q", resp.StatusCode, got, body)
	}
	return err
}

// The look of the watch and the next request come at the same time again and again.
func TestNoRequestIsLostWhileConnectionsComeToRest(t *testing.T) {
	addr, s := startResting(t, downstream.Config{})
	var clients sync.WaitGroup
	for i := range 20 {
		clients.Go(func() {
			c, err := net.Dial("tcp", addr)
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			in, random := bufio.NewReader(c), rand.New(rand.NewPCG(1, uint64(i)))
			for n := range 100 {
				if err := echo(c, in, fmt.Sprint("body ", i, " ", n)); err != nil {
					t.Errorf("request %d of client %d: %v", n, i, err)
					return
				}
				time.Sleep(time.Duration(random.IntN(25_000)) * time.Microsecond) // a tick of the watch is 20 ms
			}
		})
	}
	clients.Wait()
	if conns := rested(t, addr, s, 1); len(conns) != 1 {
		t.Fatal("no connection rests")
	}
}

func TestAConnectionThatRestsAnswersPipelinedRequests(t *testing.T) {
	addr, s := startResting(t, downstream.Config{})
	c := rested(t, addr, s, 1)[0]
	one := "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nab"
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(c, "\r\n"+strings.Repeat(one, 3)); err != nil {
		t.Fatal(err)
	}
	for in, n := bufio.NewReader(c), 0; n < 3; n++ {
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "ab" {
			t.Fatalf("answer %d: %q, %v", n, body, err)
		}
	}
}

func TestAConnectionThatRestsEndsAsOthersDo(t *testing.T) {
	t.Parallel()
	ended := func(t *testing.T, c net.Conn) {
		t.Helper()
		_ = c.SetReadDeadline(time.Now().Add(patience))
		if _, err := c.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("the connection ended with %v", err)
		}
	}
	t.Run("at the idle timeout", func(t *testing.T) {
		addr, s := startResting(t, downstream.Config{IdleTimeout: 2 * time.Second})
		ended(t, rested(t, addr, s, 1)[0])
	})
	t.Run("at a shutdown", func(t *testing.T) {
		addr, s := startResting(t, downstream.Config{})
		conns := rested(t, addr, s, 3)
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		for _, c := range conns {
			ended(t, c)
		}
	})
	t.Run("with its client", func(t *testing.T) {
		closed := make(chan struct{}, 9)
		addr, s := startResting(t, downstream.Config{ConnState: func(_ net.Conn, state http.ConnState) {
			if state == http.StateClosed {
				closed <- struct{}{}
			}
		}})
		_ = rested(t, addr, s, 1)[0].Close()
		select {
		case <-closed:
		case <-time.After(patience):
			t.Error("the connection did not end")
		}
	})
}
