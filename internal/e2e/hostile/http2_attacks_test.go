//go:build linux

package hostile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// attacker speaks HTTP/2 frame by frame, right or wrong.
type attacker struct {
	nc      net.Conn
	fr      *http2.Framer
	block   bytes.Buffer
	encoder *hpack.Encoder
	closed  chan struct{} // the victim has ended the connection
	news    chan struct{} // something has arrived since the last look

	mu     sync.Mutex
	away   *http2.ErrCode
	resets map[uint32]http2.ErrCode
	status map[uint32]string
	ended  map[uint32]bool // END_STREAM or a reset has arrived
}

// target is a listener that is attacked.
type target struct {
	name string
	dial func() (net.Conn, error)
}

// connect opens a connection whose first frames allow the victim to send no DATA.
func (to target) connect() (*attacker, error) {
	nc, err := to.dial()
	if err != nil {
		return nil, err
	}
	a := &attacker{nc: nc, fr: http2.NewFramer(nc, nc), closed: make(chan struct{}), news: make(chan struct{}, 1),
		resets: map[uint32]http2.ErrCode{}, status: map[uint32]string{}, ended: map[uint32]bool{}}
	a.fr.AllowIllegalWrites = true
	a.encoder = hpack.NewEncoder(&a.block)
	return a, nil
}

// greet sends the preface and settings, and reads from now on.
func (a *attacker) greet() {
	_, _ = io.WriteString(a.nc, http2.ClientPreface)
	_ = a.fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	go a.read()
}

func (a *attacker) read() {
	defer close(a.closed)
	a.fr.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	for {
		f, err := a.fr.ReadFrame()
		if err != nil {
			return
		}
		a.mu.Lock()
		switch f := f.(type) {
		case *http2.GoAwayFrame:
			code := f.ErrCode
			a.away = &code
		case *http2.RSTStreamFrame:
			a.resets[f.StreamID], a.ended[f.StreamID] = f.ErrCode, true
		case *http2.MetaHeadersFrame:
			if a.status[f.StreamID] == "" {
				a.status[f.StreamID] = f.PseudoValue("status")
			}
			a.ended[f.StreamID] = a.ended[f.StreamID] || f.StreamEnded()
		case *http2.DataFrame:
			a.ended[f.StreamID] = a.ended[f.StreamID] || f.StreamEnded()
		}
		a.mu.Unlock()
		select {
		case a.news <- struct{}{}:
		default: // a look is already due
		}
	}
}

// await waits until a state is reached. It returns false if the connection ends first, or the
// time does.
func (a *attacker) await(reached func() bool) bool {
	late := time.After(enough)
	for !reached() {
		select {
		case <-a.news:
		case <-a.closed:
			return reached()
		case <-late:
			return false
		}
	}
	return true
}

// over reports whether the victim has ended the connection.
func (a *attacker) over() bool {
	select {
	case <-a.closed:
		return true
	default:
		return false
	}
}

func (a *attacker) list(fields ...string) []byte {
	a.block.Reset()
	for i := 0; i < len(fields); i += 2 {
		_ = a.encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	return a.block.Bytes()
}

// request opens a stream. The fields more come behind the usual ones.
func (a *attacker) request(stream uint32, path string, end bool, more ...string) {
	list := a.list(append([]string{":method", "POST", ":scheme", "http", ":authority", "x", ":path", path, "ringway-service", echo}, more...)...)
	_ = a.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: list, EndStream: end, EndHeaders: true})
}

func (a *attacker) cancel(stream uint32) { _ = a.fr.WriteRSTStream(stream, http2.ErrCodeCancel) }

func (a *attacker) raw(kind http2.FrameType, flags http2.Flags, stream uint32, payload []byte) {
	_ = a.fr.WriteRawFrame(kind, flags, stream, payload)
}

// until repeats what an attack does, at most n times, while the connection lives.
func (a *attacker) until(n int, what func(i int, stream uint32)) {
	for i := 0; i < n && !a.over(); i++ {
		what(i, uint32(2*i+1))
	}
}

// floods is more than any budget.
const floods = 20_000

// carriedRequests is how many requests of an attack reach the service and wait.
const carriedRequests = 100

const open = "/endless" // the answer to it never ends, since no window is open

func big(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }

