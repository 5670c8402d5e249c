package downstream_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringway/ringway/internal/logtest"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/proxy/downstream"
)

const get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"

func TestRequestsThatArriveTogetherAreAnsweredInOrder(t *testing.T) {
	addr, _ := start(t, downstream.Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.URL.Path == "/0" {
			time.Sleep(20 * time.Millisecond) // later ones must not overtake it
		}
		_, _ = fmt.Fprintf(w, "%s %s", r.URL.Path, body)
	})})
	var all strings.Builder
	for i := range 50 {
		switch i % 3 {
		case 0:
			fmt.Fprintf(&all, "GET /%d HTTP/1.1\r\nHost: a\r\n\r\n", i)
		case 1:
			fmt.Fprintf(&all, "POST /%d HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc", i)
		default:
			fmt.Fprintf(&all, "POST /%d HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", i)
		}
	}
	for _, step := range []int{1, 7, all.Len()} {
		c := dial(t, addr)
		go func() {
			for text := all.String(); text != ""; {
				n := min(step, len(text))
				if _, err := io.WriteString(c.Conn, text[:n]); err != nil {
					return
				}
				text = text[n:]
			}
		}()
		for i := range 50 {
			want := fmt.Sprintf("/%d ", i)
			if i%3 > 0 {
				want += "abc"
			}
			if _, body := c.answer("GET"); body != want {
				t.Fatalf("answer %d in steps of %d is %q, want %q", i, step, body, want)
			}
		}
	}
}

// Some clients send an empty line behind a body.
func TestEmptyLinesBetweenRequestsAreSkipped(t *testing.T) {
	l := serveMemory(t, downstream.Config{Handler: http.HandlerFunc(describe), MaxHead: headLimit})
	for lines, want := range map[int]int{1: 3, 4: 3, 5: 1} { // beyond four the second request is refused
		between := strings.Repeat("\r\n", lines)
		for _, step := range []int{1, 3, 1000} {
			c := newMemory([]byte(post("Content-Length: 1", "x")+between+line("GET /2 HTTP/1.1")+between+line("GET /3 HTTP/1.1")+"\r\n"), step)
			l <- c
			within(t, c.closed, "the end of the connection")
			all := answers(t, bufio.NewReader(&c.written))
			if want < 3 && (len(all) != want+1 || all[want] != "400") || want == 3 && (len(all) != 3 || !accepted(all[2])) {
				t.Errorf("%d lines, in pieces of %d: %q", lines, step, all)
			}
		}
	}
}

func TestAnAnswerThatIsNotWholeEndsItsConnection(t *testing.T) {
	var log logtest.Log
	addr, _ := start(t, downstream.Config{Logger: slog.New(slog.NewTextHandler(&log, nil)), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "10")
		_, _ = io.WriteString(w, "abc")
		switch r.URL.Path {
		case "/abort":
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		case "/panic":
			panic("a fault of the handler")
		case "/more":
			if _, err := io.WriteString(w, "more than was declared"); !errors.Is(err, http.ErrContentLength) {
				t.Errorf("%v", err)
			}
		}
	})})
	for _, path := range []string{"/short", "/more", "/abort", "/panic"} {
		c := dial(t, addr).say("GET " + path + " HTTP/1.1\r\nHost: a\r\n\r\n" + get)
		if whole, err := io.ReadAll(c.Reader); err != nil || bytes.Count(whole, []byte("HTTP/1.1")) > 1 {
			t.Errorf("%s: %q %v", path, whole, err)
		}
	}
	if n := strings.Count(log.String(), "panicked"); n != 1 || !strings.Contains(log.String(), "a fault of the handler") {
		t.Errorf("%d panics are logged:\n%s", n, log.String())
	}
}

