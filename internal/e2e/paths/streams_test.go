package paths

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/procs"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// limits are the numbers of streams that the services limit1, limit2, … allow.
var limits = []uint32{1, 2, 10, 100}

// limited is a service of HTTP/2 in clear text that allows few streams and counts each stream
// above. It sends its settings late, so that a burst arrives before them. The first element of
// the path decides what it does with a request, whose answer is the body.
type limited struct {
	ln    net.Listener
	limit uint32
	done  sync.WaitGroup

	mu       sync.Mutex // guards the fields below, the connections and writes
	conns    map[*limitedConn]bool
	ended    sync.Cond       // a connection has
	seen     map[string]bool // the paths of requests
	requests int
	above    int // streams above the limit
	cold     int // requests that were sent before the settings arrived
}

// limitedConn is a connection to the service.
type limitedConn struct {
	s       *limited
	nc      net.Conn
	fr      *http2.Framer
	list    bytes.Buffer
	encoder *hpack.Encoder
	bodies  map[uint32]*limitedBody // of the open streams
	last    uint32
	away    bool
	begun   bool // the settings were sent
	settled bool // and have arrived
}

type limitedBody struct {
	bytes.Buffer
	path    string
	call    bool
	timeout string   // grpc-timeout in microseconds
	secret  []string // names of fields that came never indexed
}

// settingsAfter is when the settings are sent, work the time for an answer.
const settingsAfter, work = 2 * time.Millisecond, 2 * time.Millisecond

func serveLimited(limit uint32) (*limited, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &limited{ln: ln, limit: limit, conns: map[*limitedConn]bool{}, seen: map[string]bool{}}
	s.ended.L = &s.mu
	s.done.Go(func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			c := &limitedConn{s: s, nc: nc, fr: http2.NewFramer(nc, bufio.NewReader(nc)), bodies: map[uint32]*limitedBody{}}
			c.encoder = hpack.NewEncoder(&c.list)
			c.fr.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
			s.mu.Lock()
			s.conns[c] = true
			s.mu.Unlock()
			s.done.Go(c.serve)
		}
	})
	return s, nil
}

func (s *limited) end() error {
	_ = s.ln.Close()
	s.mu.Lock()
	for c := range s.conns {
		_ = c.nc.Close()
	}
	s.mu.Unlock()
	s.done.Wait()
	return nil
}

// cool ends the connections that are open, in order.
func (s *limited) cool() {
	s.mu.Lock()
	defer s.mu.Unlock()
	var open []*limitedConn
	for c := range s.conns {
		if c.begun {
			c.goAway(c.last, http2.ErrCodeNo)
			open = append(open, c)
		}
	}
	for slices.ContainsFunc(open, func(c *limitedConn) bool { return s.conns[c] }) {
		s.ended.Wait()
	}
}

// goAway refuses the streams above last. The lock is held.
func (c *limitedConn) goAway(last uint32, code http2.ErrCode) {
	_ = c.fr.WriteGoAway(last, code, nil)
	c.away = true
}

func (c *limitedConn) serve() {
	defer func() {
		_ = c.nc.Close()
		c.s.mu.Lock()
		defer c.s.mu.Unlock()
		delete(c.s.conns, c)
		c.s.ended.Broadcast()
	}()
	if _, err := io.ReadFull(c.nc, make([]byte, len(http2.ClientPreface))); err != nil {
		return
	}
	time.Sleep(settingsAfter) // is slow
	c.s.mu.Lock()
	c.begun = true
	_ = c.fr.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: c.s.limit})
	c.s.mu.Unlock()
	for {
		frame, err := c.fr.ReadFrame()
		if err != nil {
			return
		}
		c.s.mu.Lock()
		c.take(frame)
		c.s.mu.Unlock()
	}
}

// take handles a frame. The lock is held.
func (c *limitedConn) take(frame http2.Frame) {
	id := frame.Header().StreamID
	switch frame := frame.(type) {
	case *http2.SettingsFrame:
		if c.settled = c.settled || frame.IsAck(); !frame.IsAck() {
			_ = c.fr.WriteSettingsAck()
		}
	case *http2.PingFrame:
		if !frame.IsAck() {
			_ = c.fr.WritePing(true, frame.Data)
		}
	case *http2.RSTStreamFrame:
		delete(c.bodies, id)
	case *http2.MetaHeadersFrame:
		c.open(id, frame)
	case *http2.DataFrame:
		if b := c.bodies[id]; b != nil {
			b.Write(frame.Data())
			if frame.StreamEnded() {
				c.answer(id, b)
			}
		}
	}
}

