//go:build linux

package hostile

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/procs"
)

// serviceFloods are what a service sends on an HTTP/2 connection when the request on stream has come.
// Each ends the connection as abusive, or as no HTTP/2.
var serviceFloods = []struct {
	name string
	act  func(a *attacker, stream uint32)
	why  string
}{
	{"SETTINGS", func(a *attacker, _ uint32) { a.flood(func(int) error { return a.fr.WriteSettings() }) }, "abusive"},
	{"SETTINGS of many values", func(a *attacker, _ uint32) {
		many := make([]http2.Setting, 2000)
		for i := range many {
			many[i] = http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(i)}
		}
		a.flood(func(int) error { return a.fr.WriteSettings(many...) })
	}, "abusive"},
	{"answers to SETTINGS", func(a *attacker, _ uint32) { a.flood(func(int) error { return a.fr.WriteSettingsAck() }) }, "abusive"},
	{"PING", func(a *attacker, _ uint32) { a.flood(func(int) error { return a.fr.WritePing(false, [8]byte{}) }) }, "abusive"},
	{"answers to PING", func(a *attacker, _ uint32) { a.flood(func(int) error { return a.fr.WritePing(true, [8]byte{}) }) }, "abusive"},
	{"RST_STREAM", func(a *attacker, stream uint32) {
		a.flood(func(int) error { return a.fr.WriteRSTStream(stream, http2.ErrCodeCancel) })
	}, "abusive"},
	{"WINDOW_UPDATE of the connection", func(a *attacker, _ uint32) { a.flood(func(int) error { return a.fr.WriteWindowUpdate(0, 1) }) }, "abusive"},
	{"WINDOW_UPDATE of a stream", func(a *attacker, stream uint32) {
		a.flood(func(int) error { return a.fr.WriteWindowUpdate(stream, 1) })
	}, "abusive"},
	{"PRIORITY", func(a *attacker, stream uint32) {
		a.flood(func(int) error { return a.fr.WritePriority(stream, http2.PriorityParam{Weight: 3}) })
	}, "abusive"},
	{"unknown frames", func(a *attacker, _ uint32) { a.flood(func(int) error { return a.fr.WriteRawFrame(0xaa, 0, 0, nil) }) }, "abusive"},
	{"CONTINUATION of nothing", func(a *attacker, stream uint32) {
		a.raw(http2.FrameHeaders, 0, stream, nil)
		a.flood(func(int) error { return a.fr.WriteContinuation(stream, false, nil) })
	}, "abusive"},
	{"CONTINUATION without an end", func(a *attacker, stream uint32) {
		a.raw(http2.FrameHeaders, 0, stream, nil)
		a.flood(func(int) error { return a.fr.WriteContinuation(stream, false, make([]byte, 16<<10)) })
	}, "abusive"},
	{"many references to one large field", func(a *attacker, stream uint32) {
		list := bytes.Clone(a.list(":status", "200", "x", strings.Repeat("v", 4000)))
		reference := bytes.Clone(a.list("x", strings.Repeat("v", 4000)))
		for len(list) < 16<<10 {
			list = append(list, reference...)
		}
		a.raw(http2.FrameHeaders, http2.FlagHeadersEndHeaders, stream, list[:16<<10])
	}, "abusive"},
	{"answers without an end", func(a *attacker, stream uint32) {
		list := bytes.Clone(a.list(":status", "103", "x", "y"))
		a.flood(func(int) error {
			return a.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: list, EndHeaders: true})
		})
	}, "abusive"},
	{"empty DATA", func(a *attacker, stream uint32) {
		_ = a.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: a.list(":status", "200"), EndHeaders: true})
		a.flood(func(int) error { return a.fr.WriteData(stream, false, nil) })
	}, "abusive"},
	{"PUSH_PROMISE", func(a *attacker, stream uint32) {
		a.flood(func(i int) error {
			return a.fr.WriteRawFrame(http2.FramePushPromise, http2.FlagPushPromiseEndHeaders, stream, big(uint32(2*i+2)))
		})
	}, "malformed"},
	{"a frame of 1 MiB", func(a *attacker, stream uint32) {
		a.flood(func(int) error { return a.fr.WriteRawFrame(http2.FrameData, 0, stream, make([]byte, 1<<20)) })
	}, "malformed"},
	{"HTTP/1.1", func(a *attacker, _ uint32) {
		a.flood(func(int) error { _, err := io.WriteString(a.nc, "HTTP/1.1 200 OK\r\n\r\n"); return err })
	}, "malformed"},
}