func TestAClientIsAskedForItsBodyWhenTheHandlerReadsIt(t *testing.T) {
	addr, _ := start(t, downstream.Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/refused" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		describe(w, r)
	})})
	head := " HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n"
	c := dial(t, addr).say("POST /" + head)
	if line, _ := c.ReadString('\n'); line != "HTTP/1.1 100 Continue\r\n" {
		t.Fatalf("%q", line)
	}
	_, _ = c.ReadString('\n')
	if _, body := c.say("abc").answer("POST"); !strings.Contains(body, `body "abc"`) {
		t.Error(body)
	}
	c = dial(t, addr).say("POST /refused" + head)
	if resp, _ := c.answer("POST"); resp.StatusCode != http.StatusForbidden || !resp.Close {
		t.Errorf("%v", resp)
	}
	c.ends()
}

func TestInformationalAnswersComeBeforeTheFinalOne(t *testing.T) {
	addr, _ := start(t, downstream.Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</a>")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Del("Link")
		_, _ = io.WriteString(w, "abc")
	})})
	c := dial(t, addr).say(get)
	if resp, _ := c.answer("GET"); resp.StatusCode != http.StatusEarlyHints || resp.Header.Get("Link") != "</a>" {
		t.Errorf("%v", resp)
	}
	if resp, body := c.answer("GET"); resp.StatusCode != http.StatusOK || body != "abc" || resp.Header.Get("Link") != "" {
		t.Errorf("%v %q", resp, body)
	}
}

// The rest of a body must never be read as a request.
func TestABodyThatTheHandlerDoesNotReadIsNoRequest(t *testing.T) {
	var requests atomic.Int64
	addr, _ := start(t, downstream.Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		if r.URL.Path == "/duplex" {
			_ = http.NewResponseController(w).EnableFullDuplex()
		}
		_, _ = io.WriteString(w, "abc")
	})})
	smuggled := strings.Repeat(get, 10)
	for _, path := range []string{"/", "/duplex"} {
		for _, size := range []int{len(smuggled), 1 << 20} {
			requests.Store(0)
			body := strings.Repeat(smuggled, size/len(smuggled))
			c := dial(t, addr)
			go func() {
				_, _ = fmt.Fprintf(c.Conn, "POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body)
			}()
			resp, _ := c.answer("POST")
			if short := size == len(smuggled); resp.Close == short && path == "/" {
				t.Errorf("%s: closes after %d bytes that were not read: %v", path, size, resp.Close)
			}
			_ = c.Conn.(*net.TCPConn).CloseWrite()
			_, _ = io.Copy(io.Discard, c.Reader)
			if n := requests.Load(); n != 1 {
				t.Errorf("%s: %d requests", path, n)
			}
		}
	}
}

func TestABodyIsReadInAnyPieces(t *testing.T) {
	addr, _ := start(t, downstream.Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		read, err := io.Copy(io.Discard, r.Body)
		_, _ = fmt.Fprintf(w, "%d %v %v", read, err, r.Trailer)
	})})
	for name, raw := range map[string]string{
		"length": "Content-Length: 300000\r\n\r\n" + strings.Repeat("x", 300000),
		"chunks": "Transfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n" + strings.Repeat("3e8\r\n"+strings.Repeat("x", 1000)+"\r\n", 300) + "0\r\nX-T: 1\r\n\r\n",
	} {
		c := dial(t, addr)
		go func() {
			text := "POST / HTTP/1.1\r\nHost: a\r\n" + raw
			for i := 1; text != ""; i++ {
				n := min(i*i%4001+1, len(text))
				if _, err := io.WriteString(c.Conn, text[:n]); err != nil {
					return
				}
				text = text[n:]
			}
		}()
		want := "300000 <nil> map[]"
		if name == "chunks" {
			want = "300000 <nil> map[X-T:[1]]"
		}
		if _, body := c.answer("POST"); body != want {
			t.Errorf("%s: %s", name, body)
		}
	}
}

