package paths

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/e2e/unasked"
	"github.com/ringway/ringway/internal/fleet"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/proxy/downstream"
	"github.com/ringway/ringway/internal/relay"
	"github.com/ringway/ringway/internal/worker"
	"github.com/ringway/ringway/membership/identity"
)

const patience = 30 * time.Second

// ways are made by TestMain.
var ways []*way

// judged are the services whose failures a test counts.
var judged = []string{"odd", "brief", "h2c", "sockets", "limit1", "limit2", "limit10", "limit100", "unsent"}

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) (code int) {
	stop, err := start()
	if err == nil {
		code = m.Run()
	}
	http.DefaultClient.CloseIdleConnections()
	// A probe of memberlist ends by itself.
	if err = errors.Join(err, stop(), goleak.Find(goleak.IgnoreAnyFunction("github.com/hashicorp/memberlist.(*Memberlist).probeNode"))); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// way is one of the four ways to the service odd, and to those with another policy or protocol.
type way struct {
	name    string
	ingress string
	relays  []*fleet.Relay // the one of the ingress first
	service *service
	faults  uint64                      // that the service makes in the test that runs
	late    map[string]*unasked.Service // for this way only, because each has a first time

	services int // that the worker offers
}

// start makes a fleet without and one with certificates. stop is never nil.
func start() (stop func() error, err error) {
	var stops []func() error
	stop = func() (err error) {
		for _, s := range slices.Backward(stops) {
			err = errors.Join(err, s())
		}
		return err
	}
	for _, names := range [][2]string{{"direct", "hop"}, {"sidecar", "hop and sidecar"}} {
		service, err := serve()
		if err != nil {
			return stop, err
		}
		stops = append(stops, service.end)
		f := fleet.New(fleet.Config{Cluster: "ways", Environment: "test", Insecure: names[0] == "direct"})
		stops = append(stops, f.Stop)
		for _, id := range []string{"r1", "g1"} {
			if err := f.StartRelay(id, func(s *relay.Settings) {
				s.Requests.AdaptiveInFlight = false // these services are slow for their own reasons
				if id == "g1" {
					s.Role = identity.RoleGate
				}
			}); err != nil {
				return stop, err
			}
		}
		direct, gate := f.Relay("r1"), f.Relay("g1")
		those := []*way{
			{name: names[0], ingress: direct.IngressAddr(), relays: []*fleet.Relay{direct}, service: service},
			{name: names[1], ingress: gate.IngressAddr(), relays: []*fleet.Relay{gate, direct}, service: service},
		}
		services := []string{
			"odd=" + service.addr,
			"brief=" + service.addr + ";request-timeout=1s;progress-timeout=1s",
			"h2c=" + service.h2c + ";protocol=h2c",
			"sockets=" + service.sockets + ";protocol=h2c",
		}
		for i, w := range those {
			w.late = map[string]*unasked.Service{}
			for n, s := range late() {
				if err := s.Start("127.0.0.1:0"); err != nil {
					return stop, err
				}
				stops = append(stops, func() error { s.Stop(); return nil })
				name := fmt.Sprintf("late-%d-%d", i, n)
				w.late[name], services = s, append(services, name+"="+s.Addr())
			}
		}
		for i, limit := range limits {
			services = append(services, fmt.Sprintf("limit%d=%s;protocol=h2c", limit, service.limited[i].ln.Addr()))
		}
		services = append(services, fmt.Sprintf("unsent=%s;protocol=h2c;retry=connect", service.limited[len(limits)-1].ln.Addr()))
		if err := f.StartWorker(fleet.WorkerConfig{ID: "w1", Change: func(s *worker.Settings) { s.Services = services }}); err != nil {
			return stop, err
		}
		for _, w := range those {
			w.services = len(services)
		}
		ways = append(ways, those...)
	}
	return stop, nil
}

// late returns services of each kind that send bytes behind their answers. Package upstream
// tests more of them.
func late() (all []*unasked.Service) {
	for _, kind := range unasked.Kinds() {
		all = append(all, &unasked.Service{Kind: kind, Pause: time.Millisecond},
			&unasked.Service{Kind: kind, Pause: 10 * time.Millisecond, Nagle: true},
			&unasked.Service{Kind: kind, Pause: 60 * time.Millisecond, Nagle: true})
	}
	return all
}

// everyWay runs a test on each way.
func everyWay(t *testing.T, test func(t *testing.T, w *way)) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			procs.Await(t, "the relays to know the services", func() bool {
				for _, r := range w.relays {
					var all api.Services
					resp, err := http.Get("http://" + r.AdminAddr() + "/readyz")
					if err != nil {
						t.Fatal(err)
					}
					_ = resp.Body.Close()
					if ask(t, r, "/api/v1/services", &all); resp.StatusCode != http.StatusOK || len(all.Services) < w.services {
						return false
					}
				}
				return true
			})
			before := w.failures(t)
			w.faults = 0
			test(t, w)
			if n := w.failuresSince(t, before); n != w.faults && !t.Failed() {
				t.Errorf("%d failures are held against endpoints or relays, of %d", n, w.faults)
			}
		})
	}
}

