package http2

import (
	"testing"
	"testing/synctest"
	"time"
)

// Each of these does something that costs this side more than it is worth, again and again.
var costly = []struct {
	name string
	// atMost is how often it may be done.
	atMost int
	act    func(p *peer, i int)
}{
	{"requests that are reset", maxBudget, func(p *peer, i int) {
		p.request(uint32(2*i+1), flagEndStream)
		p.say(appendReset(nil, uint32(2*i+1), Cancel))
	}},
	{"requests that this side must reset for a window update of nothing", maxBudget, func(p *peer, i int) {
		p.request(uint32(2*i+1), 0)
		p.grant(uint32(2*i+1), 0)
	}},
	{"requests that this side must reset for a window that is too large", maxBudget, func(p *peer, i int) {
		p.request(uint32(2*i+1), 0)
		p.grant(uint32(2*i+1), maxWindow)
	}},
	{"requests that this side must reset for DATA after their end", maxBudget, func(p *peer, i int) {
		p.request(uint32(2*i+1), flagEndStream)
		p.frame(frameData, 0, uint32(2*i+1), nil)
	}},
	{"requests that this side must reset for their length", maxBudget, func(p *peer, i int) {
		p.headers(uint32(2*i+1), 0, append(get("/"), Field{Name: "content-length", Value: "1"})...)
		p.frame(frameData, flagEndStream, uint32(2*i+1), nil)
	}},
	{"requests that depend on themselves", maxBudget, func(p *peer, i int) {
		p.request(uint32(2*i+1), 0)
		p.frame(framePriority, 0, uint32(2*i+1), []byte{0, 0, byte((2*i + 1) >> 8), byte(2*i + 1), 0})
	}},
	{"requests that are malformed", maxBudget, func(p *peer, i int) {
		p.headers(uint32(2*i+1), flagEndStream, append(get("/"), Field{Name: "connection", Value: "close"})...)
	}},
	{"empty DATA", maxBudget + 10, func(p *peer, i int) {
		if i == 0 {
			p.request(1, 0)
		}
		p.frame(frameData, 0, 1, nil)
	}},
	{"DATA of padding", maxBudget + 10, func(p *peer, i int) {
		if i == 0 {
			p.request(1, 0)
		}
		p.frame(frameData, flagPadded, 1, []byte{3, 0, 0, 0})
	}},
	{"empty DATA for a stream that this side has reset", maxBudget + 10, func(p *peer, i int) {
		if i == 0 {
			p.request(1, 0)
			p.grant(1, 0)
		}
		p.frame(frameData, 0, 1, nil)
	}},
	{"trailers for a stream that this side has reset", maxBudget + 10, func(p *peer, i int) {
		if i == 0 {
			p.request(1, 0)
			p.grant(1, 0)
		}
		p.headers(1, flagEndStream, Field{Name: "x-end", Value: "1"})
	}},
	{"requests after GOAWAY", maxBudget + 10, func(p *peer, i int) {
		if i == 0 {
			p.request(1, 0) // it keeps the connection open
			synctest.Wait()
			p.c.Shutdown()
			p.say(appendPing(nil, flagAck, shutdownPing))
			synctest.Wait()
		}
		p.request(uint32(2*i+3), flagEndStream)
	}},
	{"SETTINGS", maxBudget/4 + 10, func(p *peer, _ int) { p.say(appendSettings(nil)) }},
	{"SETTINGS of many values", maxBudget/100 + 10, func(p *peer, _ int) {
		p.say(appendSettings(nil, make([]setting, 600)...))
	}},
	{"answers to SETTINGS", maxBudget + 10, func(p *peer, _ int) { p.frame(frameSettings, flagAck, 0, nil) }},
	{"PING", maxBudget + 10, func(p *peer, _ int) { p.say(appendPing(nil, 0, [8]byte{})) }},
	{"answers to no PING", maxBudget + 10, func(p *peer, _ int) { p.say(appendPing(nil, flagAck, [8]byte{})) }},
	{"WINDOW_UPDATE of the connection", maxBudget + 10, func(p *peer, _ int) { p.grant(0, 1) }},
	{"WINDOW_UPDATE of a stream", maxBudget + 10, func(p *peer, i int) {
		if i == 0 {
			p.request(1, 0)
		}
		p.grant(1, 1)
	}},
	{"WINDOW_UPDATE of a stream that has ended", maxBudget + 10, func(p *peer, i int) {
		if i == 0 {
			p.request(1, 0)
			p.say(appendReset(nil, 1, Cancel))
		}
		p.grant(1, 1)
	}},
	{"a download byte by byte", maxBudget + 10, func(p *peer, i int) {
		if i == 0 {
			p.say(appendSettings(nil, setting{settingInitialWindow, 0}))
			p.headers(1, flagEndStream, get("/long")...)
		}
		p.grant(1, 1)
		synctest.Wait()
	}},
	{"PRIORITY", maxBudget + 10, func(p *peer, _ int) { p.frame(framePriority, 0, 1, make([]byte, 5)) }},
	{"PRIORITY of a wrong size", maxBudget/4 + 10, func(p *peer, _ int) { p.frame(framePriority, 0, 1, make([]byte, 4)) }},
	{"unknown frames", maxBudget + 10, func(p *peer, _ int) { p.frame(0x77, 0, 0, nil) }},
	{"RST_STREAM of a stream that has ended", maxBudget + 10, func(p *peer, i int) {
		if i == 0 {
			p.request(1, 0)
		}
		p.say(appendReset(nil, 1, Cancel))
	}},
	{"GOAWAY", maxBudget + 10, func(p *peer, _ int) { p.say(appendGoAway(nil, 0, NoError, "")) }},
	{"a header list in empty frames", 100, func(p *peer, i int) {
		if i == 0 {
			p.frame(frameHeaders, 0, 1, nil)
		}
		p.frame(frameContinuation, 0, 1, nil)
	}},
	{"a header list in frames of a byte", 100, func(p *peer, i int) {
		if i == 0 {
			p.frame(frameHeaders, 0, 1, nil)
		}
		p.frame(frameContinuation, 0, 1, []byte{0x82})
	}},
	{"a header list without an end", 10, func(p *peer, i int) {
		if i == 0 {
			p.frame(frameHeaders, 0, 1, nil)
		}
		p.frame(frameContinuation, 0, 1, make([]byte, maxFrame))
	}},
	{"a list of references to one large field", 1, func(p *peer, _ int) {
		p.block.Reset()
		_ = p.encoder.WriteField(Field{Name: "x", Value: string(make([]byte, 4000))})
		first := p.block.Len()
		_ = p.encoder.WriteField(Field{Name: "x", Value: string(make([]byte, 4000))})
		bomb := p.block.Bytes()
		for len(bomb) < maxFrame {
			bomb = append(bomb, bomb[first]) // an index of one byte
		}
		p.frame(frameHeaders, flagEndHeaders|flagEndStream, 1, bomb)
		synctest.Wait()
	}},
}

