package http2

import (
	"bytes"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	xhttp2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// frames makes a seed: each argument is the bytes of a frame.
func frames(all ...[]byte) []byte { return bytes.Join(all, nil) }

func headersFrame(stream uint32, flags uint8, fields ...Field) []byte {
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, f := range fields {
		_ = encoder.WriteField(f)
	}
	return append(frame{block.Len(), frameHeaders, flags | flagEndHeaders, stream}.append(nil), block.Bytes()...)
}

func rawFrame(kind frameType, flags uint8, stream uint32, payload string) []byte {
	return append(frame{len(payload), kind, flags, stream}.append(nil), payload...)
}

// received lists what a side may get: frames of each type, whole, wrong and cut off.
var received = [][]byte{
	nil,
	rawFrame(frameData, flagEndStream, 1, "hello"),
	frames(rawFrame(frameData, flagPadded, 1, "\x03hi\x00\x00\x00"), rawFrame(frameData, flagEndStream, 1, "")),
	rawFrame(frameData, flagPadded, 1, "\x09hi"),
	rawFrame(frameData, 0, 0, "x"),
	rawFrame(frameData, 0, 7, "x"),
	rawFrame(frameContinuation, flagEndHeaders, 1, "\x82"),
	frames(rawFrame(frameHeaders, 0, 3, "\x82\x86"), rawFrame(frameContinuation, flagEndHeaders, 3, "\x84")),
	frames(rawFrame(frameHeaders, 0, 3, "\x82"), rawFrame(framePing, 0, 0, "12345678")),
	rawFrame(frameHeaders, flagEndHeaders|flagPriority, 3, "\x00\x00\x00\x01\x07\x82\x86\x84"),
	rawFrame(frameHeaders, flagEndHeaders|flagPriority, 3, "\x00\x00"),
	rawFrame(frameHeaders, flagEndHeaders|flagPadded|flagPriority, 3, "\x01\x00\x00\x00\x03\x07\x82\x00"),
	rawFrame(framePriority, 0, 1, "\x00\x00\x00\x00\x07"),
	rawFrame(framePriority, 0, 1, "\x00\x00\x00\x01\x07"),
	frames(appendReset(nil, 1, Cancel), appendReset(nil, 1, NoError), appendReset(nil, 9, Cancel)),
	frames(appendSettings(nil, setting{settingInitialWindow, 0}, setting{settingHeaderTableSize, 0}), appendSettings(nil, setting{settingInitialWindow, maxWindow})),
	appendSettings(nil, setting{settingMaxFrame, 1}),
	rawFrame(frameSettings, flagAck, 0, ""),
	rawFrame(framePushPromise, flagEndHeaders, 1, "\x00\x00\x00\x02\x82"),
	frames(appendPing(nil, 0, [8]byte{1}), appendPing(nil, flagAck, shutdownPing)),
	frames(appendGoAway(nil, 0, NoError, "bye"), appendGoAway(nil, 1, EnhanceYourCalm, "")),
	frames(appendWindowUpdate(nil, 0, 1), appendWindowUpdate(nil, 1, 1<<20), appendWindowUpdate(nil, 1, 0)),
	appendWindowUpdate(nil, 0, maxWindow),
	rawFrame(0x77, 0xff, 1<<31-1, "unknown"),
	{0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1},
	{0, 0, 8, 6, 0, 0},
	headersFrame(1, flagEndStream, Field{Name: "x-trailer", Value: "yes"}),
}

// within fails a fuzz target whose connection does not end with its input.
func within(t *testing.T, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatal("the connection does not end with its input")
	}
}

// checkHeld fails if more is held than the windows allow.
func checkHeld(t *testing.T, c *Conn) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	all := 0
	for _, s := range c.streams {
		n := len(s.buf) - s.off
		if all += n; int64(n) > s.target || s.target > int64(c.cfg.MaxWindow) {
			t.Errorf("a stream holds %d bytes, its window is %d", n, s.target)
		}
	}
	if !c.client && all > c.cfg.MaxWindow {
		t.Errorf("the streams hold %d bytes, the window of the connection is %d", all, c.cfg.MaxWindow)
	}
}

