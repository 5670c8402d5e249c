package http2

import (
	"errors"
	"io"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2/hpack"
)

func TestAConnectionThatStallsIsEnded(t *testing.T) {
	const progress = 10 * time.Second
	cfg := small
	cfg.Progress, cfg.HeadTimeout = progress, progress/2
	const tick = time.Second
	for _, row := range []struct {
		name  string
		act   func(p *peer, tick int)
		limit time.Duration
	}{
		{"half the head of a frame", func(p *peer, tick int) {
			if tick < 3 {
				p.say([]byte{0})
			}
		}, progress},
		{"half a frame", func(p *peer, tick int) {
			if tick == 0 {
				p.say([]byte{0, 0, 8, byte(framePing), 0, 0, 0, 0, 0, 1, 2})
			}
		}, progress},
		{"half a header list", func(p *peer, tick int) {
			if tick == 0 {
				p.frame(frameHeaders, 0, 1, nil)
			}
		}, progress / 2},
		{"a header list that goes on", func(p *peer, tick int) {
			if tick == 0 {
				p.frame(frameHeaders, 0, 1, []byte{0x82})
			} else {
				p.frame(frameContinuation, 0, 1, nil)
			}
		}, progress / 2},
	} {
		t.Run(row.name, func(t *testing.T) {
			bubble(t, handler(drains).server(cfg), true, func(p *peer) {
				waited := time.Duration(0)
				for ; !p.over() && waited < 2*progress; waited += tick {
					row.act(p, int(waited/tick))
					synctest.Wait()
					p.c.Check(tick)
					p.settle()
				}
				if waited < row.limit || waited > row.limit+4*tick || p.why() != errStuck {
					t.Errorf("after %v: %v", waited, p.why())
				}
			})
		})
	}
}

func TestAClientThatReadsNothingIsEndedAfterTheProgressTimeout(t *testing.T) {
	cfg := small
	cfg.Progress = 10 * time.Second
	bubble(t, handler(quick).server(cfg), false, func(p *peer) {
		p.request(1, flagEndStream)
		synctest.Wait()
		for range 10 {
			p.c.Check(time.Second)
		}
		if synctest.Wait(); p.over() {
			t.Error("too early")
		}
		p.c.Check(time.Second)
		if synctest.Wait(); !p.over() || p.why() != errStalled {
			t.Error(p.why())
		}
	})
}

func TestAServerThatSendsAndNeverReadsIsEnded(t *testing.T) {
	bubble(t, clientOf(small), false, func(p *peer) {
		minute := time.Duration(0)
		for ; minute < 5*time.Minute && p.c.ended() == nil; minute += time.Second {
			p.say(appendPing(nil, 0, [8]byte{})) // its answer waits
			synctest.Wait()
			p.c.Check(time.Second)
		}
		if synctest.Wait(); !p.over() || WhyEnded(p.why()) != WhyStalled || minute < time.Minute {
			t.Errorf("after %v: %v", minute, p.why())
		}
	})
}

func TestAnAnswerWhoseWindowStaysClosedIsResetAfterTheProgressTimeout(t *testing.T) {
	const progress = 10 * time.Second
	cfg := small
	cfg.Progress = progress
	for name, closed := range map[string]bool{"of the stream": true, "of the connection": false} {
		t.Run(name, func(t *testing.T) {
			results := make(chan error, 1)
			serve := handler(func(_ *peer, s *Stream) {
				_ = s.Send(ok200, false)
				_, err := s.Write(make([]byte, 100_000), true)
				results <- err
			})
			bubble(t, serve.server(cfg), true, func(p *peer) {
				if closed {
					p.grant(0, 1<<20)
				} else {
					p.say(appendSettings(nil, setting{settingInitialWindow, 1 << 20}))
				}
				p.request(1, flagEndStream)
				for range 3 { // a byte now and then is progress
					p.settle()
					p.c.Check(progress)
					p.grant(map[bool]uint32{true: 1, false: 0}[closed], 1)
				}
				p.settle()
				p.c.Check(progress)
				if _, ok := find(p.settle(), frameReset); ok {
					t.Error("too early")
				}
				p.c.Check(1)
				p.resets("a window that stays closed", 1, Cancel)
				var reset *ResetError
				if err := <-results; !errors.As(err, &reset) {
					t.Error(err)
				}
			})
		})
	}
}