func TestTheContextOfARequestEndsWhenItsClientGoesAway(t *testing.T) {
	certificate := httptest.NewUnstartedServer(nil)
	certificate.StartTLS()
	t.Cleanup(certificate.Close)
	for _, kind := range []string{"clear", "tls"} {
		for name, sent := range map[string]string{
			"no body":      get,
			"to the end":   post("Content-Length: 3", "abc"),
			"to its last":  post("Content-Length: 3", "abc"),
			"large":        post("Content-Length: 20000", strings.Repeat("x", 20000)),
			"chunked":      post("Transfer-Encoding: chunked", "3\r\nabc\r\n0\r\n\r\n"),
			"with trailer": post("Transfer-Encoding: chunked", "3\r\nabc\r\n0\r\nX: y\r\n\r\n"),
		} {
			began, ended := make(chan struct{}), make(chan struct{})
			handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				switch { // a handler that knows the length does not read on to find the end
				case name == "to the end":
					_, _ = io.Copy(io.Discard, r.Body)
				case r.ContentLength > 0:
					_, _ = io.ReadFull(r.Body, make([]byte, r.ContentLength))
				case r.ContentLength < 0:
					_, _ = io.ReadFull(r.Body, make([]byte, 3))
				}
				close(began)
				<-r.Context().Done()
				if !errors.Is(r.Context().Err(), context.Canceled) {
					t.Error(r.Context().Err())
				}
				close(ended)
			})
			l := procs.Listen(t)
			var c *client
			if kind == "tls" {
				addr, _ := serveOn(t, downstream.Config{Handler: handler}, tls.NewListener(l, &tls.Config{Certificates: certificate.TLS.Certificates}))
				nc, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true})
				if err != nil {
					t.Fatal(err)
				}
				c = newClient(t, nc)
			} else {
				addr, _ := serveOn(t, downstream.Config{Handler: handler}, l)
				c = dial(t, addr)
			}
			c.say(sent)
			within(t, began, "the request")
			_ = c.Close()
			within(t, ended, kind+", "+name+": the end of the context")
		}
	}
}

// What a client sends while its request is answered is its next request.
func TestTheNextRequestIsKeptWhileOneIsAnswered(t *testing.T) {
	certificate := httptest.NewUnstartedServer(nil)
	certificate.StartTLS()
	t.Cleanup(certificate.Close)
	l := procs.Listen(t)
	addr, _ := serveOn(t, downstream.Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
			t.Error("the context ended")
		case <-time.After(100 * time.Millisecond): // five checks of the connection
		}
		_, _ = io.WriteString(w, r.URL.Path)
	})}, tls.NewListener(l, &tls.Config{Certificates: certificate.TLS.Certificates}))
	nc, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	c := newClient(t, nc)
	next := "GET /next HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("x", 2000) + "\r\n\r\n"
	c.say("GET /first HTTP/1.1\r\nHost: a\r\n\r\n")
	time.Sleep(30 * time.Millisecond) // the first is in flight
	c.say(next)
	for _, want := range []string{"/first", "/next"} {
		if _, body := c.answer("GET"); body != want {
			t.Errorf("%q, want %q", body, want)
		}
	}
}

func TestAConnectionThatIsTakenOverKeepsItsBytes(t *testing.T) {
	ended := make(chan (<-chan struct{}), 1)
	addr, s := start(t, downstream.Config{HeadTimeout: 500 * time.Millisecond, IdleTimeout: 50 * time.Millisecond, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ended <- r.Context().Done()
		nc, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer nc.Close()
		_, _ = io.Copy(nc, buffered)
	})})
	c := dial(t, addr).say(get + "early")
	over := within(t, ended, "the request")
	time.Sleep(600 * time.Millisecond) // longer than the limits of requests
	c.say(" and late")
	if err := s.Shutdown(t.Context()); err != nil { // does not wait for it
		t.Error(err)
	}
	_ = c.Conn.(*net.TCPConn).CloseWrite()
	if all, err := io.ReadAll(c.Reader); err != nil || string(all) != "early and late" {
		t.Errorf("%q %v", all, err)
	}
	within(t, over, "the end of the context when the handler has returned")
}

