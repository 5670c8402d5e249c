package http2

import (
	"errors"
	"io"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"
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
		p.data(5, 1) // with what belongs to it
		p.headers(5, flagEndStream, Field{Name: "x", Value: "y"})
		if frames := p.settle(); len(frames) > 0 || p.over() {
			p.t.Error("its body after GOAWAY:", frames)
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

// Run may be within a frame that it has read before the end. Sent after the end of what a connection
// sends, its answer would destroy what the client has not read yet.
func TestAServerThatHasEndedAnswersNothing(t *testing.T) {
	withServer(t, quick, func(p *peer) {
		p.settle()
		p.c.Shutdown()
		p.say(appendPing(nil, flagAck, shutdownPing))
		if p.settle(); !p.over() {
			p.t.Fatal("it has not ended")
		}
		if err := p.c.onPing(frame{length: 8, kind: framePing}, make([]byte, 8)); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		p.c.mu.Lock()
		defer p.c.mu.Unlock()
		if len(p.c.out) > 0 || p.c.writing || p.c.cut {
			t.Errorf("%d bytes wait, and a write failed: %v", len(p.c.out), p.c.cut)
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

// After the whole answer only a reset with an error ends the stream early.
func TestAResetAfterAnAnswerEndsTheRequestAndWithAnErrorTheStream(t *testing.T) {
	withClient(t, func(p *peer) {
		p.settle()
		for code, ends := range map[Code]int{NoError: 0, Cancel: 1} {
			s := p.c.NewStream()
			if err := s.Open(get("/"), false, false); err != nil {
				p.t.Fatal(err)
			}
			ended := 0
			s.OnEnd(func() { ended++ })
			p.headers(s.id, flagEndStream, ok200...)
			p.say(appendReset(nil, s.id, code))
			p.settle()
			var reset *ResetError
			if _, err := s.Write([]byte("x"), false); !errors.As(err, &reset) || reset.Code != code || !reset.Remote {
				t.Errorf("%v: a write returns %v", code, err)
			}
			if ended != ends {
				t.Errorf("%v: the end is reported %d times, want %d", code, ended, ends)
			}
			p.c.mu.Lock()
			if p.c.active != 0 {
				t.Errorf("%v: the stream still takes a place of the connection", code)
			}
			p.c.mu.Unlock()
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

func TestAnAnswerToNoPingEndsNoServer(t *testing.T) {
	withServer(t, func(*peer, *Stream) {}, func(p *peer) {
		p.say(appendPing(nil, flagAck, [8]byte{1}))
		if a, ok := find(p.settle(), frameGoAway); ok || p.c.Err() != nil {
			t.Error(a, p.c.Err())
		}
	})
}

// Some servers send nothing before they have the settings of the client.
func TestAClientSendsItsSettingsWithoutARequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		c := NewClient(ours, Config{MaxHead: 16 << 10, Room: func() {}})
		defer c.Close()
		defer theirs.Close()
		_ = theirs.SetReadDeadline(time.Now().Add(time.Second))
		first := make([]byte, len(Preface)+frameHead)
		if _, err := io.ReadFull(theirs, first); err != nil || parseFrame(first[len(Preface):]).kind != frameSettings {
			t.Errorf("%q, %v", first, err)
		}
	})
}

// Nothing else would end a connection whose stream numbers are used up.
func TestAClientThatHasUsedUpItsStreamsEndsByShutdown(t *testing.T) {
	withClient(t, func(p *peer) {
		p.c.mu.Lock()
		p.c.opened = maxStreamID - 2
		p.c.mu.Unlock()
		if p.c.Err() != ErrClosed || p.c.Reserve() != nil {
			t.Error(p.c.Err())
		}
		p.c.Shutdown()
		if p.settle(); !p.over() || p.why() != ErrClosed {
			t.Error("the end:", p.why())
		}
	})
}