// outcome is how an attack must end.
type outcome struct {
	away   http2.ErrCode // the connection ends with GOAWAY
	reset  http2.ErrCode // stream 1 ends with RST_STREAM, the connection lives
	status string        // stream 1 is answered with this, the connection lives
	closed bool          // the connection ends with or without GOAWAY
	ended  uint32        // the streams up to this one end, and the connection lives or not
	beyond bool          // FLOW_CONTROL_ERROR for the stream or for the connection
	// shared allows a connection to a member to live. It is of many clients, whose cancellations cost
	// nothing: a stream counts until its handler has returned, so it depends on the handlers how many
	// are refused, and only resets of these cost.
	shared bool
}

var calm = outcome{away: http2.ErrCodeEnhanceYourCalm}

type attack struct {
	name string
	act  func(a *attacker)
	want outcome
	// edge is for attacks that only the ingress answers in this way: other listeners have
	// other limits, or take their requests from relays, which do not send this.
	edge bool
}

var attacks = []attack{
	{"rapid reset (CVE-2023-44487)", func(a *attacker) {
		a.until(floods, func(_ int, s uint32) { a.request(s, "/", true); a.cancel(s) })
	}, outcome{away: http2.ErrCodeEnhanceYourCalm, shared: true}, false},
	{"MadeYouReset: WINDOW_UPDATE of nothing", func(a *attacker) {
		a.until(floods, func(_ int, s uint32) { a.request(s, open, true); a.raw(http2.FrameWindowUpdate, 0, s, big(0)) })
	}, calm, false},
	{"MadeYouReset: a window of more than 31 bits", func(a *attacker) {
		a.until(floods, func(_ int, s uint32) {
			a.request(s, open, true)
			_ = a.fr.WriteWindowUpdate(s, 1<<31-1)
			_ = a.fr.WriteWindowUpdate(s, 1<<31-1)
		})
	}, calm, false},
	{"MadeYouReset: DATA after END_STREAM", func(a *attacker) {
		a.until(floods, func(_ int, s uint32) { a.request(s, open, true); _ = a.fr.WriteData(s, true, nil) })
	}, calm, false},
	{"MadeYouReset: HEADERS after END_STREAM", func(a *attacker) {
		a.until(floods, func(_ int, s uint32) { a.request(s, open, true); a.request(s, open, true) })
	}, calm, false},
	{"MadeYouReset: another length than the Content-Length", func(a *attacker) {
		a.until(floods, func(_ int, s uint32) {
			a.request(s, open, false, "content-length", "5")
			_ = a.fr.WriteData(s, true, []byte("x"))
		})
	}, calm, false},
	{"MadeYouReset: PRIORITY of a stream that depends on itself", func(a *attacker) {
		a.until(floods, func(_ int, s uint32) {
			a.request(s, open, true)
			a.raw(http2.FramePriority, 0, s, append(big(s), 7))
		})
	}, calm, false},
	{"MadeYouReset: PRIORITY of a wrong size", func(a *attacker) {
		a.until(floods, func(_ int, s uint32) { a.request(s, open, true); a.raw(http2.FramePriority, 0, s, big(0)) })
	}, calm, false},
	{"malformed requests", func(a *attacker) {
		a.until(floods, func(_ int, s uint32) { a.request(s, "/", true, "connection", "close") })
	}, calm, false},
	{"CONTINUATION of nothing (CVE-2024-27316)", func(a *attacker) {
		a.raw(http2.FrameHeaders, 0, 1, nil)
		a.until(floods, func(int, uint32) { a.raw(http2.FrameContinuation, 0, 1, nil) })
	}, calm, false},
	{"CONTINUATION of a byte", func(a *attacker) {
		a.raw(http2.FrameHeaders, 0, 1, nil)
		a.until(floods, func(int, uint32) { a.raw(http2.FrameContinuation, 0, 1, []byte{0x82}) })
	}, calm, false},
	{"CONTINUATION without an end", func(a *attacker) {
		a.raw(http2.FrameHeaders, 0, 1, nil)
		a.until(floods, func(int, uint32) { a.raw(http2.FrameContinuation, 0, 1, make([]byte, 16<<10)) })
	}, calm, false},
	{"a header list beyond the limit", func(a *attacker) {
		var more []string
		for i := range 70 {
			more = append(more, fmt.Sprintf("x-%d", i), strings.Repeat("v", 1000))
		}
		list := slices.Clone(a.list(append([]string{":method", "GET", ":scheme", "http", ":authority", "x", ":path", "/"}, more...)...))
		_ = a.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: list[:16<<10], EndStream: true})
		for list = list[16<<10:]; len(list) > 16<<10; list = list[16<<10:] {
			_ = a.fr.WriteContinuation(1, false, list[:16<<10])
		}
		_ = a.fr.WriteContinuation(1, true, list)
		_ = a.fr.WriteWindowUpdate(1, 10_000) // for the body of the refusal
	}, outcome{status: "431"}, true},
	{"many references to one large field", func(a *attacker) {
		list := slices.Clone(a.list("x", strings.Repeat("v", 4000)))
		reference := a.list("x", strings.Repeat("v", 4000))
		for len(list) < 16<<10 {
			list = append(list, reference...)
		}
		a.raw(http2.FrameHeaders, http2.FlagHeadersEndHeaders|http2.FlagHeadersEndStream, 1, list[:16<<10])
	}, calm, false},
	{"a table of HPACK that is too large", func(a *attacker) {
		a.raw(http2.FrameHeaders, http2.FlagHeadersEndHeaders|http2.FlagHeadersEndStream, 1, []byte{0x3f, 0xff, 0xff, 0x7f})
	}, outcome{away: http2.ErrCodeCompression}, false},
	{"updates of the table's size within a list", func(a *attacker) {
		a.raw(http2.FrameHeaders, http2.FlagHeadersEndHeaders|http2.FlagHeadersEndStream, 1, append(a.list("x", "y"), bytes.Repeat([]byte{0x20, 0x3f, 0xe1, 0x1f}, 1000)...))
	}, outcome{away: http2.ErrCodeCompression}, false},
	{"an integer of HPACK without an end", func(a *attacker) {
		a.raw(http2.FrameHeaders, http2.FlagHeadersEndHeaders|http2.FlagHeadersEndStream, 1, bytes.Repeat([]byte{0xff}, 1000))
	}, outcome{away: http2.ErrCodeCompression}, false},
	{"SETTINGS", func(a *attacker) {
		a.until(floods, func(int, uint32) { _ = a.fr.WriteSettings() })
	}, calm, false},
	{"SETTINGS of many values", func(a *attacker) {
		many := make([]http2.Setting, 2000)
		for i := range many {
			many[i] = http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(i)}
		}
		a.until(floods, func(int, uint32) { _ = a.fr.WriteSettings(many...) })
	}, calm, false},
	{"answers to SETTINGS", func(a *attacker) {
		a.until(floods, func(int, uint32) { _ = a.fr.WriteSettingsAck() })
	}, calm, false},
	{"PING", func(a *attacker) {
		a.until(floods, func(int, uint32) { _ = a.fr.WritePing(false, [8]byte{}) })
	}, calm, false},
	{"empty DATA", func(a *attacker) {
		a.request(1, open, false)
		a.until(floods, func(int, uint32) { _ = a.fr.WriteData(1, false, nil) })
	}, calm, false},
	{"DATA of padding", func(a *attacker) {
		a.request(1, open, false)
		a.until(floods, func(int, uint32) { a.raw(http2.FrameData, http2.FlagDataPadded, 1, []byte{1, 0}) })
	}, calm, false},
	{"unknown frames", func(a *attacker) {
		a.until(floods, func(int, uint32) { a.raw(0xaa, 0, 0, nil) })
	}, calm, false},
	{"PRIORITY", func(a *attacker) {
		a.until(floods, func(_ int, s uint32) { a.raw(http2.FramePriority, 0, s, append(big(0), 7)) })
	}, calm, false},
	{"WINDOW_UPDATE of a byte for the connection", func(a *attacker) {
		a.until(floods, func(int, uint32) { _ = a.fr.WriteWindowUpdate(0, 1) })
	}, calm, false},
	{"an answer byte by byte", func(a *attacker) {
		a.request(1, open, true)
		a.until(floods, func(int, uint32) { _ = a.fr.WriteWindowUpdate(1, 1) })
	}, calm, false},
	{"DATA for a stream that was reset", func(a *attacker) {
		a.request(1, open, false)
		a.raw(http2.FrameWindowUpdate, 0, 1, big(0))
		a.until(floods, func(int, uint32) { _ = a.fr.WriteData(1, false, nil) })
	}, calm, false},
	{"trailers for a stream that was reset", func(a *attacker) {
		a.request(1, open, false)
		a.raw(http2.FrameWindowUpdate, 0, 1, big(0))
		a.until(floods, func(int, uint32) {
			a.raw(http2.FrameHeaders, http2.FlagHeadersEndHeaders|http2.FlagHeadersEndStream, 1, a.list("x", "y"))
		})
	}, calm, false},

	{"a self-dependent request", func(a *attacker) {
		list := a.list(":method", "GET", ":scheme", "http", ":authority", "x", ":path", "/")
		_ = a.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: list, EndStream: true, EndHeaders: true, Priority: http2.PriorityParam{StreamDep: 1, Weight: 3}})
	}, outcome{away: http2.ErrCodeProtocol}, false},
	{"DATA beyond the windows", func(a *attacker) {
		a.request(1, open, false)
		a.until(4000, func(int, uint32) { _ = a.fr.WriteData(1, false, make([]byte, 16<<10)) })
	}, outcome{beyond: true}, false},
	{"a frame beyond the limit", func(a *attacker) { a.raw(http2.FrameData, 0, 1, make([]byte, 16<<10+1)) }, outcome{away: http2.ErrCodeFrameSize}, false},
	{"a frame for a stream that was not opened", func(a *attacker) { _ = a.fr.WriteData(1, false, []byte("x")) }, outcome{away: http2.ErrCodeProtocol}, false},
	{"CONTINUATION alone", func(a *attacker) { a.raw(http2.FrameContinuation, 0, 1, nil) }, outcome{away: http2.ErrCodeProtocol}, false},
	{"PUSH_PROMISE", func(a *attacker) { a.raw(http2.FramePushPromise, http2.FlagPushPromiseEndHeaders, 1, big(2)) }, outcome{away: http2.ErrCodeProtocol}, false},
	{"WINDOW_UPDATE of nothing", func(a *attacker) { a.request(1, open, true); a.raw(http2.FrameWindowUpdate, 0, 1, big(0)) }, outcome{reset: http2.ErrCodeProtocol}, false},
	{"DATA after END_STREAM", func(a *attacker) { a.request(1, open, true); _ = a.fr.WriteData(1, false, []byte("x")) }, outcome{reset: http2.ErrCodeStreamClosed}, false},
	{"less than the Content-Length", func(a *attacker) {
		a.request(1, open, false, "content-length", "5")
		_ = a.fr.WriteData(1, true, []byte("x"))
	}, outcome{reset: http2.ErrCodeProtocol}, false},
	{"more than the Content-Length", func(a *attacker) {
		a.request(1, open, false, "content-length", "1")
		_ = a.fr.WriteData(1, true, []byte("xx"))
	}, outcome{reset: http2.ErrCodeProtocol}, false},
	{"trailers that do not end the stream", func(a *attacker) {
		a.request(1, open, false)
		a.raw(http2.FrameHeaders, http2.FlagHeadersEndHeaders, 1, a.list("x", "y"))
	}, outcome{reset: http2.ErrCodeProtocol}, false},
	{"trailers beyond the limit", func(a *attacker) {
		a.request(1, open, false)
		list := slices.Clone(a.list("x", strings.Repeat("v", 3000)))
		reference := a.list("x", strings.Repeat("v", 3000))
		a.raw(http2.FrameHeaders, http2.FlagHeadersEndHeaders|http2.FlagHeadersEndStream, 1, append(list, bytes.Repeat(reference, 30)...))
	}, outcome{reset: http2.ErrCodeEnhanceYourCalm}, true},

	{"half a frame", func(a *attacker) { _, _ = a.nc.Write([]byte{0, 0, 8, 6}) }, outcome{closed: true}, true},
	{"half a header list", func(a *attacker) { a.raw(http2.FrameHeaders, 0, 1, []byte{0x82}) }, outcome{closed: true}, true},
	{"a header list byte by byte", func(a *attacker) {
		a.raw(http2.FrameHeaders, 0, 1, []byte{0x82})
		a.until(10, func(i int, _ uint32) {
			time.Sleep(1500 * time.Millisecond) // below any limit of a pause
			a.raw(http2.FrameContinuation, 0, 1, []byte{0x82})
		})
	}, outcome{closed: true}, true},
	{"requests without a window", func(a *attacker) {
		a.until(carriedRequests, func(_ int, s uint32) { a.request(s, open, true) })
	}, outcome{ended: 199}, true},
	{"requests without their body", func(a *attacker) {
		a.until(carriedRequests, func(_ int, s uint32) { a.request(s, "/", false, "content-length", "5") })
	}, outcome{ended: 199}, true},
}