// HTTP/2 is recognised by its first bytes, or was selected in the handshake.
func TestHTTP2IsServedOnTheSamePort(t *testing.T) {
	certificate := httptest.NewUnstartedServer(nil)
	certificate.StartTLS()
	t.Cleanup(certificate.Close)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) })
	var states atomic.Int64
	note := func(net.Conn, http.ConnState) { states.Add(1) }
	clear, _ := start(t, downstream.Config{Handler: handler, ConnState: note})
	l := procs.Listen(t)
	secured, _ := serveOn(t, downstream.Config{Handler: handler}, tls.NewListener(l, &tls.Config{Certificates: certificate.TLS.Certificates, NextProtos: []string{"h2", "http/1.1"}}))
	for _, c := range []struct {
		url     string
		http2   bool
		want    string
		protect *tls.Config
	}{
		{"http://" + clear, false, "HTTP/1.1", nil}, {"http://" + clear, true, "HTTP/2.0", nil},
		{"https://" + secured, false, "HTTP/1.1", &tls.Config{InsecureSkipVerify: true}}, {"https://" + secured, true, "HTTP/2.0", &tls.Config{InsecureSkipVerify: true}},
	} {
		protocols := new(http.Protocols)
		protocols.SetHTTP1(!c.http2)
		protocols.SetHTTP2(c.http2)
		protocols.SetUnencryptedHTTP2(c.http2)
		transport := &http.Transport{Protocols: protocols, TLSClientConfig: c.protect}
		for range 3 {
			resp, err := (&http.Client{Transport: transport}).Get(c.url)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if string(body) != c.want {
				t.Errorf("%s: %s, want %s", c.url, body, c.want)
			}
		}
		transport.CloseIdleConnections()
	}
	if states.Load() == 0 {
		t.Error("no state was reported")
	}
}

// Who may connect can depend on the protocol that is selected in the handshake.
func TestAConnectionThatIsForAnotherProtocolSendsNoRequest(t *testing.T) {
	certificate := httptest.NewUnstartedServer(nil)
	certificate.StartTLS()
	t.Cleanup(certificate.Close)
	var requests atomic.Int64
	handler := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) })
	addr, _ := serveOn(t, downstream.Config{Handler: handler}, tls.NewListener(procs.Listen(t), &tls.Config{Certificates: certificate.TLS.Certificates, NextProtos: []string{"other/1"}}))
	conn, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"other/1"}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	if answer, _ := io.ReadAll(conn); len(answer) > 0 || requests.Load() > 0 {
		t.Errorf("%d requests, answered with %q", requests.Load(), answer)
	}
}

func TestAShutdownAnswersWhatHasArrivedAndClosesTheRest(t *testing.T) {
	release := make(chan struct{})
	began := make(chan struct{}, 1)
	addr, s := start(t, downstream.Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			began <- struct{}{}
			<-release
		}
		_, _ = io.WriteString(w, "ok")
	})})
	slow, idle := dial(t, addr), dial(t, addr)
	idle.say(get).answer("GET")
	slow.say("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n")
	<-began
	stopped := make(chan error, 1)
	go func() { stopped <- s.Shutdown(t.Context()) }()
	idle.ends()
	select {
	case err := <-stopped:
		t.Fatal("did not wait for the request in flight", err)
	default:
	}
	close(release)
	if resp, body := slow.answer("GET"); body != "ok" || !resp.Close {
		t.Errorf("%q %v", body, resp.Header)
	}
	slow.ends()
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if _, err := net.Dial("tcp", addr); err == nil {
		t.Error("the listener is open")
	}
}

func TestAShutdownThatTakesTooLongLeavesTheRest(t *testing.T) {
	began, release := make(chan struct{}), make(chan struct{})
	addr, s := start(t, downstream.Config{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(began)
		<-release
	})})
	c := dial(t, addr).say(get)
	<-began // a connection that was not accepted yet would be refused
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := s.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	close(release)
	c.answer("GET")
}

// pipes is a listener of connections in memory, for tests on a clock of their own.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c, ok := <-p; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

