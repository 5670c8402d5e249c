package http2

import (
	"errors"
	"io"
	"net"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2/hpack"
)

func TestAServerThatDrainsServesWhatWasOnTheWay(t *testing.T) {
	withServer(t, unread, func(p *peer) {
		p.request(1, flagEndStream)
		p.settle()
		p.c.Shutdown()
		frames := p.settle()
		away, ok := find(frames, frameGoAway)
		ping, pinged := find(frames, framePing)
		if !ok || !pinged || away.code() != NoError || away.value() != maxStreamID {
			p.t.Fatal(frames)
		}
		p.request(3, flagEndStream) // it was on the way
		p.frame(framePing, flagAck, 0, ping.payload)
		if away, ok = find(p.settle(), frameGoAway); !ok || away.code() != NoError || away.value() != 3 {
			p.t.Fatal(away)
		}
		p.request(5, flagEndStream)
		if frames := p.settle(); len(frames) > 0 || p.over() {
			p.t.Error("a request after GOAWAY:", frames)
		}
		if n, _ := p.c.Load(); n != 2 {
			p.t.Errorf("%d requests run", n)
		}
		p.release <- struct{}{}
		if p.settle(); p.over() {
			p.t.Error("the connection has ended before its streams")
		}
		p.release <- struct{}{}
		if p.settle(); !p.over() || p.why() != ErrClosed {
			p.t.Error(p.why())
		}
	})
}

func TestAServerWaitsForTheAnswerOfADrainOnlyForALimitedTime(t *testing.T) {
	withServer(t, quick, func(p *peer) {
		p.settle()
		p.c.Shutdown()
		p.settle()
		p.c.Check(drainTimeout - 1)
		if p.settle(); p.over() {
			t.Error("too early")
		}
		p.c.Check(1)
		p.settle()
		if !p.over() || p.why() != ErrClosed {
			t.Error(p.why())
		}
	})
}

func TestAClientKeepsTheStreamsThatGOAWAYNames(t *testing.T) {
	withClient(t, func(p *peer) {
		p.say(appendSettings(nil, setting{settingMaxStreams, 2}))
		p.settle()
		var all []*Stream
		results := make(chan error, 1)
		for i := range 3 {
			s := p.c.NewStream()
			defer s.Close()
			all = append(all, s)
			if i == 2 { // it waits for a slot
				go func() { results <- s.Open(get("/"), true, false) }()
			} else if err := s.Open(get("/"), true, false); err != nil {
				p.t.Fatal(err)
			}
		}
		synctest.Wait()
		p.say(appendGoAway(nil, 1, NoError, "bye"))
		p.settle()
		if err := <-results; !errors.Is(err, ErrUnprocessed) {
			t.Error("the stream that was not opened:", err)
		}
		if _, err := all[1].Answer(); !errors.Is(err, ErrUnprocessed) {
			t.Error("the stream after the last one:", err)
		}
		if err := p.c.NewStream().Open(get("/"), true, false); !errors.Is(err, ErrUnprocessed) || p.c.Reserve() != nil {
			t.Error("a new stream:", err)
		}
		p.headers(1, flagEndStream, ok200...)
		if h, err := all[0].Answer(); err != nil || h.Status != 200 {
			t.Error(err)
		}
		if p.settle(); !p.over() || p.why() != ErrClosed {
			t.Error("the end:", p.why())
		}
	})
}

func TestAClientThatGoesAwayGetsItsAnswers(t *testing.T) {
	withClient(t, func(p *peer) {
		s := p.c.NewStream()
		defer s.Close()
		if err := s.Open(get("/"), true, false); err != nil {
			p.t.Fatal(err)
		}
		p.c.Shutdown()
		if a, ok := find(p.settle(), frameGoAway); !ok || a.code() != NoError || p.c.Err() != ErrClosed {
			t.Error(a, p.c.Err())
		}
		p.headers(1, flagEndStream, ok200...)
		if _, err := s.Answer(); err != nil {
			t.Error(err)
		}
		if p.settle(); !p.over() || p.why() != ErrClosed {
			t.Error("the end:", p.why())
		}
	})
}