// client is a connection to the ingress.
type client struct {
	*net.TCPConn
	in *bufio.Reader
}

func (w *way) dial(t *testing.T) *client {
	t.Helper()
	c, err := net.Dial("tcp", w.ingress)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return &client{c.(*net.TCPConn), bufio.NewReader(c)}
}

// say sends text. A relay may close a connection before it has read everything.
func (c *client) say(format string, args ...any) { _, _ = fmt.Fprintf(c, format, args...) }

// answer reads an answer to method. It returns 0 if the connection ended instead, and an error
// of the body.
func (c *client) answer(method string) (resp *http.Response, body string, err error) {
	if resp, err = http.ReadResponse(c.in, &http.Request{Method: method}); err != nil {
		return &http.Response{}, "", err
	}
	b, err := io.ReadAll(resp.Body)
	return resp, string(b), err
}

// ended reads to the end of the connection and returns what came.
func (c *client) ended() string {
	b, _ := io.ReadAll(c.in)
	return string(b)
}

// failures counts what the relays of the way hold against each endpoint and relay: all failures,
// and those in a row.
func (w *way) failures(t *testing.T) map[string]uint64 {
	t.Helper()
	n := map[string]uint64{}
	for _, r := range w.relays {
		for _, name := range judged {
			var s api.Service
			ask(t, r, "/api/v1/services/"+name, &s)
			for _, p := range s.Peers {
				of := fmt.Sprint(r.AdminAddr(), " ", name, " ", p.Node)
				n[of+" failures"] += p.Failures
				n[of+" in a row"] += uint64(p.Consecutive)
			}
		}
	}
	return n
}

// failuresSince counts what has come since. A success ends the failures in a row of the test
// before.
func (w *way) failuresSince(t *testing.T, before map[string]uint64) (n uint64) {
	t.Helper()
	for of, now := range w.failures(t) {
		n += max(now, before[of]) - before[of]
	}
	return n
}

// inFlight counts the requests in flight at the relays of the way.
func (w *way) inFlight(t *testing.T, service string) (n int64) {
	t.Helper()
	for _, r := range w.relays {
		var all api.Services
		ask(t, r, "/api/v1/services", &all)
		for _, s := range all.Services {
			if s.Service == service {
				n += s.InFlight
			}
		}
	}
	return n
}

func ask(t *testing.T, r *fleet.Relay, path string, into any) {
	t.Helper()
	resp, err := http.Get("http://" + r.AdminAddr() + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		t.Fatal(err)
	}
}

