package downstream_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	wire "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/ringway/ringway/internal/proxy/downstream"
	"github.com/ringway/ringway/internal/proxy/http2"
)

// clearHTTP2 speaks HTTP/2 in clear text.
func clearHTTP2(t testing.TB) *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols}
	t.Cleanup(transport.CloseIdleConnections)
	return transport
}

// streams is a connection on which a test opens streams itself.
type streams struct {
	*http2.Conn
	ended chan struct{} // closed when the connection has ended
}

func streamsTo(t testing.TB, addr string) streams {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	c := streams{http2.NewClient(nc, http2.Config{MaxHead: 64 << 10}), make(chan struct{})}
	go func() {
		defer close(c.ended)
		_ = c.Run()
	}()
	t.Cleanup(func() {
		_ = c.Close()
		<-c.ended
	})
	return c
}

// request returns the header list of a request.
func request(method, path string, more ...string) []http2.Field {
	fields := []http2.Field{{Name: ":method", Value: method}, {Name: ":scheme", Value: "http"}, {Name: ":authority", Value: "a.example"}, {Name: ":path", Value: path}}
	for i := 0; i < len(more); i += 2 {
		fields = append(fields, http2.Field{Name: more[i], Value: more[i+1]})
	}
	return fields
}

// exchange opens a stream and returns the whole answer.
func exchange(t testing.TB, c streams, fields []http2.Field) (http2.Head, string, error) {
	t.Helper()
	s := c.NewStream()
	defer s.Close()
	if err := s.Open(fields, true, fields[0].Value == "HEAD"); err != nil {
		t.Fatal(err)
	}
	head, err := s.Answer()
	if err != nil {
		return http2.Head{}, "", err
	}
	own := http2.Head{Status: head.Status, Length: head.Length, Fields: append([]http2.Field(nil), head.Fields...)}
	body, err := io.ReadAll(readerOf(s.Read))
	own.Fields = append(own.Fields, s.Trailers()...)
	return own, string(body), err
}

type readerOf func([]byte) (int, error)

func (r readerOf) Read(p []byte) (int, error) { return r(p) }

func value(h *http2.Head, name string) string {
	for _, f := range h.Fields {
		if f.Name == name {
			return f.Value
		}
	}
	return ""
}

// A reference of one byte stands for each of them.
func TestManyCookiesOfARequestCostNoMoreThanTheirBytes(t *testing.T) {
	const cookies, requests = 800, 20
	one := "name=" + strings.Repeat("v", 30)
	want := strings.Repeat("; "+one, cookies)[2:]
	own, _ := start(t, downstream.Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header["Cookie"]; len(got) != 1 || got[0] != want {
			w.WriteHeader(http.StatusBadRequest)
		}
	})})
	c := streamsTo(t, own)
	fields := request("GET", "/")
	for range cookies {
		fields = append(fields, http2.Field{Name: "cookie", Value: one})
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range requests {
		if head, _, err := exchange(t, c, fields); err != nil || head.Status != http.StatusOK {
			t.Fatal(head.Status, err)
		}
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / requests; each > 1<<20 {
		t.Errorf("%d KiB are allocated for a request with %d KiB of cookies", each>>10, len(want)>>10)
	}
}

func TestFieldsThatMustNotBeIndexedStaySoHoweverManyThereAre(t *testing.T) {
	own, _ := start(t, downstream.Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name := range r.Header {
			if strings.HasPrefix(name, "X-Secret") && !w.(interface{ NeverIndexed(string) bool }).NeverIndexed(name) {
				w.WriteHeader(http.StatusBadRequest)
			}
		}
	})})
	c := streamsTo(t, own)
	for _, n := range []int{1, 16, 17, 300} {
		fields := request("GET", "/")
		for i := range n {
			fields = append(fields, http2.Field{Name: fmt.Sprint("x-secret-", i), Value: "s", Sensitive: true}, http2.Field{Name: "x-secret-0", Value: "again", Sensitive: true})
		}
		if head, _, err := exchange(t, c, fields); err != nil || head.Status != http.StatusOK {
			t.Error(n, head.Status, err)
		}
	}
}