func TestAClientThatOnlyCostsIsEnded(t *testing.T) {
	for _, row := range costly {
		t.Run(row.name, func(t *testing.T) {
			withServer(t, func(_ *peer, s *Stream) {
				if s.Request().Path == "/long" {
					_ = s.Send(ok200, false)
					_, _ = s.Write(make([]byte, 1<<20), true)
					return
				}
				ended := make(chan struct{})
				s.OnEnd(func() { close(ended) })
				<-ended
			}, func(p *peer) {
				n := 0
				for ; n <= row.atMost && p.c.ended() == nil; n++ {
					row.act(p, n)
				}
				p.ends(row.name, EnhanceYourCalm)
				if n > row.atMost {
					p.t.Errorf("it was done %d times, at most %d are allowed", n, row.atMost)
				}
			})
		})
	}
}

// ended returns why the connection has ended. One that goes away has not.
func (c *Conn) ended() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

func TestABusyClientKeepsItsBudget(t *testing.T) {
	for name, act := range map[string]func(p *peer, i int, stream uint32){
		"short requests with pings": func(p *peer, _ int, stream uint32) {
			p.request(stream, flagEndStream)
			p.say(appendPing(nil, 0, [8]byte{}))
		},
		"one request in ten is cancelled": func(p *peer, i int, stream uint32) {
			p.request(stream, flagEndStream)
			if i%10 == 0 {
				p.say(appendReset(nil, stream, Cancel))
			}
		},
		"one request in three is cancelled": func(p *peer, i int, stream uint32) {
			p.request(stream, flagEndStream)
			if i%3 == 0 {
				p.say(appendReset(nil, stream, Cancel))
			}
		},
		"uploads with a ping and an update for each frame": func(p *peer, _ int, stream uint32) {
			p.request(stream, 0)
			for range 4 {
				p.frame(frameData, 0, stream, make([]byte, 100))
				p.grant(0, 1)
			}
			p.frame(frameData, flagEndStream, stream, nil)
		},
		"downloads with an update for each frame": func(p *peer, _ int, stream uint32) {
			p.headers(stream, flagEndStream, get("/some")...)
			for range 4 {
				p.grant(0, 2000)
				p.grant(stream, 2000)
			}
		},
		"priorities of each request": func(p *peer, _ int, stream uint32) {
			p.frame(framePriority, 0, stream, make([]byte, 5))
			p.request(stream, flagEndStream)
		},
	} {
		t.Run(name, func(t *testing.T) {
			withServer(t, func(p *peer, s *Stream) {
				if s.Request().Path != "/some" {
					drains(p, s)
					return
				}
				_ = s.Send(ok200, false)
				for i := range 4 {
					_, _ = s.Write(make([]byte, 2000), i == 3)
				}
			}, func(p *peer) {
				for i := range 5000 {
					act(p, i, uint32(2*i+1))
					if i%20 == 0 {
						p.settle()
					}
				}
				p.settle()
				p.c.mu.Lock()
				defer p.c.mu.Unlock()
				if p.c.err != nil || p.c.budget < maxBudget/2 {
					p.t.Errorf("a budget of %d is left of %d: %v", p.c.budget, maxBudget, p.c.err)
				}
			})
		})
	}
}