func TestTheErrorOfALostConnectionReportsWhatMayBeRepeated(t *testing.T) {
	withClient(t, func(p *peer) {
		p.say(appendSettings(nil, setting{settingMaxStreams, 2}))
		p.settle()
		opened, waits := p.c.NewStream(), p.c.NewStream()
		if err := opened.Open(get("/"), true, false); err != nil {
			p.t.Fatal(err)
		}
		reserved := p.c.Reserve()
		results := make(chan error, 1)
		go func() { results <- waits.Open(get("/"), true, false) }()
		synctest.Wait()
		_ = p.nc.Close()
		synctest.Wait()
		if err := <-results; !errors.Is(err, ErrUnprocessed) {
			t.Error("a stream that waits for a slot:", err)
		}
		if err := reserved.Open(get("/"), true, false); !errors.Is(err, ErrUnprocessed) {
			t.Error("a reserved stream:", err)
		}
		if _, err := opened.Answer(); err == nil || errors.Is(err, ErrUnprocessed) || err == io.EOF {
			t.Error("an open stream:", err)
		}
		for _, s := range []*Stream{opened, reserved, waits} {
			s.Close()
		}
		if n, _ := p.c.Load(); n != 0 {
			t.Errorf("%d streams are left", n)
		}
	})
}

func TestARefusedStreamMayBeRepeated(t *testing.T) {
	withClient(t, func(p *peer) {
		p.settle()
		other := p.c.NewStream()
		if err := other.Open(get("/"), true, false); err != nil {
			p.t.Fatal(err)
		}
		defer other.Close()
		for _, code := range []Code{Cancel, EnhanceYourCalm, RefusedStream} {
			repeated := code == RefusedStream
			s := p.c.NewStream()
			if err := s.Open(get("/"), true, false); err != nil {
				p.t.Fatal(err)
			}
			synctest.Wait()
			p.say(appendReset(nil, s.id, code))
			if _, err := s.Answer(); errors.Is(err, ErrUnprocessed) != repeated {
				t.Errorf("%v: %v", code, err)
			}
			s.Close()
		}
	})
}

// A reset with NO_ERROR gives up the rest of a request, and only after the whole answer.
func TestAResetWithoutAnErrorWithinAnAnswerIsAnError(t *testing.T) {
	withClient(t, func(p *peer) {
		for _, whole := range []bool{true, false} {
			s := p.c.NewStream()
			if err := s.Open(get("/"), false, false); err != nil {
				p.t.Fatal(err)
			}
			flags := uint8(0)
			if whole {
				flags = flagEndStream
			}
			p.headers(s.id, flags, ok200...)
			p.say(appendReset(nil, s.id, NoError))
			p.settle()
			if _, err := s.Answer(); err != nil && whole {
				t.Error("the head of a whole answer:", err)
			}
			if _, err := s.Read(make([]byte, 1)); (err == io.EOF) != whole {
				t.Errorf("whole %v: the body ends with %v", whole, err)
			}
			s.Close()
		}
	})
}

func TestAnAnswerOfLengthZeroEndsWithItsHead(t *testing.T) {
	withClient(t, func(p *peer) {
		for length, ends := range map[string]bool{"0": true, "1": false} {
			s := p.c.NewStream()
			if err := s.Open(get("/"), true, false); err != nil {
				p.t.Fatal(err)
			}
			p.headers(s.id, flagEndStream, append(slices.Clone(ok200), Field{Name: "content-length", Value: length})...)
			p.settle()
			if _, err := s.Read(make([]byte, 1)); (err == io.EOF) != ends {
				t.Errorf("length %s without a body: %v", length, err)
			}
			s.Close()
		}
	})
}