// service is the service behind all ways. The path of a request decides its answer.
type service struct {
	addr, h2c string
	sockets   string     // accepts WebSockets over HTTP/2
	limited   []*limited // for each of limits

	mu    sync.Mutex // guards the fields below
	heard bytes.Buffer
	conns []net.Conn
	ended bool

	wrote chan struct{} // a token when everything behind an answer was written
	waits chan struct{} // a token when a request was read that is not answered to its end
	left  chan struct{} // a token when the other side went
	done  sync.WaitGroup
	ln    net.Listener
	web   *http.Server
	far   *downstream.Server // of sockets
}

func serve() (*service, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	h2c, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	s := &service{addr: ln.Addr().String(), h2c: h2c.Addr().String(), ln: ln, wrote: make(chan struct{}, 1), waits: make(chan struct{}, 8), left: make(chan struct{}, 8)}
	s.web = &http.Server{Protocols: new(http.Protocols), Handler: http.HandlerFunc(overH2C)}
	s.web.Protocols.SetUnencryptedHTTP2(true)
	s.done.Go(func() { _ = s.web.Serve(h2c) })
	sockets, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(err, s.end())
	}
	s.sockets = sockets.Addr().String()
	s.far = downstream.New(downstream.Config{Handler: http.HandlerFunc(overSocket), Logger: slog.New(slog.DiscardHandler)})
	s.done.Go(func() { _ = s.far.Serve(sockets) })
	for _, limit := range limits {
		one, err := serveLimited(limit)
		if err != nil {
			return nil, errors.Join(err, s.end())
		}
		s.limited = append(s.limited, one)
	}
	s.done.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conns = append(s.conns, c)
			if s.ended {
				_ = c.Close()
			}
			s.mu.Unlock()
			s.done.Go(func() {
				s.converse(c)
				_ = c.Close()
			})
		}
	})
	return s, nil
}

// overH2C answers over HTTP/2.
func overH2C(w http.ResponseWriter, r *http.Request) {
	if path := r.URL.Path; strings.HasPrefix(path, "/call") {
		w.Header().Set("Content-Type", "application/grpc")
	}
	if r.URL.Path == "/hints" {
		w.Header().Set("Link", "</a>")
		w.WriteHeader(http.StatusEarlyHints)
		for range 30 {
			w.WriteHeader(http.StatusProcessing)
		}
	}
	_, _ = io.WriteString(w, "over h2c")
	if strings.HasSuffix(r.URL.Path, "-cut") {
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
}

// overSocket accepts WebSockets over HTTP/2, and sends back what comes, bytes that are no frames as
// well.
func overSocket(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor != 2 || r.Header.Get("Upgrade") != "websocket" || r.URL.Path == "/refused" {
		http.Error(w, "no WebSocket over "+r.Proto, http.StatusForbidden)
		return
	}
	c, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer c.Close()
	tunnel := c.(interface {
		Switched(http.Header) error
		CloseWrite() error
	})
	if err := tunnel.Switched(http.Header{"Sec-Websocket-Protocol": r.Header["Sec-Websocket-Protocol"], "X-Path": {r.URL.Path}}); err != nil {
		return
	}
	_, _ = io.Copy(c, c)
	_ = tunnel.CloseWrite()
	_, _ = io.Copy(io.Discard, c)
}

// end closes everything that the service has.
func (s *service) end() error {
	_ = s.ln.Close()
	_ = s.web.Close()
	if s.far != nil {
		_ = s.far.Close()
	}
	for _, one := range s.limited {
		_ = one.end()
	}
	s.mu.Lock()
	s.ended = true
	for _, c := range s.conns {
		_ = c.Close()
	}
	s.mu.Unlock()
	s.done.Wait()
	return nil
}

// Write keeps the bytes that arrive at the service.
func (s *service) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.heard.Write(p)
}

// forget drops what has arrived so far.
func (s *service) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard.Reset()
}

// got reports whether text arrived at the service.
func (s *service) got(text string) bool { return s.count(text) > 0 }