func TestAnAuthorityOverHTTP2ThatIsNoHostIsRefused(t *testing.T) {
	own, _ := start(t, downstream.Config{Handler: http.HandlerFunc(describe)})
	c := streamsTo(t, own)
	for authority, want := range map[string]int{
		"a.example.:80": 200, "[::1]": 200, "[::1": 400, "]": 400, "a:b": 400, "a:80:90": 400, "a..b:99999": 400, "a%00b": 400, "a,b": 400,
	} {
		fields := request("GET", "/")
		fields[2].Value = authority
		if head, body, err := exchange(t, c, fields); err != nil || head.Status != want || want == 400 && !strings.Contains(body, `"code":"bad_request"`) {
			t.Errorf("%s: %d %q, %v, want %d", authority, head.Status, body, err, want)
		}
	}
}

func TestAHandlerGetsARequestOverHTTP2AsFromNetHTTP(t *testing.T) {
	reference := httptest.NewUnstartedServer(http.HandlerFunc(describe))
	reference.Config.Protocols = new(http.Protocols)
	reference.Config.Protocols.SetUnencryptedHTTP2(true)
	reference.Start()
	t.Cleanup(reference.Close)
	own, _ := start(t, downstream.Config{Handler: http.HandlerFunc(describe)})
	for name, fields := range map[string][]http2.Field{
		"plain":           request("GET", "/"),
		"query":           request("GET", "/a/b?x=1&y=%20"),
		"escaped path":    request("GET", "/a%2fb/%41"),
		"question mark":   request("GET", "/a?"),
		"other methods":   request("PURGE", "/x"),
		"cookies":         request("GET", "/", "cookie", "a=1", "cookie", "b=2", "cookie", "c=3"),
		"repeated fields": request("GET", "/", "x-a", "1", "x-b", "2", "x-a", "3"),
		"te":              request("GET", "/", "te", "trailers"),
		"expect":          request("GET", "/", "expect", "100-continue"),
		"trailer list":    request("POST", "/", "trailer", "X-Sum, x-other"),
		"forwarded":       request("GET", "/", "x-forwarded-for", "1.2.3.4", "user-agent", "t", "accept-encoding", "gzip"),
		"long value":      request("GET", "/", "x-long", strings.Repeat("v", 20000)),
	} {
		t.Run(name, func(t *testing.T) {
			_, want, err := exchange(t, streamsTo(t, reference.Listener.Addr().String()), fields)
			if err != nil {
				t.Fatal(err)
			}
			_, got, err := exchange(t, streamsTo(t, own), fields)
			if err != nil || got != want {
				t.Errorf("%v\n%s\nwant\n%s", err, got, want)
			}
		})
	}
}

func TestABodyAndTrailersPassBothWaysOverHTTP2(t *testing.T) {
	addr, _ := start(t, downstream.Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "X-Sum")
		n, err := io.Copy(w, r.Body)
		if err != nil {
			t.Error(err)
		}
		w.Header().Set(http.TrailerPrefix+"X-Sum", fmt.Sprint(n, r.Trailer.Get("X-Client"), len(r.Trailer)))
	})})
	client := &http.Client{Transport: clearHTTP2(t)}
	for _, size := range []int{0, 1, 4 << 10, 4<<10 + 1, 16 << 10, 100_000, 5 << 20} {
		body := bytes.Repeat([]byte("0123456789abcdef"), size/16+1)[:size]
		req, _ := http.NewRequest("POST", "http://"+addr, struct{ io.Reader }{bytes.NewReader(body)})
		req.Trailer = http.Header{"X-Client": {"yes"}}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || !bytes.Equal(got, body) {
			t.Fatalf("%d bytes of %d, %v", len(got), size, err)
		}
		if sum := resp.Trailer.Get("X-Sum"); sum != fmt.Sprint(size, "yes", 1) {
			t.Errorf("trailer %q after %d bytes", sum, size)
		}
	}
}

