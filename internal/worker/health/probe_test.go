package health

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/procs"
)

// normalized is a check for one probe in a test. It waits long for what must come
// and shortly for what never does.
func normalized(t *testing.T, c Check) Check {
	t.Helper()
	c.Interval = time.Minute
	if c.Timeout == 0 {
		c.Timeout = 10 * time.Second
	}
	c, err := c.Normalize()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// soon is the timeout of probes that must run into it, later that of those that read a head before.
const soon, later = 500 * time.Millisecond, 5 * time.Second

func TestAProbeReportsTheQuestionTheAnswerAndTheRemedy(t *testing.T) {
	long := strings.Repeat("x", 2*maxAnswer)
	for _, test := range []struct {
		promise string
		address string
		check   Check
		result  string
		says    []string // in the error
	}{
		{"tcp: a connection suffices", serve(t, hang), Check{Kind: TCP}, resultSuccess, nil},
		{"tcp: also one that the service breaks afterwards", serve(t, reset), Check{Kind: TCP}, resultSuccess, nil},
		{"tcp: no listener", procs.Refusing(t), Check{Kind: TCP}, resultRefused, []string{"connect to 127.0.0.1:", "connection refused", "start the service"}},
		{"http: no listener", procs.Refusing(t), Check{Kind: HTTP}, resultRefused, []string{"GET http://127.0.0.1:", "connection refused"}},
		{"grpc: no listener", procs.Refusing(t), Check{Kind: GRPC, Service: "chat"}, resultRefused, []string{`gRPC health check of "chat" at 127.0.0.1:`, "connection refused"}},

		{"http: a service that hangs", serve(t, hang), Check{Kind: HTTP, Timeout: soon}, resultTimeout, []string{"no answer within 500ms", "raise timeout"}},
		{"grpc: a service that hangs", serve(t, hang), Check{Kind: GRPC, Timeout: soon}, resultTimeout, []string{"no answer within 500ms"}},
		{"http: one that hangs in the middle", serve(t, sayAndHang("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")), Check{Kind: HTTP, Timeout: later}, resultTimeout, []string{"no end of the answer within 5s"}},
		{"http: one that hangs in its header", serve(t, sayAndHang("HTTP/1.1 200 OK\r\nContent-")), Check{Kind: HTTP, Timeout: soon}, resultTimeout, []string{"no answer within 500ms"}},
		{"http: a service that resets", serve(t, reset), Check{Kind: HTTP}, resultClosed, []string{"reset the connection"}},
		{"grpc: a service that resets", serve(t, reset), Check{Kind: GRPC}, resultClosed, []string{"reset the connection"}},
		{"http: a service that closes", serve(t, say("")), Check{Kind: HTTP}, resultClosed, []string{"closed the connection"}},
		{"http: one that closes in the middle", serve(t, say("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")), Check{Kind: HTTP}, resultClosed, []string{"in the middle of its answer"}},

		{"http: 200", serve(t, say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")), Check{Kind: HTTP}, resultSuccess, nil},
		{"http: 204 without a body, connection left open", serve(t, sayAndHang("HTTP/1.1 204 No Content\r\n\r\n")), Check{Kind: HTTP}, resultSuccess, nil},
		{"http: HTTP/1.0 without a length", serve(t, say("HTTP/1.0 200 OK\r\n\r\nok")), Check{Kind: HTTP}, resultSuccess, nil},
		{"http: a redirect is an answer and is not followed", serve(t, say("HTTP/1.1 301 Moved Permanently\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n")), Check{Kind: HTTP}, resultSuccess, nil},
		{"http: hints before the answer", serve(t, say("HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")), Check{Kind: HTTP}, resultSuccess, nil},
		{"http: an endless body is cut", serve(t, sayAndHang("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n20000\r\n"+long)), Check{Kind: HTTP}, resultSuccess, nil},
		{"http: 500 with its reason", serve(t, say("HTTP/1.1 500 No\r\nContent-Length: 10\r\n\r\nno \x1b[2Jdb\r\n")), Check{Kind: HTTP}, resultStatus, []string{`answered 500 Internal Server Error "no \x1b[2Jdb`, "see its log"}},
		{"http: 503 whose body never ends", serve(t, sayAndHang("HTTP/1.1 503 No\r\nContent-Length: 10\r\n\r\nhalf")), Check{Kind: HTTP, Timeout: later}, resultStatus, []string{`503 Service Unavailable "half"`}},
		{"http: 404", serve(t, say("HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n")), Check{Kind: HTTP, Path: "/healthz"}, resultStatus, []string{"/healthz: answered 404 Not Found: correct the path"}},
		{"http: 401", serve(t, say("HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n")), Check{Kind: HTTP}, resultStatus, []string{"without credentials"}},
		{"http: 400", serve(t, say("HTTP/1.1 400 No\r\nContent-Length: 0\r\n\r\n")), Check{Kind: HTTP}, resultStatus, []string{"TLS", "set host"}},
		{"http: 101", serve(t, sayAndHang("HTTP/1.1 101 Switching Protocols\r\n\r\n")), Check{Kind: HTTP, Timeout: later}, resultStatus, []string{"answered 101"}},
		{"http: another protocol", serve(t, say("220 \x07mail.example ESMTP\r\n")), Check{Kind: HTTP}, resultGarbage, []string{"not HTTP/1.1", "kind of check"}},
		{"http: a header that is none", serve(t, say("HTTP/1.1 200 OK\r\n \x1b[2J\r\n\r\n")), Check{Kind: HTTP}, resultGarbage, []string{`\x1b[2J`}},
		{"http: an endless header", serve(t, say("HTTP/1.1 200 OK\r\nX: "+long)), Check{Kind: HTTP}, resultGarbage, []string{"longer than 64 KiB"}},
	} {
		t.Run(test.promise, func(t *testing.T) {
			t.Parallel() // most of the time is waiting for timeouts
			c := test.check
			c.Address = test.address
			err := normalized(t, c).probe(t.Context())
			if got := resultOf(err); got != test.result {
				t.Fatalf("%s, want %s: %v", got, test.result, err)
			}
			for _, want := range test.says {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v does not say %q", err, want)
				}
			}
			if err != nil && strings.ContainsFunc(err.Error(), func(r rune) bool { return r < ' ' }) {
				t.Errorf("%q moves the reader's terminal", err)
			}
		})
	}
}

func TestErrorsThatLoopbackCannotMakeAreExplainedToo(t *testing.T) {
	c := normalized(t, Check{Kind: TCP, Address: "h:1"})
	dial := func(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }
	for _, test := range []struct {
		err          error
		result, says string
	}{
		{dial(&net.DNSError{Err: "no such host", Name: "h", IsTimeout: true}), resultUnresolved, "give an IP address"},
		{dial(os.ErrDeadlineExceeded), resultTimeout, "no connection within 10s"},
		{dial(context.DeadlineExceeded), resultTimeout, "no connection within 10s"},
		{dial(os.NewSyscallError("connect", syscall.EHOSTUNREACH)), resultUnclassified, "no route to host: correct the address"},
		{dial(os.NewSyscallError("write", syscall.EPIPE)), resultClosed, "reset"},
		{dial(os.NewSyscallError("socket", syscall.EMFILE)), "exhausted", "no file descriptors left"},
		{dial(os.NewSyscallError("connect", syscall.EADDRNOTAVAIL)), "exhausted", "local ports"},
		{dial(&net.DNSError{Err: "dial udp: socket: too many open files", Name: "h"}), "exhausted", "raise the limit of open files"},
	} {
		got := c.broken("connection", test.err)
		if got.result != test.result || !strings.Contains(got.Error(), test.says) || !errors.Is(got, test.err) {
			t.Errorf("%v: %s, %v, want %s and %q", test.err, got.result, got, test.result, test.says)
		}
	}
}

func TestAnHTTPCheckAsksForItsPathAndHost(t *testing.T) {
	seen := make(chan string, 1)
	server := serveHTTP(t, func(_ http.ResponseWriter, r *http.Request) {
		seen <- fmt.Sprintf("%s %s %s %s %v", r.Method, r.RequestURI, r.Host, r.UserAgent(), r.Close)
	})
	server.Start()
	defer server.Close()
	address := server.Listener.Addr().String()
	for _, test := range []struct {
		check Check
		want  string
	}{
		{Check{}, "GET / " + address + " ringway-health true"},
		{Check{Path: "//deep/%2Fer?full=1&x", Host: "chat.example"}, "GET //deep/%2Fer?full=1&x chat.example ringway-health true"},
	} {
		test.check.Kind, test.check.Address = HTTP, address
		if err := normalized(t, test.check).probe(t.Context()); err != nil {
			t.Error(err)
		} else if got := <-seen; got != test.want {
			t.Errorf("asked %q, want %q", got, test.want)
		}
	}
}

func TestEveryKindReachesAServiceOnIPv6(t *testing.T) {
	address := serveOn(t, "[::1]:0", say("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"))
	for _, kind := range []Kind{TCP, HTTP} {
		if err := normalized(t, Check{Kind: kind, Address: address}).probe(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// A server that resets the rest of a connection, or that sees a reset, logs
// an error for each probe.
func TestEveryProbeOpensAConnectionAndClosesItCleanly(t *testing.T) {
	for _, kind := range []Kind{TCP, HTTP, GRPC} {
		ends := make(chan error, 3)
		address := serve(t, func(conn *net.TCPConn) {
			switch kind {
			case HTTP:
				say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nok")(conn)
			case GRPC:
				answerGRPC(conn, stateServing)
			}
			_, err := io.Copy(io.Discard, conn)
			ends <- err
		})
		for range cap(ends) {
			if err := normalized(t, Check{Kind: kind, Address: address}).probe(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		for range cap(ends) {
			if err := <-ends; err != nil {
				t.Errorf("%s: the server saw %v at the end", kind, err)
			}
		}
	}
}

func TestAProbeEndsWithItsContext(t *testing.T) {
	for _, kind := range []Kind{HTTP, GRPC} {
		ctx, cancel := context.WithCancel(t.Context())
		address := serve(t, func(conn *net.TCPConn) {
			_, _ = conn.Read(make([]byte, 1)) // the probe is under way
			cancel()
			hang(conn)
		})
		err := normalized(t, Check{Kind: kind, Address: address, Timeout: time.Minute}).probe(ctx)
		if ctx.Err() == nil || err == nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

func TestAServerThatFailsAndRecoversIsFollowed(t *testing.T) {
	var broken atomic.Bool
	var opened atomic.Int64
	server := serveHTTP(t, func(w http.ResponseWriter, _ *http.Request) {
		if broken.Load() {
			http.Error(w, "database is gone", http.StatusInternalServerError)
		}
	})
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	server.Start()
	defer server.Close()

	told := make(chan Status, 10)
	c, err := New(Config{
		Name: "chat", OnChange: func(s Status) { told <- s },
		Check: Check{Kind: HTTP, Address: server.Listener.Addr().String(), Interval: 10 * time.Millisecond},
	})
	if err != nil {
		t.Fatal(err)
	}
	patient := c.cfg.Check
	patient.Timeout = 10 * time.Second // a busy machine is no failure of the server
	c.probe = patient.probe
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()

	if s := <-told; !s.Healthy || s.Probes != 1 {
		t.Errorf("at first: %+v", s)
	}
	broken.Store(true)
	if s := <-told; s.Healthy || s.Failures != 3 || !strings.Contains(s.Err.Error(), "database is gone") {
		t.Errorf("broken: %+v", s)
	}
	broken.Store(false)
	if s := <-told; !s.Healthy || s.Err != nil {
		t.Errorf("mended: %+v", s)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if probes := c.Status().Probes; opened.Load() < int64(probes) {
		t.Errorf("%d connections for %d probes", opened.Load(), probes)
	}
}