func TestAFrameForAStreamThatWasNeverOpenedEndsTheConnection(t *testing.T) {
	for _, stream := range []uint32{2, 3} { // only a client opens streams, with odd numbers
		for name, frame := range map[string]func(*peer){
			"DATA":          func(p *peer) { p.data(stream, 1) },
			"RST_STREAM":    func(p *peer) { p.say(appendReset(nil, stream, Cancel)) },
			"WINDOW_UPDATE": func(p *peer) { p.grant(stream, 1) },
		} {
			withServer(t, drains, func(p *peer) {
				p.request(1, 0)
				p.settle()
				frame(p)
				p.ends(name, ProtocolError)
			})
		}
	}
}

func TestOnlyAContinuationFollowsPartOfAHeaderList(t *testing.T) {
	for name, frame := range map[string]func(*peer){
		"DATA of the same stream":        func(p *peer) { p.data(1, 1) },
		"HEADERS of the same stream":     func(p *peer) { p.frame(frameHeaders, flagEndHeaders, 1, nil) },
		"PING":                           func(p *peer) { p.say(appendPing(nil, 0, [8]byte{})) },
		"CONTINUATION of another stream": func(p *peer) { p.frame(frameContinuation, flagEndHeaders, 3, nil) },
	} {
		withServer(t, drains, func(p *peer) {
			p.frame(frameHeaders, 0, 1, nil)
			p.settle()
			frame(p)
			p.ends(name, ProtocolError)
		})
	}
}

func TestAHeaderListThatCannotBeDecodedEndsTheConnection(t *testing.T) {
	for name, list := range map[string][]byte{
		"an index that there is not":    {0x80},
		"a field that breaks off":       {0x40, 0x05, 'a'},
		"a field that lacks its length": {0x40},
	} {
		withServer(t, drains, func(p *peer) {
			p.frame(frameHeaders, flagEndHeaders|flagEndStream, 1, list)
			p.ends(name, CompressionError)
		})
	}
}

func TestAClientThatRefusesAStreamKeepsItsConnection(t *testing.T) {
	withServer(t, drains, func(p *peer) {
		p.request(1, 0)
		p.settle()
		p.say(appendReset(nil, 1, RefusedStream))
		p.settle()
		p.request(3, flagEndStream)
		frames := p.settle()
		if _, away := find(frames, frameGoAway); away || p.over() {
			t.Errorf("the server goes away: %v, %v", frames, p.why())
		}
	})
}

func TestAServerThatDoesNotDrainGoesOnTakingStreams(t *testing.T) {
	withServer(t, drains, func(p *peer) {
		p.settle()
		for range 10 {
			p.c.Check(drainTimeout)
		}
		p.request(1, flagEndStream)
		frames := p.settle()
		_, answered := find(frames, frameHeaders)
		if _, away := find(frames, frameGoAway); away || !answered || p.over() {
			t.Errorf("no answer, or the server goes away: %v, %v", frames, p.why())
		}
	})
}

func TestAReservedStreamGivesItsPlaceBack(t *testing.T) {
	withClient(t, func(p *peer) {
		p.say(appendSettings(nil, setting{settingMaxStreams, 1}))
		p.settle()
		for range 3 {
			s := p.c.Reserve()
			if s == nil {
				p.t.Fatal("the place is taken")
			}
			if p.c.Reserve() != nil {
				t.Error("two streams have one place")
			}
			s.Close()
		}
		s, next := p.c.Reserve(), p.c.NewStream()
		opened := make(chan error, 1)
		go func() { opened <- next.Open(get("/"), true, false) }()
		synctest.Wait()
		if p.c.Reserve() != nil {
			t.Error("a reservation before a stream that waits")
		}
		s.Close() // the next one gets the place
		if err := <-opened; err != nil {
			t.Error(err)
		}
		next.Close()
		if n, _ := p.c.Load(); n != 0 {
			t.Errorf("%d streams are left", n)
		}
	})
}