// A client could otherwise hold as many streams as it is refused.
func TestOfManyRefusalsWithoutAWindowEightWaitAndTheOthersHaveNoBody(t *testing.T) {
	const text, waiting = `{"error":"too many"}`, 8
	own, _ := start(t, downstream.Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.(interface{ Brief() }).Brief()
		w.Header()["Content-Length"] = []string{fmt.Sprint(len(text))}
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = io.WriteString(w, text)
	})})
	for window, last := range map[int]string{1: "", len(text) - 1: "", len(text): text, 64 << 10: text} {
		nc, err := net.Dial("tcp", own)
		if err != nil {
			t.Fatal(err)
		}
		c := streams{http2.NewClient(nc, http2.Config{MaxHead: 64 << 10, Window: window}), make(chan struct{})}
		go func() {
			defer close(c.ended)
			_ = c.Run()
		}()
		var first []*http2.Stream
		for range waiting {
			s := c.NewStream()
			if err := s.Open(request("GET", "/"), true, false); err != nil {
				t.Fatal(err)
			}
			if head, err := s.Answer(); err != nil || value(head, "content-length") != fmt.Sprint(len(text)) {
				t.Errorf("with a window of %d bytes: %+v, %v", window, head, err)
			}
			first = append(first, s)
		}
		head, body, err := exchange(t, c, request("GET", "/"))
		length := fmt.Sprint(len(last))
		if err != nil || head.Status != http.StatusTooManyRequests || body != last || value(&head, "content-length") != length {
			t.Errorf("with a window of %d bytes, after %d: %d, length %q, %q, %v", window, waiting, head.Status, value(&head, "content-length"), body, err)
		}
		for _, s := range first {
			if body, err := io.ReadAll(readerOf(s.Read)); err != nil || string(body) != text {
				t.Errorf("with a window of %d bytes, one that waited: %q, %v", window, body, err)
			}
			s.Close()
		}
		if _, body, err := exchange(t, c, request("GET", "/")); err != nil || body != text {
			t.Errorf("with a window of %d bytes, when none waits any more: %q, %v", window, body, err)
		}
		_ = c.Close()
		<-c.ended
	}
}

func TestAClientOverHTTP2IsAskedForItsBodyOnlyWhenTheBodyIsRead(t *testing.T) {
	addr, _ := start(t, downstream.Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/read":
			_, _ = io.Copy(w, r.Body)
		case "/answer-and-read":
			w.WriteHeader(http.StatusAccepted)
			_, _ = io.Copy(io.Discard, r.Body)
		}
	})})
	c := streamsTo(t, addr)
	for path, asked := range map[string]bool{"/read": true, "/refuse": false, "/answer-and-read": false} {
		s := c.NewStream()
		if err := s.Open(request("POST", path, "expect", "100-continue"), false, false); err != nil {
			t.Fatal(err)
		}
		if path == "/answer-and-read" { // it sends the body unasked
			if _, err := s.Write([]byte("body"), true); err != nil {
				t.Fatal(err)
			}
		}
		head, err := s.Answer()
		if err != nil || (head.Status == 100) != asked {
			t.Errorf("%s: %+v, %v", path, head, err)
		}
		s.Close()
	}
}

func TestAHandlerThatFailsOverHTTP2ResetsItsStreamOnly(t *testing.T) {
	addr, _ := start(t, downstream.Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/panic":
			panic("on purpose")
		case "/abort":
			_, _ = io.WriteString(w, "part")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		case "/short":
			w.Header().Set("Content-Length", "10")
			_, _ = io.WriteString(w, "part")
		case "/late":
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(-time.Second))
		}
	})})
	c := streamsTo(t, addr)
	for _, path := range []string{"/panic", "/abort", "/short", "/late"} {
		_, _, err := exchange(t, c, request("GET", path))
		var reset *http2.ResetError
		if !errors.As(err, &reset) || reset.Code != http2.InternalError {
			t.Errorf("%s: %v", path, err)
		}
		if _, _, err := exchange(t, c, request("GET", "/")); err != nil {
			t.Errorf("the next request: %v", err)
		}
	}
}