// flood repeats what a service does until its peer has ended the connection.
func (a *attacker) flood(what func(i int) error) {
	for i := 0; i < floods && what(i) == nil; i++ {
	}
}

// floodFrom serves a connection: it answers the first request with a flood.
func floodFrom(nc net.Conn, act func(a *attacker, stream uint32)) {
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(procs.Patience))
	if _, err := io.ReadFull(nc, make([]byte, len(http2.ClientPreface))); err != nil {
		return
	}
	a := &attacker{nc: nc, fr: http2.NewFramer(nc, nc)}
	a.fr.AllowIllegalWrites = true
	a.encoder = hpack.NewEncoder(&a.block)
	_ = a.fr.WriteSettings()
	for {
		frame, err := a.fr.ReadFrame()
		if err != nil {
			return
		}
		if frame.Header().Type == http2.FrameHeaders {
			go func() { _, _ = io.Copy(io.Discard, nc) }() // what the relay answers does not stop the flood
			act(a, frame.Header().StreamID)
			_, _ = io.Copy(io.Discard, nc)
			return
		}
	}
}

// TestFloodsFromAServiceOverHTTP2EndItsConnectionOnly has a worker of a service over HTTP/2 answer each
// request with a flood, a different one on each connection.
func TestFloodsFromAServiceOverHTTP2EndItsConnectionOnly(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleetConfig{Relays: 1, Workers: 3, Offer: ";protocol=h2c", RelayArgs: []string{"--slow-start", "0s"}})
	r := f.Relays[0]
	c := launchTurncoat(t, f)
	listener := c.listenAs(t, c.host, "h2")
	var served sync.WaitGroup
	var next atomic.Int64
	served.Go(func() {
		for {
			nc, err := listener.Accept()
			if err != nil {
				return
			}
			served.Go(func() {
				defer context.AfterFunc(t.Context(), func() { _ = nc.Close() })()
				floodFrom(nc, func(a *attacker, stream uint32) { serviceFloods[int(next.Add(1)-1)%len(serviceFloods)].act(a, stream) })
			})
		}
	})
	t.Cleanup(func() { _ = listener.Close(); served.Wait() })
	ended := func(why string) float64 {
		return f.metrics(r.Admin, "ringway_relay_upstream_ended_total", func(series string) bool { return strings.Contains(series, `"`+why+`"`) })
	}
	f.serves(20)
	before := f.size(r)
	spent, begun := measured(t, r.PID()), time.Now()
	// Only requests to the flooding service fail, and their answers report it; its connection ends
	// each time.
	c.offer(t, advertise.Service{Name: echo, Address: listener.Addr().String(), Secured: true, Protocol: advertise.H2C},
		advertise.Service{Name: "flooded", Address: listener.Addr().String(), Secured: true, Protocol: advertise.H2C})
	procs.Await(t, "the flooded service is known", func() bool { return f.offers(r, "flooded") })
	asked, cut, failed := 0, 0, map[string]int{}
	for int(next.Load()) < 2*len(serviceFloods) && time.Since(begun) < procs.Patience {
		if status, body := f.ask(r, "flooded", http.MethodGet, "/"); status == http.StatusOK {
			t.Errorf("a flood was taken for an answer: %.200s", body)
		}
		for range 4 {
			asked++
			switch status, body := f.ask(r, echo, http.MethodGet, "/"); {
			case status == 0 && strings.Contains(body, io.ErrUnexpectedEOF.Error()):
				cut++ // the flooding worker had begun an answer, which no other can continue
			case status != http.StatusOK:
				failed[fmt.Sprintf("%d %.200s", status, body)]++
			}
		}
	}
	cost := spent()
	t.Logf("%d floods; %v connections ended as abusive, %v as no HTTP/2; %d requests of echo, failed: %v; the relay used %v of a processor in %v and %d MiB more",
		next.Load(), ended("abusive"), ended("malformed"), asked, failed, cost.cpu, time.Since(begun).Round(time.Millisecond), cost.growth>>20)
	if len(failed) > 0 || cut > len(serviceFloods) {
		t.Errorf("of %d requests that other workers can answer some failed: %v, and %d were cut", asked, failed, cut)
	}
	if int(next.Load()) < len(serviceFloods) || ended("abusive") == 0 || ended("malformed") == 0 {
		t.Errorf("%d floods were sent, %v connections ended as abusive and %v as malformed", next.Load(), ended("abusive"), ended("malformed"))
	}
	f.within(r, before)
	if err := f.Ended(); err != nil {
		t.Error(err)
	}
}
