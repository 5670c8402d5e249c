//go:build !race

package ingress_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/proxy/ingress"
	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/internal/wire"
	"github.com/ringway/ringway/selection"
)

// frames is one side of a connection of HTTP/2 that allocates nothing for a call.
type frames struct {
	nc net.Conn
	in [1 << 14]byte
}

// next reads the next frame, and answers SETTINGS.
func (f *frames) next() (http2.FrameHeader, error) {
	for {
		if _, err := io.ReadFull(f.nc, f.in[:9]); err != nil {
			return http2.FrameHeader{}, err
		}
		h := http2.FrameHeader{
			Length: uint32(f.in[0])<<16 | uint32(f.in[1])<<8 | uint32(f.in[2]), Type: http2.FrameType(f.in[3]),
			Flags: http2.Flags(f.in[4]), StreamID: binary.BigEndian.Uint32(f.in[5:]),
		}
		if _, err := io.ReadFull(f.nc, f.in[:h.Length]); err != nil {
			return h, err
		}
		if h.Type != http2.FrameSettings || h.Flags.Has(http2.FlagSettingsAck) {
			return h, nil
		}
		if _, err := f.nc.Write([]byte{0, 0, 0, byte(http2.FrameSettings), byte(http2.FlagSettingsAck), 0, 0, 0, 0}); err != nil {
			return h, err
		}
	}
}

// message is half of a call: its frames, for any stream.
type message struct {
	b  []byte
	at []int // where the stream stands
}

// messages returns a message with the encodings of its header lists for the first call on a
// connection, and for all later ones, which are indexes.
func messages(tb testing.TB, head, trailers []hpack.HeaderField) (all [2]message) {
	tb.Helper()
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for i := range all {
		var b bytes.Buffer
		framer := http2.NewFramer(&b, nil)
		list := func(fields []hpack.HeaderField, end bool) {
			block.Reset()
			for _, f := range fields {
				_ = encoder.WriteField(f)
			}
			all[i].at = append(all[i].at, b.Len()+5)
			_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: end})
		}
		list(head, false)
		all[i].at = append(all[i].at, b.Len()+5)
		_ = framer.WriteData(1, len(trailers) == 0, make([]byte, 133))
		if len(trailers) > 0 {
			list(trailers, true)
		}
		_ = framer.WriteWindowUpdate(0, 133) // gives back what the other side sends
		all[i].b = b.Bytes()
	}
	return all
}

func (m *message) on(stream uint32) []byte {
	for _, at := range m.at {
		binary.BigEndian.PutUint32(m.b[at:], stream)
	}
	return m.b
}

// answeringCalls is an endpoint of gRPC that allocates nothing for a call.
func answeringCalls(tb testing.TB) string {
	tb.Helper()
	ln := procs.Listen(tb)
	answers := messages(tb, []hpack.HeaderField{{Name: ":status", Value: "200"}, {Name: "content-type", Value: "application/grpc"}},
		[]hpack.HeaderField{{Name: "grpc-status", Value: "0"}, {Name: "grpc-message", Value: "fine"}})
	procs.Accept(tb, ln, func(nc net.Conn) {
		f := &frames{nc: nc}
		_, _ = io.ReadFull(nc, make([]byte, len(http2.ClientPreface)))
		_, _ = nc.Write([]byte{0, 0, 0, byte(http2.FrameSettings), 0, 0, 0, 0, 0})
		for calls := 0; ; {
			h, err := f.next()
			if err != nil {
				return
			}
			if h.Type == http2.FrameData && h.Flags.Has(http2.FlagDataEndStream) {
				_, _ = nc.Write(answers[min(calls, 1)].on(h.StreamID))
				calls++
			}
		}
	})
	return ln.Addr().String()
}

// A call of gRPC from the socket of the client to that of the endpoint and back: a head with a
// body, an answer with trailers.
func TestACallOverHTTP2AllocatesAtMostTwice(t *testing.T) {
	pool, err := upstream.NewPool(upstream.Config{Address: answeringCalls(t), Protocol: advertise.H2C})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	service, err := routing.NewService("echo", selection.DefaultConfig())
	if err != nil {
		t.Fatal(err)
	}
	if err := service.SetRoute(&routing.Route{Range: []*routing.Target{{ID: "w1.1", Node: "w1", Weight: 1, Pool: pool}}}, 0); err != nil {
		t.Fatal(err)
	}
	h := handlerFor(t, "127.0.0.1:1", func(c *ingress.Config) { c.Services = one{service} })
	nc := procs.Dial(t, served(t, h))
	requests := messages(t, []hpack.HeaderField{
		{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":path", Value: "/svc/Method"}, {Name: ":authority", Value: "a.example"},
		{Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"}, {Name: "user-agent", Value: "grpc-go"},
		{Name: strings.ToLower(wire.ServiceHeader), Value: "echo"},
	}, nil)
	_, _ = io.WriteString(nc, http2.ClientPreface)
	_, _ = nc.Write([]byte{0, 0, 0, byte(http2.FrameSettings), 0, 0, 0, 0, 0})
	f, stream := &frames{nc: nc}, uint32(1)
	once := func() {
		if _, err := nc.Write(requests[min(stream/2, 1)].on(stream)); err != nil {
			t.Fatal(err)
		}
		for {
			h, err := f.next()
			if err != nil || h.Type == http2.FrameRSTStream || h.Type == http2.FrameGoAway {
				t.Fatal(h, err)
			}
			if h.Type == http2.FrameHeaders && h.Flags.Has(http2.FlagHeadersEndStream) {
				break
			}
		}
		stream += 2
	}
	for range 100 {
		once()
	}
	if n := testing.AllocsPerRun(2000, once); n > 2 {
		t.Errorf("%v allocations for each call", n)
	} else {
		t.Log(n)
	}
}