func TestAnAnswerThatNeedsNoBodyDoesNotResetAClientThatStillSendsIt(t *testing.T) {
	addr, _ := start(t, downstream.Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
	})})
	c := streamsTo(t, addr)
	for name, ends := range map[string]bool{"it ends": true, "it never ends": false} {
		s := c.NewStream()
		if err := s.Open(request("POST", "/"), false, false); err != nil {
			t.Fatal(err)
		}
		if head, err := s.Answer(); err != nil || head.Status != http.StatusForbidden {
			t.Fatalf("%+v, %v", head, err)
		}
		_, err := s.Write([]byte("late"), ends)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !ends { // more than the window, so that it waits until the server resets the stream
			_, err = s.Write(make([]byte, 1<<20), false)
		}
		var reset *http2.ResetError
		if !ends && (!errors.As(err, &reset) || reset.Code != http2.NoError) {
			t.Errorf("%s: %v", name, err)
		}
		s.Close()
	}
}

func TestTheContextOfARequestOverHTTP2EndsWithItsStream(t *testing.T) {
	began, ended := make(chan context.Context, 1), make(chan struct{})
	addr, _ := start(t, downstream.Config{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		began <- r.Context()
		<-r.Context().Done()
		ended <- struct{}{}
	})})
	for name, end := range map[string]func(streams, *http2.Stream){
		"reset":      func(_ streams, s *http2.Stream) { s.Close() },
		"connection": func(c streams, _ *http2.Stream) { _ = c.Close() },
	} {
		c := streamsTo(t, addr)
		s := c.NewStream()
		if err := s.Open(request("GET", "/"), true, false); err != nil {
			t.Fatal(err)
		}
		if ctx := <-began; ctx.Err() != nil {
			t.Error(ctx.Err())
		}
		end(c, s)
		within(t, ended, "the end of the context: "+name)
	}
}

// What serves a request is pooled: the end of one stream must not end the context of a
// request that comes later.
func TestAStreamThatIsResetAfterItsAnswerEndsNoOtherRequest(t *testing.T) {
	var cancelled atomic.Int64
	addr, _ := start(t, downstream.Config{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Method == "GET" && r.Context().Err() != nil {
			cancelled.Add(1)
		}
	})})
	honest, other := streamsTo(t, addr), streamsTo(t, addr)
	var done sync.WaitGroup
	for range 8 {
		done.Go(func() {
			for range 500 {
				s := other.NewStream()
				if err := s.Open(request("POST", "/"), false, false); err != nil {
					t.Error(err)
					return
				}
				if _, err := s.Answer(); err != nil {
					t.Error(err)
				}
				s.Close() // resets it, because the body has no end
			}
		})
		done.Go(func() {
			for range 500 {
				if _, _, err := exchange(t, honest, request("GET", "/")); err != nil {
					t.Error(err)
				}
			}
		})
	}
	done.Wait()
	if n := cancelled.Load(); n > 0 {
		t.Errorf("%d requests were cancelled before they began", n)
	}
}

func TestABodyOverHTTP2HasAReadDeadlineThatCanBeMoved(t *testing.T) {
	results := make(chan error, 3)
	addr, _ := start(t, downstream.Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		buf := make([]byte, 10)
		_ = control.SetReadDeadline(time.Now().Add(-time.Second))
		_, err := r.Body.Read(buf)
		results <- err
		_ = control.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		_, err = r.Body.Read(buf)
		results <- err
		_ = control.SetReadDeadline(time.Time{})
		w.(http.Flusher).Flush()
		_, err = io.ReadFull(r.Body, buf[:3])
		results <- err
	})})
	s := streamsTo(t, addr).NewStream()
	if err := s.Open(request("POST", "/"), false, false); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Answer(); err != nil {
		t.Fatal(err)
	}
	_, _ = s.Write([]byte("abc"), true)
	for i, want := range []error{os.ErrDeadlineExceeded, os.ErrDeadlineExceeded, nil} {
		if err := <-results; !errors.Is(err, want) {
			t.Errorf("read %d: %v, want %v", i, err, want)
		}
	}
	s.Close()
}

