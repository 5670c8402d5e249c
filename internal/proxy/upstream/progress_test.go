package upstream_test

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/proxy/upstream"
)

// limited lets nothing go on without a byte for longer than this.
func limited(limit time.Duration) func(*http.Request) upstream.Options {
	return func(*http.Request) upstream.Options { return upstream.Options{Progress: limit} }
}

// short is longer than a busy machine lets anything wait that could go on.
const short = time.Second

// endless answers with more than any buffer takes.
func endless(w http.ResponseWriter, _ *http.Request) {
	for block := make([]byte, 64<<10); ; {
		if _, err := w.Write(block); err != nil {
			return
		}
	}
}

func dial(t *testing.T, addr, say string) net.Conn {
	t.Helper()
	conn := procs.Dial(t, addr)
	if _, err := io.WriteString(conn, say); err != nil {
		t.Fatal(err)
	}
	return conn
}

// zeroWindow asks over HTTP/2 and grants no byte of the answer.
func zeroWindow(t *testing.T, addr string) {
	t.Helper()
	conn := dial(t, addr, http2.ClientPreface)
	framer := http2.NewFramer(conn, conn)
	var block bytes.Buffer
	head := hpack.NewEncoder(&block)
	for _, f := range [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "a"}, {":path", "/"}} {
		_ = head.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}) // to memory
	}
	if err := framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}); err != nil {
		t.Fatal(err)
	}
	if err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true}); err != nil {
		t.Fatal(err)
	}
}

func TestAClientThatIsSilentIsEndedAndNoEndpointBlamed(t *testing.T) {
	deadlines := map[string]func(*http.Request) upstream.Options{
		"": limited(short),
		" until behind the deadline": func(*http.Request) upstream.Options {
			return upstream.Options{Progress: short, Deadline: time.Now().Add(short / 2), AfterBody: short / 2}
		},
	}
	for _, protocol := range []advertise.Protocol{advertise.HTTP1, advertise.H2C} {
		for name, row := range map[string]struct {
			client func(t *testing.T, addr string)
			late   bool // a deadline that comes first ends it
		}{
			"it does not read its answer":       {func(t *testing.T, addr string) { dial(t, addr, "GET / HTTP/1.1\r\nHost: a\r\n\r\n") }, false},
			"it opens no window for its answer": {zeroWindow, false},
			"it sends no byte of a small body": {func(t *testing.T, addr string) {
				dial(t, addr, "POST /read HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n")
			}, false},
			"it stops within a small body": {func(t *testing.T, addr string) {
				dial(t, addr, "POST /read HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhal")
			}, false},
			"it stops within a large body": {func(t *testing.T, addr string) {
				dial(t, addr, "POST /read HTTP/1.1\r\nHost: a\r\nContent-Length: 99999\r\n\r\nhal")
			}, true},
			"it stops within a body of unknown length": {func(t *testing.T, addr string) {
				dial(t, addr, "POST /read HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhal\r\n")
			}, true},
			"it stops while its answer has begun": {func(t *testing.T, addr string) {
				dial(t, addr, "POST /early HTTP/1.1\r\nHost: a\r\nContent-Length: 99999\r\n\r\nhal")
			}, false},
			"it reads no answer to a body that it sends": {func(t *testing.T, addr string) {
				dial(t, addr, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nall")
			}, false},
		} {
			for deadline, options := range deadlines {
				t.Run(string(protocol)+": "+name+deadline, func(t *testing.T) {
					t.Parallel()
					addr := httpEndpoint(t, func(w http.ResponseWriter, r *http.Request) {
						switch r.URL.Path {
						case "/early":
							_ = http.NewResponseController(w).EnableFullDuplex() // HTTP/2 has it always
							_ = http.NewResponseController(w).Flush()
							fallthrough
						case "/read":
							_, _ = io.Copy(io.Discard, r.Body)
						default:
							endless(w, r)
						}
					})
					in := startIngress(t, newPool(t, upstream.Config{Address: addr, Protocol: protocol}), options)
					row.client(t, in.addr)
					out := within(t, in.outcomes, "the end of the exchange")
					side := upstream.SilentClient
					if row.late && deadline != "" {
						side = upstream.SilentNone
					}
					if out.res.Silent != side || out.err == nil || !out.err.Client() {
						t.Errorf("silent: %v; %v", out.res.Silent, out.err)
					}
				})
			}
		}
	}
}

func TestAnEndpointThatStopsWithinItsAnswerIsEndedAndBlamed(t *testing.T) {
	t.Parallel()
	for _, protocol := range []advertise.Protocol{advertise.HTTP1, advertise.H2C} {
		addr := httpEndpoint(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "half")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		})
		in := startIngress(t, newPool(t, upstream.Config{Address: addr, Protocol: protocol}), limited(short))
		dial(t, in.addr, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		out := within(t, in.outcomes, "the end of the exchange")
		if out.res.Silent != upstream.SilentEndpoint || out.err == nil || out.err.Stage != upstream.StageBody || !out.err.Committed() {
			t.Errorf("%s: silent: %v; %v", protocol, out.res.Silent, out.err)
		}
	}
}

