package http2

import (
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
)

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