func TestStreamsOpenInTheOrderInWhichTheyWait(t *testing.T) {
	withClient(t, func(p *peer) {
		p.say(appendSettings(nil, setting{settingMaxStreams, 1}))
		p.settle()
		first := p.c.NewStream()
		if err := first.Open(get("/first"), true, false); err != nil {
			p.t.Fatal(err)
		}
		const waiting = 5
		opened := make(chan int, waiting)
		all := make([]*Stream, waiting)
		errGone := errors.New("gone")
		for i := range waiting {
			all[i] = p.c.NewStream()
			go func() {
				if err := all[i].Open(get("/"), true, false); err == nil {
					opened <- i
				} else if i != 2 || err != errGone {
					t.Error(i, err)
				}
			}()
			synctest.Wait()
		}
		all[2].Interrupt(errGone)
		synctest.Wait()
		first.Close()
		for _, want := range []int{0, 1, 3, 4} {
			if got := <-opened; got != want {
				t.Errorf("stream %d was opened, want %d", got, want)
			}
			synctest.Wait()
			if len(opened) > 0 {
				t.Error("more streams than the settings allow")
			}
			all[want].Close()
		}
		all[2].Close()
		if n, _ := p.c.Load(); n != 0 {
			t.Errorf("%d streams are left", n)
		}
	})
}

func TestMoreStreamsAreOpenedWhenTheSettingsAllowMore(t *testing.T) {
	withClient(t, func(p *peer) {
		p.say(appendSettings(nil, setting{settingMaxStreams, 0}))
		p.settle()
		opened := make(chan *Stream, 3)
		for range 3 {
			go func() {
				s := p.c.NewStream()
				if err := s.Open(get("/"), true, false); err != nil {
					t.Error(err)
				}
				opened <- s
			}()
		}
		if synctest.Wait(); len(opened) != 0 {
			t.Error("streams were opened that the settings do not allow")
		}
		p.say(appendSettings(nil, setting{settingMaxStreams, 2}))
		if synctest.Wait(); len(opened) != 2 {
			t.Errorf("%d streams were opened", len(opened))
		}
		for range 3 {
			(<-opened).Close()
		}
	})
}

func TestMoreStreamsThanTheSettingsAllowAreRefused(t *testing.T) {
	cfg := small
	cfg.MaxStreams = 3
	bubble(t, handler(unread).server(cfg), true, func(p *peer) {
		for i := range 3 {
			p.request(uint32(2*i+1), flagEndStream)
		}
		p.settle()
		p.request(7, flagEndStream)
		p.resets("a fourth stream", 7, RefusedStream)
		// A stream that was reset has its place until it was closed: else a client could have
		// any number of requests run.
		p.say(appendReset(nil, 1, Cancel))
		p.request(9, flagEndStream)
		p.resets("a stream next to one that still runs", 9, RefusedStream)
		p.release <- struct{}{}
		synctest.Wait()
		p.request(11, flagEndStream)
		if frames := p.settle(); len(frames) > 1 {
			t.Error(frames)
		}
		close(p.release)
	})
}

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
		s := p.c.NewStream()
		defer s.Close()
		if err := s.Open(get("/"), true, false); err != nil {
			p.t.Fatal(err)
		}
		p.settle()
		for round := range 3 { // a server that answers may take its time
			p.c.Check(0)
			p.c.Check(pingAfter - 1)
			if _, ok := find(p.settle(), framePing); ok {
				p.t.Fatal("a PING too early, round", round)
			}
			p.c.Check(1)
			ping, ok := find(p.settle(), framePing)
			if !ok {
				p.t.Fatal("no PING, round", round)
			}
			p.c.Check(pingTimeout)
			p.frame(framePing, flagAck, 0, ping.payload)
			p.settle()
		}
		p.c.Check(0)
		p.c.Check(pingAfter)
		p.c.Check(pingTimeout)
		if p.settle(); p.over() {
			t.Error("too early")
		}
		p.c.Check(1)
		if p.settle(); !p.over() || p.why() != errSilent {
			t.Error(p.why())
		}
		if _, err := s.Answer(); err != errSilent {
			t.Error(err)
		}
	})
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