func (c *limitedConn) open(id uint32, frame *http2.MetaHeadersFrame) {
	if c.away {
		return
	}
	if b := c.bodies[id]; b != nil { // trailers
		b.secret = append(b.secret, neverIndexed(frame)...)
		c.answer(id, b)
		return
	}
	b := &limitedBody{path: frame.PseudoValue("path"), secret: neverIndexed(frame)}
	for _, f := range frame.RegularFields() {
		switch f.Name {
		case "content-type":
			b.call = f.Value == "application/grpc"
		case "grpc-timeout":
			b.timeout = strings.TrimSuffix(f.Value, "u")
		}
	}
	s := c.s
	first := !s.seen[b.path]
	s.seen[b.path] = true
	s.requests++
	if !c.settled {
		s.cold++
	}
	above := len(c.bodies) >= int(s.limit)
	if above {
		s.above++
	}
	kind, _, _ := strings.Cut(b.path[1:], "/")
	switch {
	case above, kind == "refused" && first:
		_ = c.fr.WriteRSTStream(id, http2.ErrCodeRefusedStream)
		return
	case kind == "away" && first:
		c.goAway(c.last, http2.ErrCodeNo)
		return
	case kind == "calm" && first:
		c.goAway(c.last, http2.ErrCodeEnhanceYourCalm)
		return
	}
	c.last = id
	c.bodies[id] = b
	if frame.StreamEnded() {
		c.answer(id, b)
	}
}

// answer answers a request that has ended, after its work. The lock is held.
func (c *limitedConn) answer(id uint32, b *limitedBody) {
	after := work
	kind, _, _ := strings.Cut(b.path[1:], "/")
	if us, err := strconv.Atoi(b.timeout); err == nil && strings.HasSuffix(kind, "deadline") {
		after = time.Duration(us) * time.Microsecond
	}
	c.s.done.Add(1)
	time.AfterFunc(after, func() {
		defer c.s.done.Done()
		c.s.mu.Lock()
		defer c.s.mu.Unlock()
		defer delete(c.bodies, id)
		if kind == "cancel" || kind == "deadline" {
			_ = c.fr.WriteRSTStream(id, http2.ErrCodeCancel)
			return
		}
		c.list.Reset()
		_ = c.encoder.WriteField(hpack.HeaderField{Name: ":status", Value: "200"})
		if b.call {
			_ = c.encoder.WriteField(hpack.HeaderField{Name: "content-type", Value: "application/grpc"})
		}
		if kind == "secret" || kind == "secret-announced" {
			_ = c.encoder.WriteField(hpack.HeaderField{Name: "x-seen", Value: strings.Join(b.secret, " ")})
			_ = c.encoder.WriteField(hpack.HeaderField{Name: "x-answer", Value: "a", Sensitive: true})
		}
		if kind == "secret-announced" {
			_ = c.encoder.WriteField(hpack.HeaderField{Name: "trailer", Value: "x-end"})
		}
		_ = c.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: c.list.Bytes(), EndHeaders: true})
		_ = c.fr.WriteData(id, !b.call, b.Bytes())
		switch {
		case kind == "answered-cancel", kind == "answered-deadline":
			_ = c.fr.WriteRSTStream(id, http2.ErrCodeCancel)
		case b.call:
			c.list.Reset()
			_ = c.encoder.WriteField(hpack.HeaderField{Name: "x-end", Value: "e", Sensitive: true})
			_ = c.encoder.WriteField(hpack.HeaderField{Name: "grpc-status", Value: "0"})
			_ = c.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: c.list.Bytes(), EndHeaders: true, EndStream: true})
		}
	})
}

// kinds of requests: over HTTP/1.1 without and with a body, and calls of gRPC.
var kinds = []string{"GET", "POST", "gRPC"}

// burst sends n requests at the same time and returns how many were not answered with their
// body. fill makes the path of the i-th.
func (w *way) burst(t *testing.T, service, kind string, n int, path func(i int) string) (failures []string) {
	t.Helper()
	if kind == "gRPC" {
		return w.burstOfCalls(t, service, n, path)
	}
	clients := make([]*client, n)
	for i := range clients {
		clients[i] = w.dial(t)
		defer clients[i].Close()
	}
	body := ""
	for i, c := range clients {
		if kind == "POST" {
			body = "hello"
		}
		c.say("%s %s HTTP/1.1\r\nHost: a\r\nRingway-Service: %s\r\nContent-Length: %d\r\n\r\n%s", kind, path(i), service, len(body), body)
	}
	for _, c := range clients {
		if resp, got, err := c.answer(kind); err != nil || resp.StatusCode != http.StatusOK || got != body {
			failures = append(failures, fmt.Sprintf("%v %q %v", resp.Status, got, err))
		}
	}
	return failures
}