// The fields of HTTP/1.1 with which one request is made to look like two.
var smuggled = [][]string{
	{"connection", "close"}, {"connection", "content-length"}, {"transfer-encoding", "chunked"}, {"transfer-encoding", "identity"},
	{"upgrade", "h2c"}, {"keep-alive", "1"}, {"proxy-connection", "close"}, {"te", "chunked"},
	{"content-length", "0", "content-length", "0"}, {"content-length", "+0"}, {"content-length", "0, 0"}, {"content-length", "5"},
	{"host", "other"}, {"host", "x", "host", "other"},
	{"X-Upper", "1"}, {"x y", "1"}, {"x:", "1"}, {"", "1"}, {"x\r\ny", "1"},
	{"x", "1\r\nHost: other"}, {"x", "1\nContent-Length: 5"}, {"x", "\x00"},
	{":path", "/other"}, {":status", "200"}, {":unknown", "1"},
}

func init() {
	for _, fields := range smuggled {
		attacks = append(attacks, attack{fmt.Sprintf("smuggling %q", fields), func(a *attacker) {
			a.request(1, "/", true, fields...)
		}, outcome{reset: http2.ErrCodeProtocol}, false})
	}
	for _, control := range [][2]string{{":path", "/ HTTP/1.1"}, {":path", "/\r\nx: y"}, {":path", "http://other/"}, {":path", ""}, {":authority", "x y"}, {":authority", "u@x"}, {":authority", "x\r\n"}, {":method", "GET /"}, {":scheme", "file"}} {
		attacks = append(attacks, attack{fmt.Sprintf("smuggling %q", control), func(a *attacker) {
			fields := []string{":method", "GET", ":scheme", "http", ":authority", "x", ":path", "/"}
			fields[slices.Index(fields, control[0])+1] = control[1]
			_ = a.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: a.list(fields...), EndStream: true, EndHeaders: true})
		}, outcome{reset: http2.ErrCodeProtocol}, false})
	}
}

