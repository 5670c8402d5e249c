//go:build !race

package http2

// Under the race detector sync.Pool forgets at random, so memory is counted without it.

import (
	"encoding/binary"
	"io"
	"runtime"
	"testing"

	"golang.org/x/net/http2/hpack"
)

func TestAStreamOfAServerNeedsAtMostOneAllocation(t *testing.T) {
	answer := []Field{{Name: ":status", Value: "200"}, {Name: "content-type", Value: "text/plain"}}
	body := make([]byte, 128)
	nc := listening(t, small, nil, func(s *Stream) {
		_ = s.Send(answer, false)
		_, _ = s.Write(body, true)
		s.Close()
	})
	p := &peer{t: t, nc: nc}
	p.encoder = hpack.NewEncoder(&p.block)
	p.say(appendSettings([]byte(Preface)))
	stream := uint32(1)
	p.request(stream, flagEndStream)
	p.block.Reset()
	for _, f := range get("/") { // indices of the table now
		_ = p.encoder.WriteField(f)
	}
	request := append(frame{p.block.Len(), frameHeaders, flagEndHeaders | flagEndStream, 0}.append(nil), p.block.Bytes()...)
	updates := appendWindowUpdate(nil, 0, uint32(len(body)))
	in := make([]byte, maxFrame)
	once := func() {
		for ended := false; !ended; {
			if _, err := io.ReadFull(nc, in[:frameHead]); err != nil {
				t.Fatal(err)
			}
			f := parseFrame(in)
			if _, err := io.ReadFull(nc, in[:f.length]); err != nil {
				t.Fatal(err)
			}
			ended = f.kind == frameData && f.has(flagEndStream)
		}
		stream += 2
		binary.BigEndian.PutUint32(request[5:], stream)
		p.say(updates)
		p.say(request)
	}
	for range 100 {
		once()
	}
	if n := testing.AllocsPerRun(2000, once); n > 1 {
		t.Errorf("%v allocations for each stream", n)
	} else {
		t.Log(n)
	}
}

func TestAnIdleConnectionHoldsNoBuffer(t *testing.T) {
	const conns = 200
	heap := func() int64 {
		runtime.GC()
		runtime.GC() // the second one empties what sync.Pool kept
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	clients := make([]*Conn, conns)
	for i := range clients {
		clients[i], _ = pair(t, echo)
		if err := exchange(clients[i], "/", make([]byte, 10_000)); err != nil {
			t.Fatal(err)
		}
	}
	// Two sides with tables, maps and the goroutines' fields; a read buffer has 32 KiB.
	if each := (heap() - before) / conns; each > 16<<10 {
		t.Errorf("an idle connection with both its sides holds %d bytes", each)
	} else {
		t.Log(each)
	}
	for _, c := range clients {
		if err := exchange(c, "/", []byte("still there")); err != nil {
			t.Error(err)
		}
	}
}