// burstOfCalls is burst for calls of gRPC. A failure is the status that the trailers state.
func (w *way) burstOfCalls(t *testing.T, service string, n int, path func(i int) string, fields ...string) (failures []string) {
	t.Helper()
	f := w.frames(t)
	f.service = service
	for i := range n {
		stream := uint32(2*i + 1)
		f.request(t, stream, false, "POST", path(i), append(fields, "content-type", "application/grpc", "te", "trailers")...)
		_ = f.WriteData(stream, true, []byte("\x00\x00\x00\x00\x05hello"))
	}
	for ended := 0; ended < n; {
		frame, err := f.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		switch frame := frame.(type) {
		case *http2.RSTStreamFrame:
			ended++
			failures = append(failures, frame.ErrCode.String())
		case *http2.MetaHeadersFrame:
			if !frame.StreamEnded() {
				continue
			}
			ended++
			status := ""
			for _, field := range frame.RegularFields() {
				if strings.HasPrefix(field.Name, "grpc-") && (field.Name != "grpc-status" || field.Value != "0") {
					status += field.Name + " " + field.Value + " "
				}
			}
			if status != "" {
				failures = append(failures, status)
			}
		}
	}
	return failures
}

// With LONG_TESTS a hundred bursts of each kind.
func TestABurstOnAColdServiceOverHTTP2NeitherFailsNorExceedsItsStreams(t *testing.T) {
	bursts := 1
	if os.Getenv("LONG_TESTS") != "" {
		bursts = 100
	}
	const at = 20 // requests of a burst
	everyWay(t, func(t *testing.T, w *way) {
		for i, limit := range limits {
			s, name := w.service.limited[i], fmt.Sprintf("limit%d", limit)
			for _, kind := range kinds {
				cold := s.counts().cold
				var failures []string
				for range bursts {
					s.cool()
					failures = append(failures, w.burst(t, name, kind, at, func(int) string { return "/work" })...)
				}
				cold = s.counts().cold - cold
				t.Logf("%d streams, %s: %d of %d failed, %d were sent before the settings arrived", limit, kind, len(failures), bursts*at, cold)
				if len(failures) > 0 {
					t.Errorf("%d streams, %s: %d of %d failed: %s", limit, kind, len(failures), bursts*at, failures[0])
				}
			}
			if c := s.counts(); c.above > 0 {
				t.Errorf("the service that allows %d streams got %d more, of %d requests", limit, c.above, c.requests)
			}
		}
	})
}

// counts are what a service has counted.
type counts struct{ requests, above, cold int }

func (s *limited) counts() counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return counts{s.requests, s.above, s.cold}
}

// RFC 9113 §8.7 and §6.8: a service that refuses a stream, or names the last one that it takes,
// has not acted on what it refuses.
func TestWhatAServiceRefusesUnprocessedIsSentToItOnceMore(t *testing.T) {
	everyWay(t, func(t *testing.T, w *way) {
		s := w.service.limited[len(limits)-1]
		for _, service := range []string{"limit100", "unsent"} { // with retry=connect, too
			for _, refusal := range []string{"refused", "away", "calm"} {
				path := "/" + refusal + "/" + service + "-" + strings.ReplaceAll(w.name, " ", "-") + "/"
				for _, kind := range kinds {
					if failures := w.burst(t, service, kind, 1, func(int) string { return path + kind }); len(failures) > 0 {
						t.Errorf("%s, %s, %s: %s", service, refusal, kind, failures)
					}
				}
				// A call that is refused while its client still sends.
				f := w.frames(t)
				f.service = service
				f.request(t, 1, false, "POST", path, "content-type", "application/grpc", "te", "trailers")
				_ = f.WriteData(1, false, []byte("\x00\x00\x00\x00\x05he"))
				procs.Await(t, "the refusal", func() bool {
					s.mu.Lock()
					defer s.mu.Unlock()
					return s.seen[path]
				})
				_ = f.WriteData(1, true, []byte("llo"))
				if _, status, reset := f.answer(t, 1, "grpc-status"); status != "0" || reset {
					t.Errorf("%s, %s, a call that has not ended: status %s, reset %v", service, refusal, status, reset)
				}
			}
		}
	})
}

func TestAServiceThatEndsItsConnectionsInOrderLosesNoCall(t *testing.T) {
	const ends, at = 10, 10
	everyWay(t, func(t *testing.T, w *way) {
		s := w.service.limited[len(limits)-1]
		for _, kind := range kinds {
			before := s.counts().requests
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				for range ends {
					s.cool()
				}
			}()
			defer func() { <-ended }()
			for over := false; !over; {
				select {
				case <-ended:
					over = true
				default:
				}
				if failures := w.burst(t, "limit100", kind, at, func(int) string { return "/work" }); len(failures) > 0 {
					t.Fatalf("%s: %s", kind, failures)
				}
			}
			if s.counts().requests == before {
				t.Errorf("%s: no request arrived", kind)
			}
		}
	})
}