func TestATunnelWithoutAByteIsClosed(t *testing.T) {
	t.Parallel()
	endpointClosed := make(chan struct{})
	addr := rawEndpoint(t, func(_ int, c *rawConn) {
		if r, _ := c.request(); r != nil {
			c.say("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: raw\r\n\r\n")
			c.untilClosed()
			close(endpointClosed)
		}
	})
	in := startIngress(t, newPool(t, upstream.Config{Address: addr}), limited(short))
	conn := dial(t, in.addr, "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: raw\r\n\r\n")
	out := within(t, in.outcomes, "the end of the tunnel")
	if out.res.Silent != upstream.SilentBoth || out.err != nil {
		t.Errorf("silent: %v; %v", out.res.Silent, out.err)
	}
	within(t, endpointClosed, "the endpoint's end of the tunnel")
	if _, err := io.Copy(io.Discard, conn); err != nil {
		t.Errorf("the client's end: %v", err)
	}
}

func TestATunnelThatTheEndpointDoesNotReadIsItsSilence(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	addr := rawEndpoint(t, func(_ int, c *rawConn) {
		if r, _ := c.request(); r != nil {
			c.say("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: raw\r\n\r\n")
			<-hold
		}
	})
	defer close(hold)
	in := startIngress(t, newPool(t, upstream.Config{Address: addr}), limited(short))
	conn := dial(t, in.addr, "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: raw\r\n\r\n")
	for block := make([]byte, 64<<10); ; {
		if _, err := conn.Write(block); err != nil {
			break
		}
	}
	if out := within(t, in.outcomes, "the end of the tunnel"); out.res.Silent != upstream.SilentEndpoint || out.err != nil {
		t.Errorf("silent: %v; %v", out.res.Silent, out.err)
	}
}

// What moves may be slow and long; and how long an answer may take to begin is not
// the limit's business.
func TestWhatMovesIsNotEnded(t *testing.T) {
	t.Parallel()
	const limit, pause, bytes = 2 * time.Second, 40 * time.Millisecond, 70
	for _, protocol := range []advertise.Protocol{advertise.HTTP1, advertise.H2C} {
		addr := httpEndpoint(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/late" {
				time.Sleep(limit + limit/4) // is late
				_, _ = io.WriteString(w, "here")
				return
			}
			for range bytes {
				_, _ = io.WriteString(w, ".")
				_ = http.NewResponseController(w).Flush()
				time.Sleep(pause) // is slow
			}
		})
		in := startIngress(t, newPool(t, upstream.Config{Address: addr, Protocol: protocol}), limited(limit))
		late := make(chan string, 1)
		go func() {
			resp, err := http.Get(in.url + "/late")
			if err != nil {
				late <- err.Error()
				return
			}
			defer resp.Body.Close()
			body, _ := io.ReadAll(resp.Body)
			late <- string(body)
		}()
		if _, body := in.get(t, "/slow"); len(body) != bytes {
			t.Errorf("%s: %d bytes of %d", protocol, len(body), bytes)
		}
		if body := within(t, late, "the late answer"); body != "here" {
			t.Errorf("%s: a late answer: %q", protocol, body)
		}
	}
}

// A client that is still there learns that it was too slow, and the endpoint is not
// blamed for the deadline either.
func TestAClientThatIsLateWithItsBodyIsTheOneToBlameForTheDeadline(t *testing.T) {
	t.Parallel()
	for _, protocol := range []advertise.Protocol{advertise.HTTP1, advertise.H2C} {
		addr := httpEndpoint(t, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
		in := startIngress(t, newPool(t, upstream.Config{Address: addr, Protocol: protocol}), func(*http.Request) upstream.Options {
			return upstream.Options{Deadline: time.Now().Add(short)}
		})
		conn := dial(t, in.addr, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999\r\n\r\nhal")
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || resp.StatusCode != http.StatusBadGateway {
			t.Errorf("%s: %v %v", protocol, resp, err)
		}
		if out := within(t, in.outcomes, "the end of the exchange"); out.err == nil || !out.err.Client() {
			t.Errorf("%s: %v", protocol, out.err)
		}
	}
}