func TestConnectionsThatAreTooLateAreClosed(t *testing.T) {
	for name, c := range map[string]struct {
		say        string
		after      time.Duration
		incomplete int64
		pause      time.Duration // since there was a connection
	}{
		"nothing arrives":      {"", 10 * time.Second, 0, 0},
		"nothing after a day":  {"", 10 * time.Second, 0, 24 * time.Hour},
		"half a head":          {"GET / HTTP/1.1\r\n", 10 * time.Second, 1, 0},
		"a head in small bits": {"trickle", 10 * time.Second, 1, 0},
		"no second request":    {get, 2 * time.Minute, 0, 0},
		"an empty line, too":   {get + "\r\n", 2 * time.Minute, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var incomplete atomic.Int64
				s := downstream.New(downstream.Config{
					HeadTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, Logger: slog.New(slog.DiscardHandler),
					Incomplete: func() { incomplete.Add(1) },
					Handler:    http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }),
				})
				l := make(pipes)
				served := make(chan error, 1)
				go func() { served <- s.Serve(l) }()
				ours, theirs := net.Pipe()
				if c.pause > 0 {
					l <- theirs
					_ = ours.Close()
					time.Sleep(c.pause)
					ours, theirs = net.Pipe()
				}
				l <- theirs
				began := time.Now()
				var saying sync.WaitGroup
				defer saying.Wait()
				saying.Go(func() {
					if c.say != "trickle" {
						_, _ = io.WriteString(ours, c.say)
						return
					}
					for _, b := range []byte("GET / HTTP/1.1\r\nHost: " + strings.Repeat("a", 1000)) {
						if _, err := ours.Write([]byte{b}); err != nil {
							return
						}
						time.Sleep(time.Second)
					}
				})
				_, _ = io.ReadAll(ours)
				if took := time.Since(began); took < c.after || took > c.after+100*time.Millisecond {
					t.Errorf("closed after %v, want %v", took, c.after)
				}
				synctest.Wait()
				if n := incomplete.Load(); n != c.incomplete {
					t.Errorf("%d connections are counted as incomplete, want %d", n, c.incomplete)
				}
				_ = s.Close()
				close(l)
				<-served
				if err := s.Shutdown(t.Context()); err != nil { // waits for the watch
					t.Error(err)
				}
			})
		})
	}
}

// The handler has returned, so nothing else ends the wait for the client.
func TestAClientThatDoesNotReadItsAnswerLosesItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := downstream.New(downstream.Config{
			SendTimeout: 30 * time.Second, Logger: slog.New(slog.DiscardHandler),
			Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }),
		})
		l := make(pipes)
		served := make(chan error, 1)
		go func() { served <- s.Serve(l) }()
		ours, theirs := net.Pipe() // holds no byte
		l <- theirs
		began := time.Now()
		_, _ = io.WriteString(ours, get)
		if _, err := io.WriteString(ours, get); err == nil {
			t.Error("the next request was read")
		}
		if took := time.Since(began); took < 30*time.Second || took > 31*time.Second {
			t.Errorf("closed after %v", took)
		}
		_ = s.Close()
		close(l)
		<-served
		if err := s.Shutdown(t.Context()); err != nil { // waits for the watch
			t.Error(err)
		}
	})
}

