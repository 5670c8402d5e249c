package upstream

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/memnet"
)

// h2Service is a service that speaks HTTP/2 and answers frame by frame, so that it can
// send what no well-behaved server would. One request is on its way at a time.
type h2Service struct {
	mu     sync.Mutex
	answer h2Answer
	// got is the last request, complete when its stream has ended.
	got h2Request
}

// h2Answer is what the service answers to the next request. Each block has one field in a
// line, a blank between name and value.
type h2Answer struct {
	heads    []string
	body     []byte
	trailers string
	// reset ends the stream by RST_STREAM with this code, 0 ends it as it should.
	reset http2.ErrCode
}

type h2Request struct {
	pseudo            map[string]string
	header, trailer   http.Header
	body              []byte
	complete, garbled bool
}

// serve speaks on one connection until it ends.
func (s *h2Service) serve(c net.Conn) {
	defer c.Close()
	br := bufio.NewReader(c)
	if _, err := io.ReadFull(br, make([]byte, len(http2.ClientPreface))); err != nil {
		return
	}
	fr := http2.NewFramer(c, br)
	fr.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if fr.WriteSettings() != nil {
		return
	}
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for {
		frame, err := fr.ReadFrame()
		if se := (http2.StreamError{}); errors.As(err, &se) {
			s.mu.Lock()
			s.got.garbled = true
			s.mu.Unlock()
			_ = fr.WriteRSTStream(se.StreamID, se.Code)
			continue
		}
		if err != nil {
			return
		}
		ended := false
		s.mu.Lock()
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				_ = fr.WriteSettingsAck()
			}
		case *http2.PingFrame:
			if !frame.IsAck() {
				_ = fr.WritePing(true, frame.Data)
			}
		case *http2.MetaHeadersFrame:
			s.got.take(frame)
			ended = frame.StreamEnded()
		case *http2.DataFrame:
			s.got.body = append(s.got.body, frame.Data()...)
			if n := uint32(len(frame.Data())); n > 0 {
				_ = fr.WriteWindowUpdate(0, n)
				_ = fr.WriteWindowUpdate(frame.StreamID, n)
			}
			ended = frame.StreamEnded()
		}
		if ended {
			s.got.complete = true
			s.answer.write(fr, frame.Header().StreamID, &block, encoder)
		}
		s.mu.Unlock()
	}
}

func (r *h2Request) take(frame *http2.MetaHeadersFrame) {
	into := &r.trailer
	if len(frame.PseudoFields()) > 0 {
		*r = h2Request{pseudo: map[string]string{}}
		into = &r.header
	}
	*into = http.Header{}
	for _, f := range frame.Fields {
		if f.IsPseudo() {
			r.pseudo[f.Name] = f.Value
		} else {
			into.Add(f.Name, f.Value)
		}
	}
}

// write writes the answer. What the other side does not take is its business.
func (a *h2Answer) write(fr *http2.Framer, stream uint32, block *bytes.Buffer, encoder *hpack.Encoder) {
	bare := len(a.body) == 0 && a.trailers == "" && a.reset == 0
	headers := func(text string, end bool) {
		block.Reset()
		for _, f := range fieldsOf(text) {
			_ = encoder.WriteField(f)
		}
		_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: end})
	}
	for i, head := range a.heads {
		headers(head, bare && i == len(a.heads)-1)
	}
	if len(a.body) > 0 {
		_ = fr.WriteData(stream, a.trailers == "" && a.reset == 0, a.body)
	}
	if a.reset != 0 {
		_ = fr.WriteRSTStream(stream, a.reset)
	} else if a.trailers != "" {
		headers(a.trailers, true)
	}
}

func fieldsOf(block string) (fields []hpack.HeaderField) {
	for line := range strings.SplitSeq(block, "\n") {
		name, value, _ := strings.Cut(line, " ")
		fields = append(fields, hpack.HeaderField{Name: name, Value: value})
	}
	return fields
}

// startH2 is the service and a pool to it, over a network in memory.
func startH2(f *testing.F) (*h2Service, *Pool, *memnet.Host) {
	network := memnet.New(memnet.Config{})
	host := network.Host("10.0.0.1")
	ln, err := host.Listen("10.0.0.1:80")
	if err != nil {
		f.Fatal(err)
	}
	service := &h2Service{}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { service.serve(c) })
		}
	})
	pool, err := NewPool(Config{ExpectContinueTimeout: time.Millisecond,
		Address: "10.0.0.1:80", Protocol: advertise.H2C,
		Dial: func(ctx context.Context, _, address string) (net.Conn, error) { return host.Dial(ctx, address) },
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		_ = pool.Drain(context.Background())
		_ = ln.Close()
		_ = network.Close()
		wg.Wait()
	})
	return service, pool, host
}