// FuzzServer gives a server arbitrary bytes after the preface and SETTINGS.
func FuzzServer(f *testing.F) {
	f.Add([]byte("not a frame"))
	open, end := headersFrame(1, 0, get("/")...), headersFrame(1, flagEndStream, get("/")...)
	for _, seed := range received {
		f.Add(seed)
		f.Add(frames(open, seed))
		f.Add(frames(end, seed))
	}
	many := frames()
	for i := range 12 {
		many = frames(many, headersFrame(uint32(2*i+1), uint8(i%2), get("/read")...), rawFrame(frameData, 0, uint32(2*i+1), strings.Repeat("x", 10_000)))
	}
	f.Add(many)
	f.Fuzz(func(t *testing.T, input []byte) {
		ours, theirs := net.Pipe()
		var c *Conn
		var running atomic.Int64
		cfg := Config{MaxHead: 4 << 10, MaxStreams: 8, MaxWindow: 80_000, Progress: time.Minute}
		cfg.Serve = func(s *Stream) {
			defer s.Close() // gives its place back
			defer running.Add(-1)
			if n := running.Add(1); n > int64(cfg.MaxStreams) {
				t.Errorf("%d requests run", n)
			}
			checkHeld(t, c)
			if s.Request().Path != "/read" { // others are answered unread
				_, _ = io.Copy(io.Discard, s)
			}
			_ = s.Send(ok200, false)
			_, _ = s.Write(make([]byte, 20_000), false)
			if s.id%4 == 1 {
				_, _ = s.Write(nil, true)
			} else {
				_ = s.Send([]Field{{Name: "x-end", Value: "yes"}}, true)
			}
		}
		c = NewServer(ours, cfg, []byte(Preface))
		ran := make(chan struct{})
		go func() {
			defer close(ran)
			_ = c.Run()
		}()
		go func() { _, _ = io.Copy(io.Discard, theirs) }()
		_, _ = theirs.Write(appendSettings(nil))
		_, _ = theirs.Write(input)
		c.Check(time.Second)
		checkHeld(t, c)
		_ = theirs.Close()
		within(t, ran)
		if n := running.Load(); n != 0 {
			t.Errorf("%d requests run after the connection", n)
		}
	})
}

// FuzzClient gives a client arbitrary bytes as the answer to its request.
func FuzzClient(f *testing.F) {
	f.Add([]byte("not a frame"), true)
	head := headersFrame(1, 0, ok200[0], Field{Name: "content-length", Value: "5"})
	for _, seed := range received {
		f.Add(seed, true)
		f.Add(frames(head, seed), true)
		f.Add(frames(headersFrame(1, 0, Field{Name: ":status", Value: "103"}), headersFrame(1, 0, ok200...), seed), false)
	}
	f.Add(frames(headersFrame(1, 0, ok200...), rawFrame(frameData, 0, 1, strings.Repeat("x", maxFrame)), rawFrame(frameData, 0, 1, strings.Repeat("x", maxFrame))), false)
	f.Fuzz(func(t *testing.T, input []byte, reads bool) {
		ours, theirs := net.Pipe()
		c := NewClient(ours, Config{MaxHead: 4 << 10, MaxWindow: 80_000})
		s := c.NewStream()
		if err := s.Open(get("/"), false, false); err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		all.Go(func() { _ = c.Run() })
		all.Go(func() { _, _ = io.Copy(io.Discard, theirs) })
		all.Go(func() { _, _ = s.Write(make([]byte, 100_000), true) })
		all.Go(func() {
			for {
				h, err := s.Answer()
				if err != nil {
					return
				}
				if h.Status < 100 || h.Status > 999 {
					t.Errorf("status %d", h.Status)
				}
				if h.Status >= 200 {
					break
				}
			}
			if reads {
				_, _ = io.Copy(io.Discard, s)
			}
		})
		_, _ = theirs.Write(appendSettings(nil))
		_, _ = theirs.Write(input)
		c.Check(time.Second)
		checkHeld(t, c)
		_ = theirs.Close()
		done := make(chan struct{})
		go func() {
			defer close(done)
			all.Wait()
		}()
		within(t, done)
		s.Close()
		if n, _ := c.Load(); n != 0 {
			t.Errorf("%d streams are left", n)
		}
	})
}

// listOf reads one field from each line: its name, a space, its value.
func listOf(text string) (list []Field) {
	for line := range strings.SplitSeq(text, "\n") {
		name, value, _ := strings.Cut(line, " ")
		list = append(list, Field{Name: name, Value: value})
	}
	return list
}