func TestAClientHasOneStreamUntilItKnowsHowManyAreAllowed(t *testing.T) {
	for name, c := range map[string]struct {
		settings []setting
		streams  int
	}{
		"a limit": {[]setting{{settingMaxStreams, 7}}, 7}, "none is named": {nil, standardStreams}, "no stream at all": {[]setting{{settingMaxStreams, 0}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ours, theirs := net.Pipe()
				room := 0
				conn := NewClient(ours, Config{MaxHead: 16 << 10, Room: func() { room++ }})
				ended := make(chan error, 1)
				go func() { ended <- conn.Run() }()
				go func() { _, _ = io.Copy(io.Discard, theirs) }()
				first := conn.Reserve()
				if first == nil || conn.Reserve() != nil {
					t.Error("not one stream before the settings")
				}
				first.Close()
				synctest.Wait()
				select {
				case <-conn.Ready():
					t.Error("ready before the settings")
				default:
				}
				before := room
				_, _ = theirs.Write(appendSettings(nil, c.settings...))
				<-conn.Ready()
				synctest.Wait()
				if room == before {
					t.Error("the settings make room, which is not reported")
				}
				var all []*Stream
				for s := conn.Reserve(); s != nil; s = conn.Reserve() {
					all = append(all, s)
				}
				if len(all) != c.streams {
					t.Errorf("%d streams, want %d", len(all), c.streams)
				}
				for _, s := range all {
					s.Close()
				}
				_, _ = conn.Close(), theirs.Close()
				<-ended
			})
		})
	}
}

func TestAConnectionThatEndsBeforeItsSettingsIsReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		conn := NewClient(ours, small)
		ended := make(chan error, 1)
		go func() { ended <- conn.Run() }()
		_ = theirs.Close()
		<-conn.Ready()
		if conn.Err() == nil {
			t.Error("it accepts streams")
		}
		<-ended
	})
}

// A service may refuse streams that its settings allow, because of load.
func TestAfterARefusalAClientOpensNoMoreStreamsThanWereAcceptedAndOneMoreWithEachAnswer(t *testing.T) {
	withClient(t, func(p *peer) {
		p.settle()
		open := func() *Stream {
			s := p.c.Reserve()
			if s == nil {
				return nil
			}
			if err := s.Open(get("/"), true, false); err != nil {
				p.t.Fatal(err)
			}
			return s
		}
		var all []*Stream
		for range 4 {
			all = append(all, open())
		}
		p.settle()
		p.say(appendReset(nil, all[3].id, RefusedStream))
		p.settle()
		if open() != nil {
			t.Error("a fourth stream after the refusal of one")
		}
		p.headers(all[0].id, flagEndStream, ok200[0])
		p.settle()
		for range 2 {
			if s := open(); s != nil {
				all = append(all, s)
			} else {
				t.Error("an answer does not raise the limit")
			}
		}
		if open() != nil {
			t.Error("an answer raises the limit by more than one")
		}
		for _, s := range all {
			s.Close()
		}
	})
}

func TestAConnectionThatRefusesItsOnlyStreamGetsNoOther(t *testing.T) {
	withClient(t, func(p *peer) {
		p.settle()
		s := p.c.Reserve()
		if err := s.Open(get("/"), true, false); err != nil {
			p.t.Fatal(err)
		}
		p.settle()
		p.say(appendReset(nil, s.id, RefusedStream))
		p.settle()
		if p.c.Reserve() != nil || p.c.Err() == nil {
			t.Error("it accepts streams")
		}
		s.Close()
	})
}