func TestAServerThatGoesAwayWaitsForASlowClientForTheProgressTimeout(t *testing.T) {
	const progress, size = time.Minute, 60_000
	cfg := small
	cfg.Progress = progress
	for name, slow := range map[string]bool{"one that is slow": true, "one that takes nothing": false} {
		t.Run(name, func(t *testing.T) {
			serve := handler(func(_ *peer, s *Stream) {
				_ = s.Send(ok200, false)
				_, _ = s.Write(make([]byte, size), true)
			})
			bubble(t, serve.server(cfg), false, func(p *peer) {
				p.request(1, flagEndStream)
				synctest.Wait()
				p.c.Shutdown()
				p.say(appendPing(nil, flagAck, shutdownPing))
				synctest.Wait()
				if err := p.c.ended(); err != ErrClosed {
					p.t.Fatal("the connection does not go away:", err)
				}
				time.Sleep(progress)
				p.c.Check(progress)
				if synctest.Wait(); p.over() {
					t.Error("too early")
				}
				if !slow {
					p.c.Check(1)
					if synctest.Wait(); !p.over() {
						t.Error("the server waits for longer")
					}
					return
				}
				done := make(chan struct{})
				go func() { defer close(done); p.read() }()
				<-done
				frames := p.settle()
				if n := bytesOf(frames, 1); n != size || frames[len(frames)-1].kind != frameGoAway {
					t.Errorf("%d bytes of %d, with %d frames", n, size, len(frames))
				}
			})
		})
	}
}

// The system would go on sending what it holds, as slowly as it is read.
func TestAConnectionThatHasStalledLeavesNothingToSend(t *testing.T) {
	conns := make(chan *Conn, 1)
	cfg := small
	cfg.Progress = time.Minute
	nc := listening(t, cfg, conns, func(s *Stream) {
		_ = s.Send(ok200, false)
		_, _ = s.Write(long, true)
		s.Close()
	})
	p := &peer{t: t, nc: nc}
	p.encoder = hpack.NewEncoder(&p.block)
	p.say(appendSettings([]byte(Preface), setting{settingInitialWindow, 1 << 30}))
	p.grant(0, 1<<30)
	p.request(1, flagEndStream)
	c, end := <-conns, time.Now().Add(10*time.Second)
	for ; c.ended() == nil && time.Now().Before(end); time.Sleep(time.Millisecond) { // the system takes what fits in its buffers
		c.Check(time.Second)
	}
	if n, err := io.Copy(io.Discard, nc); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("after %d bytes: %v", n, err)
	}
}

func TestASilentServerIsPingedAndEnded(t *testing.T) {
	withClient(t, func(p *peer) {
		var all []*Stream
		for round, after := range []time.Duration{pingAfter, pingAfter, pingAgain, pingAgain, pingAfter} { // a server that answers may take its time
			switch round {
			case 0, 1:
				all = append(all, opened(p))
				defer all[round].Close()
			case 4:
				p.headers(all[0].id, 0, ok200...) // what it sends makes it one to ask soon
			}
			p.settle()
			p.c.Check(0)
			p.c.Check(after - 1)
			if _, ok := find(p.settle(), framePing); ok {
				p.t.Fatal("a PING too early, round", round)
			}
			p.c.Check(1)
			ping, ok := find(p.settle(), framePing)
			if !ok {
				p.t.Fatal("no PING, round", round)
			}
			p.c.Check(pingTimeout)
			if p.settle(); p.over() {
				p.t.Fatal("ended too early, round", round)
			}
			if round < 4 {
				p.frame(framePing, flagAck, 0, ping.payload)
				p.settle()
			}
		}
		p.c.Check(1)
		if p.settle(); !p.over() || p.why() != errSilent {
			t.Error(p.why())
		}
		if _, err := all[1].Answer(); err != errSilent {
			t.Error(err)
		}
	})
}