// enough is how long a victim may take to end what it must end by time: the limit for heads
// is 10 s.
const enough = 18 * time.Second

// run attacks a target and reports how it has not ended as it must.
func (attack attack) run(to target) error {
	a, err := to.connect()
	if err != nil {
		return err
	}
	defer func() {
		_ = a.nc.Close()
		<-a.closed
	}()
	a.greet()
	attack.act(a)
	const last = 2*floods + 1
	mayLive := attack.want.shared && to.name != "ingress"
	if mayLive {
		a.request(last, "/", true)
	}
	reached := func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		want, code := attack.want, a.resets[1]
		switch {
		case mayLive && (a.status[last] != "" || a.ended[last]):
			return true
		case want.beyond:
			return code == http2.ErrCodeFlowControl || a.away != nil && *a.away == http2.ErrCodeFlowControl
		case want.away != 0:
			return a.away != nil && *a.away == want.away && a.over()
		case want.reset != 0:
			return code == want.reset
		case want.status != "":
			return a.status[1] == want.status
		case want.ended > 0:
			for s := uint32(1); s <= want.ended; s += 2 {
				if !a.ended[s] && !a.over() {
					return false
				}
			}
			return true
		}
		return a.over()
	}
	if !a.await(reached) {
		a.mu.Lock()
		defer a.mu.Unlock()
		return fmt.Errorf("it must end as %+v; GOAWAY %v, resets %v, statuses %v, closed %v", attack.want, a.away, a.resets, a.status, a.over())
	}
	if attack.want.reset == 0 && attack.want.status == "" {
		return nil
	}
	// The rest of the connection has not suffered.
	_ = a.fr.WritePing(false, [8]byte{1})
	const next = 1001
	a.request(next, "/", true)
	_ = a.fr.WriteWindowUpdate(next, 1<<20)
	if !a.await(func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.ended[next] && a.status[next] != ""
	}) {
		return errors.New("the next request on the connection was not answered")
	}
	return nil
}