func TestAHeadOverHTTP2ThatIsTooLargeIsRefused(t *testing.T) {
	var malformed atomic.Int64
	addr, _ := start(t, downstream.Config{MaxHead: 8 << 10, Malformed: func() { malformed.Add(1) }, Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("it reached the handler")
	})})
	nc := dial(t, addr)
	nc.say(http2.Preface)
	framer := wire.NewFramer(nc.Conn, nc.Reader)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	_ = framer.WriteSettings()
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, f := range request("GET", "/", "x-long", strings.Repeat("v", 9<<10)) {
		_ = encoder.WriteField(f)
	}
	_ = framer.WriteHeaders(wire.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true})
	for {
		f, err := framer.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if head, ok := f.(*wire.MetaHeadersFrame); ok {
			if head.PseudoValue("status") != "431" || malformed.Load() != 1 {
				t.Errorf("%v, %d malformed", head.Fields, malformed.Load())
			}
			return
		}
	}
}

func TestWhyAConnectionOfHTTP2WasEndedIsReported(t *testing.T) {
	t.Parallel()
	reasons := make(chan string, 4)
	report := func(reason string) func() { return func() { reasons <- reason } }
	for want, attack := range map[string]func(*wire.Framer){
		"malformed": func(f *wire.Framer) { _ = f.WriteRawFrame(wire.FrameData, 0, 0, nil) },
		"abusive": func(f *wire.Framer) {
			for f.WritePing(false, [8]byte{}) == nil {
			}
		},
		"incomplete": func(f *wire.Framer) {
			_ = f.WriteHeaders(wire.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}})
		},
	} {
		addr, _ := start(t, downstream.Config{
			HeadTimeout: 2 * time.Second, Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
			Malformed: report("malformed"), Incomplete: report("incomplete"), Abusive: report("abusive"), Stalled: report("stalled"),
		})
		nc := dial(t, addr)
		nc.say(http2.Preface)
		framer := wire.NewFramer(nc.Conn, nc.Reader)
		_ = framer.WriteSettings()
		go func() { _, _ = io.Copy(io.Discard, nc.Conn) }() // ends with the connection
		attack(framer)
		select {
		case got := <-reasons:
			if got != want {
				t.Errorf("%s was reported as %s", want, got)
			}
		case <-time.After(patience):
			t.Errorf("%s was not reported", want)
		}
	}
}

func TestAStopLetsTheStreamsOfAConnectionEnd(t *testing.T) {
	release, began := make(chan struct{}), make(chan struct{}, 1)
	addr, server := start(t, downstream.Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began <- struct{}{}
		<-release
		_, _ = io.WriteString(w, "ok")
	})})
	c, idle := streamsTo(t, addr), streamsTo(t, addr)
	s := c.NewStream()
	if err := s.Open(request("GET", "/"), true, false); err != nil {
		t.Fatal(err)
	}
	within(t, began, "the request")
	stopped := make(chan error, 1)
	go func() { stopped <- server.Shutdown(t.Context()) }()
	within(t, idle.ended, "the end of the idle connection")
	select {
	case err := <-stopped:
		t.Fatalf("the stop has not waited: %v", err)
	default:
	}
	close(release)
	head, err := s.Answer()
	if err != nil || head.Status != 200 {
		t.Errorf("%+v, %v", head, err)
	}
	s.Close()
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

func TestAnAnswerCanEndAConnectionOfHTTP2(t *testing.T) {
	addr, _ := start(t, downstream.Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close")
	})})
	c := streamsTo(t, addr)
	if head, _, err := exchange(t, c, request("GET", "/")); err != nil || head.Status != 200 {
		t.Fatalf("%+v, %v", head, err)
	}
	within(t, c.ended, "the end of the connection")
}

func TestAnIdleConnectionOfHTTP2IsClosed(t *testing.T) {
	t.Parallel()
	addr, _ := start(t, downstream.Config{IdleTimeout: 2 * time.Second, Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})})
	c := streamsTo(t, addr)
	if _, _, err := exchange(t, c, request("GET", "/")); err != nil {
		t.Fatal(err)
	}
	within(t, c.ended, "the end of the connection")
}

