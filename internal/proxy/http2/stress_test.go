package http2

import (
	"errors"
	"io"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Streams end in every way concurrently: nothing of them may stay in the connection, and the
// others go on.
func TestStreamsThatEndInAnyWayLeaveNothingBehind(t *testing.T) {
	errStop := errors.New("stop")
	act := func(rnd *rand.Rand, s *Stream) {
		buf := make([]byte, 40_000)
		pieces := rnd.IntN(6)
		var writing sync.WaitGroup
		writing.Go(func() {
			for range pieces {
				if _, err := s.Write(buf, false); err != nil {
					return
				}
			}
			_, _ = s.Write(nil, true)
		})
		switch rnd.IntN(5) {
		case 0:
			_, _ = s.Read(buf)
			s.Reset(Cancel)
		case 1:
			s.Interrupt(errStop)
		case 2:
			s.InterruptRead(errStop)
		case 3:
			_, _ = s.Read(buf)
			s.Interrupt(errStop)
		default:
			_, _ = io.Copy(io.Discard, s)
		}
		s.Interrupt(errStop)
		writing.Wait()
	}
	client, server := pair(t, func(s *Stream) {
		defer s.Close()
		_ = s.Send(ok200, false)
		act(rand.New(rand.NewPCG(1, uint64(s.id))), s)
	})
	var all sync.WaitGroup
	for n := range 40 {
		all.Go(func() {
			rnd := rand.New(rand.NewPCG(2, uint64(n)))
			for range 25 {
				s := client.NewStream()
				if err := s.Open(get("/"), false, false); err != nil {
					t.Error(err)
					return
				}
				if rnd.IntN(4) > 0 {
					_, _ = s.Answer()
				}
				act(rnd, s)
				s.Close()
			}
		})
	}
	all.Wait()
	for _, c := range []*Conn{client, server} {
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
			c.mu.Lock()
			left := len(c.streams) + c.active + len(c.waiting) + c.turns + len(c.slots)
			err := c.err
			c.mu.Unlock()
			if err != nil {
				t.Fatal(err)
			}
			if left == 0 {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("%d streams, %d active, %d wait for their turn, %d have it, %d wait for a slot", len(c.streams), c.active, len(c.waiting), c.turns, len(c.slots))
			}
		}
	}
}

// The same when the connection is lost meanwhile.
func TestALostConnectionEndsEveryStream(t *testing.T) {
	for range 20 {
		client, server := pair(t, func(s *Stream) {
			defer s.Close()
			_ = s.Send(ok200, false)
			_, _ = s.Write(make([]byte, 1<<20), true)
		})
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				s := client.NewStream()
				defer s.Close()
				if s.Open(get("/"), false, false) != nil {
					return
				}
				var writing sync.WaitGroup
				writing.Go(func() { _, _ = s.Write(make([]byte, 1<<20), true) })
				_, _ = io.CopyN(io.Discard, s, 100_000)
				_ = server.Close()
				_, _ = io.Copy(io.Discard, s)
				writing.Wait()
			})
		}
		all.Wait()
		client.mu.Lock()
		if client.err == nil || len(client.streams)+client.active+len(client.waiting)+client.turns != 0 {
			t.Errorf("%v: %d streams, %d active, %d wait, %d have their turn", client.err, len(client.streams), client.active, len(client.waiting), client.turns)
		}
		client.mu.Unlock()
	}
}

// The requests arrive in one piece, and each is answered immediately, like one that is refused. With
// one processor the reader would read all of them before one is served.
func TestABurstOfRequestsThatEndAtOnceNeedsFewGoroutines(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const requests = 1000
	bubble(t, handler(quick).server(Config{MaxHead: 16 << 10, MaxStreams: requests}), true, func(p *peer) {
		var burst []byte
		for i := range requests {
			p.block.Reset()
			for _, f := range get("/") {
				_ = p.encoder.WriteField(f)
			}
			burst = append(frame{p.block.Len(), frameHeaders, flagEndHeaders | flagEndStream, uint32(2*i + 1)}.append(burst), p.block.Bytes()...)
		}
		p.say(burst)
		synctest.Wait()
		p.c.mu.Lock()
		defer p.c.mu.Unlock()
		if n := len(p.c.workers); n == 0 || n > requests/3 {
			t.Errorf("%d goroutines for %d requests", n, requests)
		}
	})
}