// As gRPC translates a reset: https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md#errors
func TestACallThatItsServiceCancelsIsCancelledOrOutOfTimeAndNeverUnavailable(t *testing.T) {
	const calls = 100
	everyWay(t, func(t *testing.T, w *way) {
		before := w.failures(t)
		defer func() { w.faults = w.failuresSince(t, before) }() // a service that cancels has failed
		for _, c := range []struct{ kind, status string }{
			{"cancel", "grpc-status 1 "}, {"answered-cancel", "grpc-status 1 "}, {"deadline", "grpc-status 4 "}, {"answered-deadline", "grpc-status 4 "},
		} {
			var fields []string
			if strings.HasSuffix(c.kind, "deadline") {
				fields = []string{"grpc-timeout", "60m"}
			}
			failures := w.burstOfCalls(t, "limit100", calls, func(int) string { return "/" + c.kind }, fields...)
			others := slices.DeleteFunc(slices.Clone(failures), func(f string) bool { return strings.Contains(f, c.status) })
			if len(failures) != calls || len(others) > 0 {
				t.Errorf("%s: %d of %d calls failed, %d with another status: %q", c.kind, len(failures), calls, len(others), others[:min(1, len(others))])
			}
		}
	})
}

// neverIndexed returns the names of the fields that came never indexed.
func neverIndexed(frame *http2.MetaHeadersFrame) (names []string) {
	for _, f := range frame.RegularFields() {
		if f.Sensitive {
			names = append(names, f.Name)
		}
	}
	return names
}

// RFC 7541 §7.1.3: an intermediary must not index them either.
func TestAFieldThatArrivesNeverIndexedIsSentOnNeverIndexed(t *testing.T) {
	everyWay(t, func(t *testing.T, w *way) {
		for _, path := range []string{"/secret", "/secret-announced"} {
			f := w.frames(t)
			f.service = "limit100"
			list := func(stream uint32, end bool, fields ...hpack.HeaderField) {
				f.list.Reset()
				for _, field := range fields {
					_ = f.WriteField(field)
				}
				_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: f.list.Bytes(), EndStream: end, EndHeaders: true})
			}
			for stream := uint32(1); stream <= 3; stream += 2 { // the second finds the tables of the first
				list(stream, false, hpack.HeaderField{Name: ":method", Value: "POST"}, hpack.HeaderField{Name: ":scheme", Value: "http"},
					hpack.HeaderField{Name: ":authority", Value: "a"}, hpack.HeaderField{Name: ":path", Value: path},
					hpack.HeaderField{Name: "ringway-service", Value: "limit100"}, hpack.HeaderField{Name: "content-type", Value: "application/grpc"}, hpack.HeaderField{Name: "te", Value: "trailers"},
					hpack.HeaderField{Name: "trailer", Value: "x-begin"}, hpack.HeaderField{Name: "x-plain", Value: "p"},
					hpack.HeaderField{Name: "authorization", Value: "secret", Sensitive: true})
				_ = f.WriteData(stream, false, []byte("\x00\x00\x00\x00\x05hello"))
				list(stream, true, hpack.HeaderField{Name: "x-begin", Value: "b", Sensitive: true})
				seen, got := "", ""
				for ended := false; !ended; {
					frame, err := f.ReadFrame()
					if err != nil {
						t.Fatal(err)
					}
					if head, ok := frame.(*http2.MetaHeadersFrame); ok {
						for _, field := range head.RegularFields() {
							if field.Name == "x-seen" {
								seen = field.Value
							}
						}
						got += strings.Join(neverIndexed(head), " ") + ";"
						ended = head.StreamEnded()
					}
				}
				if seen != "authorization x-begin" || got != "x-answer;x-end;" {
					t.Errorf("%s: of the request %q came never indexed, of the answer %q", path, seen, got)
				}
			}
		}
		// Over HTTP/1.1 none is marked: as in nghttp2, credentials are never indexed.
		c := w.dial(t)
		c.say("GET /secret HTTP/1.1\r\nHost: a\r\nRingway-Service: limit100\r\nAuthorization: secret\r\nCookie: a=b\r\nX-Plain: p\r\n\r\n")
		resp, _, err := c.answer("GET")
		seen := strings.Fields(resp.Header.Get("X-Seen"))
		slices.Sort(seen)
		if err != nil || !slices.Equal(seen, []string{"authorization", "cookie"}) {
			t.Errorf("HTTP/1.1: %q came never indexed, %v", seen, err)
		}
	})
}