// The streams of a proxy that are reset keep their places until their handlers return, so that the next ones
// are refused, while their frames are on the way.
func TestRequestsOfAProxyThatAreRefusedAndCancelledCostNothing(t *testing.T) {
	cfg := small
	cfg.Shared, cfg.MaxStreams = true, 3
	bubble(t, handler(unread).server(cfg), true, func(p *peer) {
		for i := range 2 * maxBudget {
			stream := uint32(2*i + 1)
			p.request(stream, 0)
			p.grant(stream, 1)
			p.frame(frameData, flagEndStream, stream, []byte{1})
			p.say(appendReset(nil, stream, Cancel))
			if i%20 == 0 {
				p.settle()
			}
		}
		p.settle()
		if err := p.c.ended(); err != nil {
			t.Error(err)
		}
		close(p.release)
	})
}

// Programs in Go that read a body in pieces of 4 KiB, as multipart and gzip do, send an update for the
// connection and one for the stream after each piece.
func TestALongBodyPaysForAnUpdateOfEachFourKiB(t *testing.T) {
	const piece = 4 << 10
	withServer(t, func(_ *peer, s *Stream) {
		_ = s.Send(ok200, false)
		_, _ = s.Write(long, true)
	}, func(p *peer) {
		p.say(appendSettings(nil, setting{settingInitialWindow, 1 << 20}))
		p.grant(0, 1<<20)
		p.request(1, flagEndStream)
		got := 0
		for p.c.ended() == nil {
			n := bytesOf(p.settle(), 1)
			if got += n; n == 0 {
				break
			}
			for range n / piece {
				p.grant(0, piece)
				p.grant(1, piece)
			}
		}
		if got != len(long) || p.over() {
			t.Errorf("%d bytes of %d: %v", got, len(long), p.why())
		}
	})
}

