package http2

import (
	"io"
	"net"
	"slices"
	"testing"
	"testing/synctest"
)

// Streams that are not read hold all but a part of the window: what is read of it comes back although it
// is less than half.
func TestAnUploadGoesOnBesideOthersThatAreNotRead(t *testing.T) {
	const stalled = 9
	withServer(t, func(p *peer, s *Stream) {
		if s.Request().Path == "/read" {
			drains(p, s)
		} else {
			<-p.release
		}
	}, func(p *peer) {
		window := firstWindow + granted(p.settle(), 0)
		for i := range stalled {
			p.request(uint32(2*i+1), 0)
			p.data(uint32(2*i+1), defaultWindow)
			window -= defaultWindow
		}
		const last = 2*stalled + 1
		p.headers(last, 0, get("/read")...)
		own := defaultWindow
		for sent := 0; sent < 2<<20; {
			n := min(maxFrame, window, own)
			if n <= 0 {
				t.Fatalf("after %d bytes nothing may be sent: %d on the connection, %d on the stream", sent, window, own)
			}
			p.data(last, n)
			frames := p.settle()
			sent, window, own = sent+n, window+granted(frames, 0)-n, own+granted(frames, last)-n
		}
		close(p.release)
	})
}

// A relay's connection has requests of many clients.
func TestOnAConnectionOfARelayNoUploadIsHeldUpByOthers(t *testing.T) {
	cfg := small
	cfg.Shared, cfg.MaxStreams = true, sharedWindow/defaultWindow+10
	bubble(t, handler(unread).server(cfg), true, func(p *peer) {
		window := firstWindow + granted(p.settle(), 0)
		for i := range cfg.MaxStreams {
			stream := uint32(2*i + 1)
			p.request(stream, 0)
			for range defaultWindow / maxFrame {
				if window < maxFrame {
					t.Fatalf("%d bodies that are not read have used up the connection", i)
				}
				p.data(stream, maxFrame)
				window += granted(p.settle(), 0) - maxFrame
			}
		}
		close(p.release)
	})
}

// One connection between two members carries the requests of all services. With a delay of 80 ms, what all of
// them may send in a round trip is what all of them get.
func TestManyStreamsBetweenMembersUseTheirWindowsAtTheSameTime(t *testing.T) {
	const streams = 100
	shared := small
	shared.Shared = true
	for name, open := range map[string]func(*peer, net.Conn) *Conn{"client": clientOf(small), "server": handler(unread).server(shared)} {
		bubble(t, open, true, func(p *peer) {
			window := firstWindow + granted(p.settle(), 0)
			for i := range uint32(streams) {
				if !p.c.client {
					p.request(2*i+1, 0)
					continue
				}
				s := p.c.NewStream()
				defer s.Close()
				if err := s.Open(get("/"), true, false); err != nil {
					t.Fatal(err)
				}
				p.headers(2*i+1, 0, ok200[0])
			}
			for i := range min(streams, window/defaultWindow) {
				p.data(uint32(2*i+1), defaultWindow)
			}
			if p.settle(); window < streams*defaultWindow || p.over() {
				t.Errorf("%s: of %d streams %d use up the connection: %v", name, streams, window/defaultWindow, p.why())
			}
			close(p.release)
		})
	}
}

func TestCancelledRequestsEndNoConnectionOfARelay(t *testing.T) {
	for _, shared := range []bool{false, true} {
		cfg := small
		cfg.Shared = shared
		waits := handler(func(p *peer, _ *Stream) { <-p.release }) // longer than its client
		bubble(t, waits.server(cfg), true, func(p *peer) {
			p.settle()
			// All streams are cancelled together, as when a client breaks off. Then some are refused: the
			// handlers of the first have not returned.
			next := uint32(1)
			for range maxBudget / cfg.MaxStreams {
				first := next
				for range cfg.MaxStreams {
					p.request(next, flagEndStream)
					next += 2
				}
				synctest.Wait()
				for id := first; id < next; id += 2 {
					p.say(appendReset(nil, id, Cancel))
				}
				synctest.Wait()
				for range 3 * cfg.MaxStreams {
					p.request(next, flagEndStream)
					next += 2
				}
				if frames := p.settle(); shared && !slices.ContainsFunc(frames, func(a answered) bool { return a.kind == frameReset && a.stream == next-2 && a.code() == RefusedStream }) {
					t.Errorf("one more stream than the settings allow is not refused: %v", frames)
				}
				for range cfg.MaxStreams {
					select {
					case p.release <- struct{}{}:
					default:
					}
				}
				synctest.Wait()
			}
			if p.settle(); p.over() == shared {
				t.Errorf("shared %t: over %t: %v", shared, p.over(), p.why())
			}
			close(p.release)
		})
	}
}

// What streams hold that are read no more, after their windows have grown.
func TestWindowsThatHaveGrownAreBoundedTogether(t *testing.T) {
	withClient(t, func(p *peer) {
		const streams = 40
		var all []*Stream
		connection, windows := firstWindow, map[uint32]int{}
		settle := func() {
			frames := p.settle()
			connection += granted(frames, 0)
			for i := range streams {
				windows[uint32(2*i+1)] += granted(frames, uint32(2*i+1))
			}
		}
		send := func(id uint32, n int) int {
			n = min(n, connection, windows[id])
			p.data(id, n)
			connection, windows[id] = connection-n, windows[id]-n
			settle()
			return n
		}
		for i := range streams {
			s, id := p.c.NewStream(), uint32(2*i+1)
			if err := s.Open(get("/"), true, false); err != nil {
				t.Fatal(err)
			}
			all, windows[id] = append(all, s), defaultWindow
			p.headers(id, 0, ok200[0])
			settle()
			for left := 2 << 20; left > 0; {
				n := send(id, 32<<10)
				if _, err := io.ReadFull(s, make([]byte, n)); err != nil {
					t.Fatal(err)
				}
				left -= n
				synctest.Wait()
			}
			settle()
		}
		held := 0
		for i := range streams {
			for id := uint32(2*i + 1); windows[id] > 0; {
				held += send(id, maxFrame)
			}
		}
		if most := streams*defaultWindow + maxGrown; held > most || held < most/2 {
			t.Errorf("%d bytes are held, at most %d should be", held, most)
		}
		if got := maxGrown - p.c.grown; got <= 0 || all[8].target <= 2*defaultWindow || all[9].target <= defaultWindow {
			t.Errorf("%d bytes are left to grow by, the windows of the ninth and tenth are %d and %d", got, all[8].target, all[9].target)
		}
		for _, s := range all {
			s.Close()
		}
		if p.c.grown != 0 || grownAll.Load() != 0 {
			t.Errorf("when all have ended, %d bytes of the connection and %d of all are counted", p.c.grown, grownAll.Load())
		}
	})
}