// decoded encodes a list and decodes it again, as it arrives.
func decoded(t *testing.T, list []Field) (block []byte, got []Field) {
	t.Helper()
	var b bytes.Buffer
	encoder := hpack.NewEncoder(&b)
	for _, f := range list {
		_ = encoder.WriteField(f)
	}
	got, err := hpack.NewDecoder(headerTable, nil).DecodeFull(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), got
}

// single is a listener for one connection.
type single struct {
	conn chan net.Conn
	once sync.Once
}

func (l *single) Accept() (net.Conn, error) {
	if nc, ok := <-l.conn; ok {
		return nc, nil
	}
	return nil, net.ErrClosed
}

func (l *single) Close() error {
	l.once.Do(func() { close(l.conn) })
	return nil
}

func (l *single) Addr() net.Addr { return &net.TCPAddr{} }

// netHTTPServes reports whether the server of net/http passes a request to its handler. With
// trailers it reports whether the handler gets to the end of a body that they follow.
func netHTTPServes(t *testing.T, block, trailers []byte) bool {
	t.Helper()
	ours, theirs := net.Pipe()
	served := make(chan bool, 1)
	server := &http.Server{
		MaxHeaderBytes: 1 << 20, DisableGeneralOptionsHandler: true, Protocols: new(http.Protocols), ErrorLog: log.New(io.Discard, "", 0),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, err := io.Copy(io.Discard, r.Body)
			served <- err == nil
		}),
	}
	server.Protocols.SetUnencryptedHTTP2(true)
	l := &single{conn: make(chan net.Conn, 1)}
	l.conn <- ours
	ran := make(chan struct{})
	go func() {
		defer close(ran)
		_ = server.Serve(l)
	}()
	write := func(fr *xhttp2.Framer) {
		_, _ = theirs.Write([]byte(xhttp2.ClientPreface))
		_ = fr.WriteSettings()
		_ = fr.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: 1, BlockFragment: block, EndHeaders: true, EndStream: trailers == nil})
		if trailers != nil {
			_ = fr.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: 1, BlockFragment: trailers, EndHeaders: true, EndStream: true})
		}
	}
	fr := xhttp2.NewFramer(theirs, theirs)
	fr.SetMaxReadFrameSize(1 << 20)
	wrote := make(chan struct{})
	go func() { defer close(wrote); write(fr) }()
	for answered := false; !answered; {
		switch f, err := fr.ReadFrame(); f := f.(type) {
		case *xhttp2.RSTStreamFrame, *xhttp2.GoAwayFrame:
			answered = true
		case *xhttp2.HeadersFrame:
			answered = f.StreamEnded()
		case *xhttp2.DataFrame:
			answered = f.StreamEnded()
		default:
			answered = err != nil
		}
	}
	_ = theirs.Close()
	<-wrote
	_ = server.Close()
	<-ran
	select {
	case ok := <-served:
		return ok
	default:
		return false
	}
}

var requestLists = []string{
	":method GET\n:scheme http\n:authority a.example\n:path /",
	":method POST\n:scheme https\n:authority a.example:80\n:path /x?y=%20\ncontent-length 0\nte trailers\ncookie a=1",
	":method CONNECT\n:authority a.example:443",
	":method CONNECT\n:protocol websocket\n:scheme http\n:authority a\n:path /chat",
	":method OPTIONS\n:scheme http\n:authority a\n:path *",
	":method GET\n:scheme http\n:path /\nhost a.example",
	":method GET\n:scheme http\n:authority a.example\n:path /\nhost other",
	":method GET\n:scheme http\n:authority a.example\n:path /\nhost ",
	":method GET\n:scheme http\n:authority a.example\n:path /\nhost A.example",
	":method GET\n:scheme http\n:authority user@a\n:path /",
	":method GET\n:scheme http\n:authority a\n:path //x\nX-Upper 1",
	":method GET\n:scheme http\n:authority a\n:path /\nconnection close",
	":method GET\n:scheme http\n:authority a\n:path /\ntransfer-encoding chunked",
	":method GET\n:scheme http\n:authority a\n:path /\ncontent-length 1\ncontent-length 1",
	":method GET\n:method GET\n:scheme http\n:authority a\n:path /",
	":method GET\n:status 200\n:scheme http\n:authority a\n:path /",
	"x-a 1\n:method GET\n:scheme http\n:authority a\n:path /",
	":method G ET\n:scheme ftp\n:authority a b\n:path x",
	":method GET\n:scheme http\n:authority [::1]:80\n:path /\x7f\nx-a \x00\nte gzip\nkeep-alive 1\nproxy-connection 1\nupgrade h2c\n ",
}