// Its body does not come, and what the handler holds for the request must not wait for that.
func TestARefusalDoesNotWaitForTheBodyOfItsRequest(t *testing.T) {
	for name, say := range map[string]struct {
		head, body string // a byte of the body each 100 ms
	}{
		"no byte of a known length":   {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n", ""},
		"chunks in small bits":        {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", strings.Repeat("1\r\nx\r\n", 100)},
		"no byte behind half a chunk": {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				returned := make(chan struct{}, 1)
				s := downstream.New(downstream.Config{Logger: slog.New(slog.DiscardHandler), Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					w.WriteHeader(http.StatusServiceUnavailable)
					returned <- struct{}{}
				})})
				l := make(pipes)
				served := make(chan error, 1)
				go func() { served <- s.Serve(l) }()
				ours, theirs := net.Pipe()
				l <- theirs
				began := time.Now()
				var saying sync.WaitGroup
				defer saying.Wait()
				saying.Go(func() {
					_, _ = io.WriteString(ours, say.head)
					for i := range len(say.body) {
						time.Sleep(100 * time.Millisecond)
						if _, err := io.WriteString(ours, say.body[i:i+1]); err != nil {
							return
						}
					}
				})
				<-returned
				if took := time.Since(began); took > 2*time.Second {
					t.Errorf("the handler has waited %v", took)
				}
				resp, err := http.ReadResponse(bufio.NewReader(ours), nil)
				if err != nil || resp.StatusCode != http.StatusServiceUnavailable || !resp.Close {
					t.Errorf("%+v, %v", resp, err)
				}
				_ = ours.Close()
				_ = s.Close()
				close(l)
				<-served
				if err := s.Shutdown(t.Context()); err != nil { // waits for the watch
					t.Error(err)
				}
			})
		})
	}
}

// The goroutine reads into the buffer of the connection, which the next connection gets.
func TestAConnectionIsNotTakenOverWhileTheBodyOfItsRequestIsRead(t *testing.T) {
	taken := make(chan error, 1)
	addr, _ := start(t, downstream.Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := http.NewResponseController(w).EnableFullDuplex(); err != nil {
			t.Error(err)
		}
		first := make(chan struct{})
		read := make(chan struct{})
		go func() {
			defer close(read)
			_, _ = r.Body.Read(make([]byte, 1))
			close(first)
			_, _ = io.Copy(io.Discard, r.Body)
		}()
		<-first
		_, _, err := http.NewResponseController(w).Hijack()
		taken <- err
		<-read
	})})
	c := dial(t, addr)
	c.say("GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n5")
	if err := <-taken; err == nil {
		t.Error("the connection was taken over")
	}
	c.say("\r\nhello\r\n0\r\n\r\n")
	if resp, _ := c.answer("GET"); resp.StatusCode != http.StatusOK {
		t.Error(resp.Status)
	}
}

func TestAClientThatDoesNotAcceptAContinueEndsNoWaitLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		took := make(chan time.Duration, 1)
		s := downstream.New(downstream.Config{Logger: slog.New(slog.DiscardHandler), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			began := time.Now()
			if err := http.NewResponseController(w).SetReadDeadline(began.Add(time.Second)); err != nil {
				t.Error(err)
			}
			_, _ = r.Body.Read(make([]byte, 1))
			took <- time.Since(began)
		})})
		l := make(pipes)
		served := make(chan error, 1)
		go func() { served <- s.Serve(l) }()
		ours, theirs := net.Pipe() // holds no byte
		l <- theirs
		_, _ = io.WriteString(ours, "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 10\r\n\r\n")
		select {
		case after := <-took:
			if after > 6*time.Second {
				t.Errorf("the read has ended after %v", after)
			}
		case <-time.After(time.Minute):
			t.Error("the read waits for the client")
		}
		_ = ours.Close()
		_ = s.Close()
		close(l)
		<-served
		if err := s.Shutdown(t.Context()); err != nil { // waits for the watch
			t.Error(err)
		}
	})
}

// A handler's deadline must not end the next request.
func TestADeadlineOfOneRequestDoesNotOutliveIt(t *testing.T) {
	t.Parallel()
	addr, _ := start(t, downstream.Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		control := http.NewResponseController(w)
		if err := errors.Join(control.SetReadDeadline(time.Now().Add(time.Second)), control.SetWriteDeadline(time.Now().Add(time.Second))); err != nil {
			t.Error(err)
		}
		_, _ = io.WriteString(w, "ok")
	})})
	c := dial(t, addr)
	for i := range 3 {
		if i > 0 {
			time.Sleep(1100 * time.Millisecond) // the deadline of the last one passes
		}
		c.say(get).answer("GET")
	}
}