// The states show a relay which connections may be replaced.
func TestAConnectionOfHTTP2IsActiveWhileItHasStreams(t *testing.T) {
	states := make(chan http.ConnState, 100)
	began, release := make(chan struct{}), make(chan struct{})
	addr, _ := start(t, downstream.Config{
		ConnState: func(_ net.Conn, s http.ConnState) { states <- s },
		Handler:   http.HandlerFunc(func(http.ResponseWriter, *http.Request) { began <- struct{}{}; <-release }),
	})
	active := 0
	until := func(want http.ConnState) {
		t.Helper()
		late := time.After(patience)
		for {
			select {
			case got := <-states:
				if got == want {
					return
				}
				if got == http.StateActive {
					active++
				}
			case <-late:
				t.Fatalf("the connection never becomes %v", want)
			}
		}
	}
	c := streamsTo(t, addr)
	until(http.StateIdle)
	for _, streams := range []int{1, 3} {
		var done sync.WaitGroup
		for range streams {
			done.Go(func() { _, _, _ = exchange(t, c, request("GET", "/")) })
			<-began
		}
		until(http.StateActive)
		for range streams {
			release <- struct{}{}
		}
		done.Wait()
		active = 0
		if until(http.StateIdle); active > 0 {
			t.Errorf("of %d streams the connection becomes active %d times more", streams, active)
		}
	}
}

func TestAWebSocketOverHTTP2ReachesTheHandlerAsAnUpgrade(t *testing.T) {
	addr, _ := start(t, downstream.Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != "GET" || r.Header.Get("Upgrade") != "websocket" || r.Header.Get("Connection") != "Upgrade" || len(r.Header.Get("Sec-Websocket-Key")) != 24 {
			t.Errorf("%s %v", r.Method, r.Header)
		}
		if r.Body != http.NoBody || r.ContentLength != 0 {
			t.Errorf("the bytes of the tunnel are a body of %d bytes", r.ContentLength)
		}
		nc, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer nc.Close()
		header := w.Header() // as over HTTP/1.1, the head is what the handler has set
		for name, value := range map[string]string{"Sec-Websocket-Protocol": "chat", "Upgrade": "websocket", "Connection": "Upgrade", "Sec-Websocket-Accept": "x"} {
			header.Set(name, value)
		}
		if err := nc.(interface{ Switched(http.Header) error }).Switched(header); err != nil {
			t.Error(err)
		}
		_, _ = io.Copy(nc, nc)
		_ = nc.(interface{ CloseWrite() error }).CloseWrite()
	})})
	c := streamsTo(t, addr)
	s := c.NewStream()
	if err := s.Open(append([]http2.Field{{Name: ":method", Value: "CONNECT"}, {Name: ":protocol", Value: "websocket"}}, request("", "/chat")[1:]...), false, false); err != nil {
		t.Fatal(err)
	}
	head, err := s.Answer()
	if err != nil || head.Status != 200 || value(head, "sec-websocket-protocol") != "chat" || value(head, "upgrade")+value(head, "sec-websocket-accept") != "" {
		t.Fatalf("%+v, %v", head, err)
	}
	_, _ = s.Write([]byte("ping"), false)
	buf := make([]byte, 4)
	if _, err := io.ReadFull(readerOf(s.Read), buf); err != nil || string(buf) != "ping" {
		t.Fatalf("%q, %v", buf, err)
	}
	_, _ = s.Write(nil, true)
	if rest, err := io.ReadAll(readerOf(s.Read)); err != nil || len(rest) > 0 {
		t.Errorf("%q, %v", rest, err)
	}
	s.Close()

	other, _, err := exchange(t, c, append([]http2.Field{{Name: ":method", Value: "CONNECT"}, {Name: ":protocol", Value: "connect-udp"}}, request("", "/")[1:]...))
	if err != nil || other.Status != http.StatusNotImplemented {
		t.Errorf("another protocol: %+v, %v", other, err)
	}
}