// FuzzRequestHead checks that a header list that is accepted is accepted by the server of net/http as
// well. TestAHeadIsRefused lists where this side is stricter.
func FuzzRequestHead(f *testing.F) {
	for _, list := range requestLists {
		f.Add(list)
	}
	f.Fuzz(func(t *testing.T, text string) {
		block, list := decoded(t, listOf(text))
		var h Head
		if h.take(list, true) != nil || h.Length > 0 || h.Protocol != "" {
			return // a length without a body is refused elsewhere; net/http serves no extended CONNECT
		}
		if _, err := url.ParseRequestURI(h.Path); err != nil && h.Method != "CONNECT" && h.Path != "*" {
			return // downstream refuses a wrong escape with 400
		}
		for _, f := range h.Fields {
			if f.Name == "host" && f.Value != h.Authority {
				return // it differs in case only, which names the same host (RFC 3986 §3.2.2), and is dropped
			}
		}
		if !netHTTPServes(t, block, nil) {
			t.Errorf("accepted, but not by net/http: %q", text)
		}
	})
}

// FuzzTrailers checks the same of trailers, which were not announced.
func FuzzTrailers(f *testing.F) {
	for _, list := range []string{"x-end yes", "x-a 1\nx-b 2", ":path /", "content-length 1", "connection close", "te gzip", "X-Upper 1", "x-a \x00", "grpc-status 0\ngrpc-message ok", " "} {
		f.Add(list)
	}
	head, _ := decoded(&testing.T{}, get("/"))
	f.Fuzz(func(t *testing.T, text string) {
		block, list := decoded(t, listOf(text))
		var h Head
		if h.takeTrailers(list) != nil {
			return
		}
		if !netHTTPServes(t, head, block) {
			t.Errorf("accepted, but not by net/http: %q", text)
		}
	})
}

// These lists are accepted by the server of net/http. It passes its requests to a handler; here
// they are sent on, mostly over HTTP/1.1, where another parser reads them.
func TestAHeadIsRefusedThatANextHopCouldReadInAnotherWay(t *testing.T) {
	const begin = ":method GET\n:scheme http\n:authority a.example\n:path /"
	for _, row := range []struct {
		why, list string
		err       error
	}{
		{"HTTP/1.1 has one length", begin + "\ncontent-length 0\ncontent-length 0", errLength},
		{"parsers differ about a sign", begin + "\ncontent-length +0", errLength},
		{"parsers differ about a list", begin + "\ncontent-length 0, 0", errLength},
		{"an empty length is none", begin + "\ncontent-length ", errLength},
		{"only OPTIONS has this target", strings.Replace(begin, ":path /", ":path *", 1), errPath},
		{"a target ends with a blank", strings.Replace(begin, ":path /", ":path /a b", 1), errPath},
		{"RFC 9110 §9.1: a method is a token", strings.Replace(begin, "GET", "G ET", 1), errMethod},
		{"RFC 9113 §8.5: an empty field is there", strings.Replace(begin, "a.example", "", 1), errPseudoMissing},
		{"RFC 9113 §8.2.2: TE is trailers", begin + "\nte ", errTE},
	} {
		block, list := decoded(t, listOf(row.list))
		var h Head
		if err := h.take(list, true); err != row.err || !netHTTPServes(t, block, nil) {
			t.Errorf("%q: %v, want %v because %s; net/http accepts it: %v", row.list, err, row.err, row.why, netHTTPServes(t, block, nil))
		}
	}
	head, _ := decoded(t, get("/"))
	for list, want := range map[string]error{"content-length 1": errLength, "connection close": errConnection, "transfer-encoding chunked": errConnection, "te gzip": errTE} {
		block, list := decoded(t, listOf(list))
		var h Head
		if err := h.takeTrailers(list); err != want || !netHTTPServes(t, head, block) {
			t.Errorf("trailers %q: %v, want %v; net/http accepts them: %v", list, err, want, netHTTPServes(t, head, block))
		}
	}
}