func (s *service) count(text string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return bytes.Count(s.heard.Bytes(), []byte(text))
}

// answers by path. The service writes the part after a zero byte separately.
var answers = map[string]string{
	"/ok":        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
	"/own":       "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nown",
	"/second":    "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok\x00" + foreign,
	"/chunked":   "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n\x00" + foreign,
	"/head":      "HTTP/1.1 200 OK\r\nContent-Length: 45\r\n\r\n\x00" + foreign,
	"/204":       "HTTP/1.1 204 No Content\r\n\r\n\x00" + foreign,
	"/304":       "HTTP/1.1 304 Not Modified\r\nContent-Length: 45\r\n\r\n\x00" + foreign,
	"/head-only": "HTTP/1.1 200 OK\r\nContent-Length: 45\r\n\r\n",
	"/204-long":  "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\nEtag: a\r\n\r\n",
	"/304-long":  "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\nEtag: a\r\n\r\n",
	"/trailers":  "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nWww-Authenticate: poison\r\nKeep-Alive: poison\r\nUpgrade: poison\r\nHost: poison\r\nChecksum: kept\r\n\r\n",
	"/cut":       "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
	"/417":       "HTTP/1.1 417 Expectation Failed\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno",
	"/426":       "HTTP/1.1 426 Upgrade Required\r\nUpgrade: other/1\r\nConnection: Upgrade, close\r\nContent-Length: 2\r\n\r\nno",
	"/407":       "HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic\r\nContent-Length: 2\r\n\r\nno",
	"/long-head": "HTTP/1.1 200 OK\r\n" + strings.Repeat("X-Field: "+strings.Repeat("v", 320)+"\r\n", longFields) + "Content-Length: 2\r\n\r\nok",
	"/hints":     "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n" + strings.Repeat("HTTP/1.1 102 Processing\r\n\r\n", 30) + "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
}

// longFields make the head of an answer nearly as long as a member takes from a service.
const longFields = 197

const foreign = "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nforeign"

// converse answers the requests of one connection.
func (s *service) converse(c net.Conn) {
	in := bufio.NewReader(io.TeeReader(c, s))
	for {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		if !slices.Contains([]string{"/417", "/426", "/silent", "/switch"}, r.URL.Path) { // these do not wait for the body
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				return
			}
		}
		switch r.URL.Path {
		case "/silent": // until the other side goes
			_, _ = io.Copy(io.Discard, in)
			return
		case "/waiting", "/events":
			if r.URL.Path == "/events" {
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\nb\r\ndata: one\n\n\r\n")
			}
			s.waits <- struct{}{}
			_, _ = io.Copy(io.Discard, in)
			s.left <- struct{}{}
			return
		case "/gone":
			return
		case "/switch": // immediately, if it is asked to
			if r.Header.Get("Upgrade") == "" {
				body, _ := io.ReadAll(r.Body)
				_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
				return
			}
			_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
			s.waits <- struct{}{}
			_, _ = io.Copy(io.Discard, in)
			return
		case "/drip": // for longer than the time limit of brief
			_, err = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n")
			tick := time.NewTicker(100 * time.Millisecond)
			defer tick.Stop()
			for n := 0; n < 20 && err == nil; n++ {
				<-tick.C
				_, err = io.WriteString(c, "x")
			}
			return
		case "/large":
			_, err = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
			for piece := make([]byte, 1<<20); err == nil; {
				_, err = c.Write(piece)
			}
			return
		}
		answer, known := answers[r.URL.Path]
		if !known {
			answer = answers["/ok"]
		}
		for text := range strings.SplitSeq(answer, "\x00") {
			if _, err := io.WriteString(c, text); err != nil {
				return
			}
		}
		if strings.Contains(answer, foreign) {
			s.wrote <- struct{}{}
		}
		if r.URL.Path == "/cut" || r.URL.Path == "/417" || r.URL.Path == "/426" {
			return
		}
	}
}