// A server may be gone since long before the request.
func TestTheFirstRequestAfterALongSilenceFindsThatTheServerIsGone(t *testing.T) {
	withClient(t, func(p *peer) {
		p.settle()
		p.c.Check(0)
		p.c.Check(time.Hour)
		s := opened(p)
		defer s.Close()
		p.c.Check(1)
		if _, ok := find(p.settle(), framePing); !ok {
			t.Error("no PING")
		}
		p.c.Check(pingTimeout)
		if p.settle(); p.over() {
			t.Error("too early")
		}
		p.c.Check(1)
		if _, err := s.Answer(); err != errSilent {
			t.Error(err)
		}
	})
}

// Servers of gRPC end a connection on which PINGs come again and again while they send nothing:
// the third within five minutes of the one before, or within two hours without streams.
func TestAServerThatSendsNothingIsPingedTwiceAtMost(t *testing.T) {
	for name, row := range map[string]struct {
		act  func(p *peer, second int) (streams []*Stream)
		most int
	}{
		"without a stream": {func(*peer, int) []*Stream { return nil }, 0},
		"with a stream": {func(p *peer, second int) []*Stream {
			if second > 0 {
				return nil
			}
			return []*Stream{opened(p)}
		}, 1},
		"with more and more streams": {func(p *peer, second int) []*Stream {
			if second%10 > 0 {
				return nil
			}
			return []*Stream{opened(p)}
		}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			withClient(t, func(p *peer) {
				p.settle()
				pings := 0
				for second := range 120 {
					for _, s := range row.act(p, second) {
						defer s.Close()
					}
					p.c.Check(time.Second)
					for _, f := range p.settle() {
						if f.kind == framePing {
							pings++
							p.frame(framePing, flagAck, 0, f.payload)
						}
					}
				}
				if p.settle(); pings > row.most || p.over() {
					t.Errorf("%d PINGs in two minutes, at most %d are allowed: %v", pings, row.most, p.why())
				}
			})
		})
	}
}

// opened returns a stream whose request was sent.
func opened(p *peer) *Stream {
	p.t.Helper()
	s := p.c.NewStream()
	if err := s.Open(get("/"), true, false); err != nil {
		p.t.Fatal(err)
	}
	return s
}

func TestABusyConnectionIsNotPinged(t *testing.T) {
	withClient(t, func(p *peer) {
		for range 100 {
			p.say(appendSettings(nil))
			p.settle()
			p.c.Check(pingAfter)
		}
		if p.settle(); p.over() {
			t.Error(p.why())
		}
	})
}

func TestTheIdleTimeOfAConnectionIsThatWithoutStreams(t *testing.T) {
	withServer(t, unread, func(p *peer) {
		p.settle()
		if d := p.c.Idle(time.Second); d != time.Second {
			t.Error(d)
		}
		p.request(1, flagEndStream)
		p.settle()
		if d := p.c.Idle(time.Second); d != 0 {
			t.Error(d)
		}
		p.release <- struct{}{}
		p.settle()
		if d := p.c.Idle(time.Second); d != time.Second {
			t.Error(d)
		}
	})
}

// What is read from a socket without a buffer counts like what is read from TLS.
func TestAConnectionOverTCPOnWhichAnswersComeIsNotSilent(t *testing.T) {
	c := NewClient(listening(t, small, nil, func(s *Stream) {
		_ = s.Send(ok200, true)
		s.Close()
	}), small)
	ran := make(chan error, 1)
	go func() { ran <- c.Run() }()
	for i := range 10 {
		s := c.NewStream()
		if err := s.Open(get("/"), true, false); err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
		if _, err := s.Answer(); err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
		s.Close()
		c.Check(pingAfter - time.Second)
		c.mu.Lock()
		pinged := c.pinged
		c.mu.Unlock()
		if pinged {
			t.Fatalf("after request %d the other side is asked whether it is there", i)
		}
	}
	if err := c.Err(); err != nil {
		t.Error(err)
	}
	_ = c.Close()
	<-ran
}
