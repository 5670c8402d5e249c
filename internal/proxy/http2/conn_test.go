package http2

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/procs"
)

// pair returns the two sides of a connection over TCP. The server answers with serve.
func pair(t testing.TB, serve func(*Stream)) (client, server *Conn) {
	t.Helper()
	out, in := procs.Connected(t)
	server = NewServer(in, Config{MaxHead: 64 << 10, MaxStreams: 250, Serve: serve}, nil)
	client = NewClient(out, Config{MaxHead: 64 << 10})
	var running sync.WaitGroup
	running.Go(func() { _ = server.Run() })
	running.Go(func() { _ = client.Run() })
	t.Cleanup(func() {
		_ = client.Close()
		_ = server.Close()
		running.Wait()
	})
	return client, server
}

// echo answers with the body of the request, and a trailer.
func echo(s *Stream) {
	defer s.Close()
	if s.Send([]Field{{Name: ":status", Value: "200"}, {Name: "x-path", Value: s.Request().Path}}, false) != nil {
		return
	}
	buf := make([]byte, 10_000)
	for {
		n, err := s.Read(buf)
		if n > 0 {
			if _, err := s.Write(buf[:n], false); err != nil {
				return
			}
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return
		}
	}
	_ = s.Send([]Field{{Name: "x-end", Value: "yes"}}, true)
}

func get(path string) []Field {
	return []Field{{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":authority", Value: "a.example"}, {Name: ":path", Value: path}}
}

// exchange sends body on a stream of its own and checks that it comes back.
func exchange(c *Conn, path string, body []byte) error {
	s := c.NewStream()
	defer s.Close()
	if err := s.Open(get(path), len(body) == 0, false); err != nil {
		return err
	}
	sent := make(chan error, 1)
	go func() {
		if len(body) == 0 {
			sent <- nil
			return
		}
		_, err := s.Write(body, true)
		sent <- err
	}()
	h, err := s.Answer()
	if err != nil {
		return errors.Join(err, <-sent)
	}
	if h.Status != 200 || len(h.Fields) != 1 || h.Fields[0].Value != path {
		return fmt.Errorf("head %+v", h)
	}
	got, err := io.ReadAll(s)
	if err = errors.Join(err, <-sent); err != nil {
		return err
	}
	if !bytes.Equal(got, body) {
		return fmt.Errorf("%d bytes came back of %d, or others", len(got), len(body))
	}
	if tr := s.Trailers(); len(tr) != 1 || tr[0].Value != "yes" {
		return fmt.Errorf("trailers %v", tr)
	}
	return nil
}

func TestBodiesOfManyStreamsComeBackWhole(t *testing.T) {
	client, _ := pair(t, echo)
	var all sync.WaitGroup
	for i := range 60 {
		all.Go(func() {
			body := bytes.Repeat([]byte{byte('a' + i%26)}, []int{0, 1, 133, 16384, 70_000, 3_000_000}[i%6])
			if err := exchange(client, fmt.Sprintf("/%d", i), body); err != nil {
				t.Error(i, err)
			}
		})
	}
	all.Wait()
	if n, _ := client.Load(); n != 0 {
		t.Errorf("%d streams are left", n)
	}
}

func TestOurServerServesTheClientOfNetHTTP(t *testing.T) {
	l := procs.Listen(t)
	procs.Accept(t, l, func(nc net.Conn) {
		_ = NewServer(nc, Config{MaxHead: 64 << 10, MaxStreams: 100, Serve: echo}, nil).Run()
	})
	tr := &http.Transport{Protocols: new(http.Protocols)}
	tr.Protocols.SetUnencryptedHTTP2(true)
	defer tr.CloseIdleConnections()
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			body := strings.Repeat("x", i*50_000)
			req, _ := http.NewRequest("POST", "http://"+l.Addr().String()+"/p", strings.NewReader(body))
			resp, err := tr.RoundTrip(req)
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			got, err := io.ReadAll(resp.Body)
			if err != nil || string(got) != body || resp.Trailer.Get("X-End") != "yes" {
				t.Errorf("%d of %d bytes, trailers %v: %v", len(got), len(body), resp.Trailer, err)
			}
		})
	}
	all.Wait()
}

func TestOurClientUsesTheServerOfNetHTTP(t *testing.T) {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Path", r.URL.Path)
		w.Header().Del("Date")
		w.Header()["Date"] = nil
		w.Header()["Content-Type"] = nil
		w.WriteHeader(200)
		_ = http.NewResponseController(w).Flush()
		_, _ = io.Copy(w, r.Body)
		w.Header().Set(http.TrailerPrefix+"X-End", "yes")
	})
	server := &http.Server{Handler: handler, Protocols: new(http.Protocols)}
	server.Protocols.SetUnencryptedHTTP2(true)
	out, err := net.Dial("tcp", procs.Serve(t, server))
	if err != nil {
		t.Fatal(err)
	}
	c := NewClient(out, Config{MaxHead: 64 << 10})
	ended := make(chan error, 1)
	go func() { ended <- c.Run() }()
	for i := range 20 {
		if err := exchange(c, fmt.Sprintf("/%d", i), bytes.Repeat([]byte("y"), i*20_000)); err != nil {
			t.Fatal(i, err)
		}
	}
	_ = c.Close()
	if err := <-ended; !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

func TestShutdownLetsTheStreamsEnd(t *testing.T) {
	began, end := make(chan struct{}), make(chan struct{})
	client, server := pair(t, func(s *Stream) {
		close(began)
		<-end
		echo(s)
	})
	result := make(chan error, 1)
	go func() { result <- exchange(client, "/", []byte("body")) }()
	<-began
	server.Shutdown()
	for client.Err() == nil { // until GOAWAY has arrived
		time.Sleep(time.Millisecond)
	}
	s := client.NewStream()
	if err := s.Open(get("/"), true, false); !errors.Is(err, ErrUnprocessed) {
		t.Errorf("a stream after GOAWAY: %v", err)
	}
	close(end)
	if err := <-result; err != nil {
		t.Error(err)
	}
	for server.Err() != ErrClosed {
		time.Sleep(time.Millisecond)
	}
}