func TestTheBudgetGrowsWithTime(t *testing.T) {
	withServer(t, drains, func(p *peer) {
		for second := range 100 {
			for range refillPerSecond / 10 {
				for range 10 {
					p.say(appendPing(nil, 0, [8]byte{}))
				}
				p.settle()
				p.c.Check(1e8)
			}
			if p.c.Err() != nil {
				p.t.Fatalf("ended in second %d", second)
			}
		}
	})
}

// A service hangs, and the deadline of each of its calls is over after a second.
func TestRequestsThatAreCancelledAfterALongWaitCostNothing(t *testing.T) {
	const together = 500
	cfg := small
	cfg.MaxStreams = together
	waiting := handler(func(_ *peer, s *Stream) {
		ended := make(chan struct{})
		s.OnEnd(func() { close(ended) })
		<-ended
	})
	for checks, ends := range map[int]bool{int(time.Second / period): false, 1: true} {
		bubble(t, waiting.server(cfg), true, func(p *peer) {
			for first := uint32(1); first < 2*5000; first += 2 * together {
				for i := range uint32(together) {
					p.request(first+2*i, flagEndStream)
				}
				for range checks {
					p.c.Check(period)
				}
				for i := range uint32(together) {
					p.say(appendReset(nil, first+2*i, Cancel))
				}
				p.settle()
			}
			if p.over() != ends {
				t.Errorf("after %d checks: over %t: %v", checks, p.over(), p.why())
			}
		})
	}
}

// period is how often the server of package downstream calls Check.
const period = 200 * time.Millisecond

func TestAServerThatOnlyCostsIsEnded(t *testing.T) {
	for name, act := range map[string]func(p *peer){
		"empty DATA":                         func(p *peer) { p.frame(frameData, 0, 1, nil) },
		"empty DATA for a cancelled request": func(p *peer) { p.frame(frameData, 0, 3, nil) },
		"trailers for a cancelled request":   func(p *peer) { p.headers(3, flagEndStream, Field{Name: "a", Value: "b"}) },
		"PING":                               func(p *peer) { p.say(appendPing(nil, 0, [8]byte{})) },
		"SETTINGS":                           func(p *peer) { p.say(appendSettings(nil)) },
		"GOAWAY":                             func(p *peer) { p.say(appendGoAway(nil, maxStreamID, NoError, "")) },
		"unknown frames":                     func(p *peer) { p.frame(0x77, 0, 0, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			withClient(t, func(p *peer) {
				s, cancelled := p.c.NewStream(), p.c.NewStream()
				for _, s := range []*Stream{s, cancelled} {
					if err := s.Open(get("/"), true, false); err != nil {
						p.t.Fatal(err)
					}
				}
				cancelled.Close()
				defer s.Close()
				p.headers(1, 0, ok200...)
				n := 0
				for ; n < maxBudget+10 && p.c.ended() == nil; n++ {
					act(p)
				}
				p.ends(name, EnhanceYourCalm)
				if p.c.ended() == nil {
					return
				}
				if _, err := s.Read(make([]byte, 1)); err == nil {
					p.t.Error("the answer goes on")
				}
			})
		})
	}
}

// The server has begun its answer, or ended it with trailers, before it gets the reset.
func TestAnswersThatCrossTheCancellationOfTheirRequestsCostNothing(t *testing.T) {
	withClient(t, func(p *peer) {
		p.settle()
		for i := range 3000 {
			s := p.c.NewStream()
			if err := s.Open(get("/"), true, false); err != nil {
				p.t.Fatalf("after %d cancellations: %v", i, err)
			}
			id := s.id
			s.Close()
			p.headers(id, 0, ok200...)
			p.headers(id, flagEndStream, Field{Name: "x-end", Value: "1"})
		}
		if p.settle(); p.over() {
			t.Error(p.why())
		}
	})
}
