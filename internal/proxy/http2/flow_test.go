package http2

import (
	"bytes"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestNoMoreIsReceivedThanTheWindowOfAStream(t *testing.T) {
	withServer(t, unread, func(p *peer) {
		p.request(1, 0)
		p.data(1, defaultWindow)
		if frames := p.settle(); granted(frames, 1) != 0 {
			t.Error("the window of a stream was given back unread:", frames)
		}
		p.request(3, 0)
		p.frame(frameData, 0, 1, []byte("x"))
		p.resets("a byte too many", 1, FlowControlError)
		p.request(5, 0)
		p.frame(frameData, flagPadded, 5, append([]byte{255}, make([]byte, 255)...))
		p.data(5, defaultWindow-256)
		if _, ok := find(p.settle(), frameReset); ok {
			t.Error("padding counted twice")
		}
		p.frame(frameData, 0, 5, []byte("x"))
		p.resets("a byte next to padding too many", 5, FlowControlError)
		close(p.release)
	})
}

func TestNoMoreIsReceivedThanTheWindowOfAServersConnection(t *testing.T) {
	withServer(t, unread, func(p *peer) {
		window := firstWindow + granted(p.settle(), 0)
		if window != 1<<20 {
			t.Errorf("the window of the connection has %d bytes", window)
		}
		streams := window / defaultWindow
		for i := range streams {
			p.request(uint32(2*i+1), 0)
			p.data(uint32(2*i+1), defaultWindow)
		}
		if frames := p.settle(); granted(frames, 0) != 0 || p.over() {
			p.t.Fatal("the window of the connection was given back unread:", frames)
		}
		next := uint32(2*streams + 1)
		p.request(next, 0)
		p.frame(frameData, 0, next, []byte("x"))
		synctest.Wait()
		close(p.release) // Run waits for the streams
		p.ends("a byte too many", FlowControlError)
	})
}

// Whatever way a body ends that was not read: what it held of the window is given back.
func TestAServersConnectionGetsBackTheWindowOfStreamsThatEnd(t *testing.T) {
	for name, end := range map[string]func(*peer, uint32){
		"closed":  func(*peer, uint32) {},
		"reset":   func(p *peer, s uint32) { p.say(appendReset(nil, s, Cancel)) },
		"refused": func(p *peer, s uint32) { p.grant(s, 0) },
		"read":    func(p *peer, s uint32) { p.frame(frameData, flagEndStream, s, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			withServer(t, func(p *peer, s *Stream) {
				<-p.release
				if name == "read" {
					drains(p, s)
				}
			}, func(p *peer) {
				window := firstWindow + granted(p.settle(), 0)
				for i := range 100 { // far more than the window of the connection
					stream := uint32(2*i + 1)
					n := min(defaultWindow, window)
					p.request(stream, 0)
					p.data(stream, n)
					end(p, stream)
					p.release <- struct{}{}
					window += granted(p.settle(), 0) - n
				}
				if p.over() || window < 1<<19 {
					t.Errorf("%d bytes of the window are left: %v", window, p.why())
				}
			})
		})
	}
}

func TestASenderWaitsForTheWindowsAndContinues(t *testing.T) {
	const size = 300_000
	body := bytes.Repeat([]byte("0123456789"), size/10)
	withServer(t, func(_ *peer, s *Stream) {
		_ = s.Send(ok200, false)
		if n, err := s.Write(body, true); n != size || err != nil {
			t.Errorf("%d bytes, %v", n, err)
		}
	}, func(p *peer) {
		p.request(1, flagEndStream)
		sent := 0
		step := func(what string, want int) {
			t.Helper()
			frames := p.settle()
			if n := bytesOf(frames, 1); n != want {
				t.Errorf("%s: %d bytes were sent, want %d", what, n, want)
			}
			sent += want
		}
		step("the first windows", firstWindow)
		p.grant(1, 1000)
		step("a window of the stream alone", 0)
		p.grant(0, 300)
		step("less on the connection", 300)
		p.grant(0, 1000)
		step("less on the stream", 700)
		p.say(appendSettings(nil, setting{settingInitialWindow, 0}))
		p.grant(0, 100_000)
		p.grant(1, 65535-1) // the window was made less than nothing
		step("a window below nothing", 0)
		p.grant(1, 2)
		step("one byte more than nothing", 1)
		p.say(appendSettings(nil, setting{settingInitialWindow, 50_000}))
		step("larger windows by the settings", 50_000)
		p.grant(0, 1<<20)
		p.grant(1, 1<<20)
		frames := p.settle()
		last := frames[len(frames)-1]
		if sent += bytesOf(frames, 1); sent != size || last.kind != frameData || !last.has(flagEndStream) {
			t.Errorf("%d bytes, the last frame %v", sent, last)
		}
	})
}

func TestAWindowOfMoreThan31BitsIsRefused(t *testing.T) {
	for _, row := range []struct {
		name string
		act  func(p *peer)
		code Code
		all  bool // the connection ends
	}{
		{"a stream", func(p *peer) { p.grant(1, maxWindow) }, FlowControlError, false},
		{"nothing for a stream", func(p *peer) { p.grant(1, 0) }, ProtocolError, false},
		{"the connection", func(p *peer) { p.grant(0, maxWindow) }, FlowControlError, true},
		{"nothing for the connection", func(p *peer) { p.grant(0, 0) }, ProtocolError, true},
		{"a setting", func(p *peer) { p.say(appendSettings(nil, setting{settingInitialWindow, maxWindow + 1})) }, FlowControlError, true},
		{"a setting next to an update", func(p *peer) {
			p.grant(1, 1<<20)
			p.say(appendSettings(nil, setting{settingInitialWindow, maxWindow}))
		}, FlowControlError, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			withServer(t, drains, func(p *peer) {
				p.request(1, 0)
				p.settle()
				row.act(p)
				if row.all {
					p.ends(row.name, row.code)
				} else {
					p.resets(row.name, 1, row.code)
				}
			})
		})
	}
}

func TestAWindowOf31BitsIsAllowed(t *testing.T) {
	withServer(t, drains, func(p *peer) {
		p.request(1, 0)
		p.settle()
		p.grant(1, maxWindow-65535)
		p.grant(0, maxWindow-65535)
		if frames := p.settle(); p.over() {
			t.Error(p.why())
		} else if a, ok := find(frames, frameReset); ok {
			t.Error("the stream was reset:", a)
		}
	})
}

func TestTheWindowGrowsToMaxWindowAndNotBeyond(t *testing.T) {
	for _, most := range []int{64 << 10, 100_000, 1 << 20} {
		cfg := small
		cfg.MaxWindow = most
		bubble(t, handler(drains).server(cfg), true, func(p *peer) {
			p.settle()
			p.request(1, 0)
			window, largest := defaultWindow, 0
			for range 60 {
				p.data(1, min(window, 32<<10))
				window -= min(window, 32<<10)
				window += granted(p.settle(), 1)
				if largest = max(largest, window); window > most {
					p.t.Fatalf("the window has %d bytes, at most %d are allowed", window, most)
				}
			}
			if largest < most*3/4 || p.over() {
				t.Errorf("the window has %d bytes at most, want about %d", largest, most)
			}
		})
	}
}

func TestPaddingIsGivenBackWhileTheHandlerWaitsForABody(t *testing.T) {
	withServer(t, drains, func(p *peer) {
		p.request(1, 0)
		p.settle()
		padding := make([]byte, 256)
		padding[0] = 255
		for range defaultWindow / len(padding) {
			p.frame(frameData, flagPadded, 1, padding)
		}
		if got := granted(p.settle(), 1); got == 0 || p.over() {
			t.Errorf("of a window of %d bytes that padding has used up %d were given back: %v", defaultWindow, got, p.why())
		}
	})
}

func TestAShortBodyDoesNotMakeTheWindowGrow(t *testing.T) {
	withServer(t, drains, func(p *peer) {
		p.request(1, 0)
		p.data(1, 60<<10)
		if got := granted(p.settle(), 1); got > 60<<10 {
			t.Errorf("the window grew: %d bytes were given back", got)
		}
	})
}

func TestAnAnswerThatIsNotReadDoesNotHoldUpTheOthers(t *testing.T) {
	withClient(t, func(p *peer) {
		var unread []*Stream
		const streams = sharedWindow/defaultWindow + 10
		p.say(appendSettings(nil, setting{settingMaxStreams, streams + 1}))
		synctest.Wait()
		for range streams {
			s := p.c.NewStream()
			if err := s.Open(get("/"), true, false); err != nil {
				p.t.Fatal(err)
			}
			unread = append(unread, s)
		}
		last := p.c.NewStream()
		if err := last.Open(get("/"), true, false); err != nil {
			p.t.Fatal(err)
		}
		window := firstWindow + granted(p.settle(), 0)
		for i := range streams {
			stream := uint32(2*i + 1)
			p.headers(stream, 0, ok200[0])
			for left := defaultWindow; left > 0; left -= maxFrame {
				p.data(stream, maxFrame)
				if window += granted(p.settle(), 0) - maxFrame; window < maxFrame {
					p.t.Fatalf("%d answers that are not read have used up the connection", i+1)
				}
			}
		}
		p.headers(2*streams+1, 0, ok200[0])
		p.frame(frameData, flagEndStream, 2*streams+1, []byte("hello"))
		if got, err := io.ReadAll(last); err != nil || string(got) != "hello" {
			t.Errorf("%q, %v", got, err)
		}
		last.Close()
		for _, s := range unread {
			if n, _ := s.Buffered(); n != defaultWindow {
				t.Errorf("%d bytes are held", n)
			}
			s.Close()
		}
	})
}

// Answers without a body cost no window: without this bound they would gather.
func TestAPeerThatReadsNothingIsNotReadFrom(t *testing.T) {
	many := small
	many.MaxStreams = 1000
	short := []Field{ok200[0], {Name: "x-long", Value: strings.Repeat("v", 200), Sensitive: true}}
	long := []Field{ok200[0], {Name: "x-long", Value: strings.Repeat("v", 16<<10), Sensitive: true}}
	whole := func(head []Field) handler { return func(_ *peer, s *Stream) { _ = s.Send(head, true) } }
	request := func(p *peer, i int) { p.request(uint32(2*i+1), flagEndStream) }
	for name, row := range map[string]struct {
		cfg   Config
		serve handler
		act   func(p *peer, i int)
		most  int
	}{
		"requests": {small, whole(short), request, 2 << 20},
		"pings next to requests": {small, whole(short), func(p *peer, i int) {
			request(p, i)
			p.say(appendPing(nil, 0, [8]byte{}))
		}, 2 << 20},
		"requests whose answers have long heads": {many, whole(long), request, unreadLimit + 2*(17<<10)},
		"requests whose answers have long trailers": {many, func(_ *peer, s *Stream) {
			_ = s.Send(ok200, false)
			_ = s.Send(long[1:], true)
		}, request, unreadLimit + 2*(17<<10)},
		"requests with informational answers": {many, func(_ *peer, s *Stream) {
			for range 10 {
				_ = s.Send(append([]Field{{Name: ":status", Value: "103"}}, long[1:]...), false)
			}
			_ = s.Send(ok200, true)
		}, request, unreadLimit + 2*(17<<10)},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, row.serve.server(row.cfg), false, func(p *peer) {
				said := make(chan int, 1)
				go func() {
					n := 0
					for ; n < 100_000; n++ {
						if p.c.Err() != nil {
							break
						}
						row.act(p, n)
					}
					said <- n
				}()
				synctest.Wait()
				p.c.mu.Lock()
				waits := len(p.c.out)
				p.c.mu.Unlock()
				if waits > row.most {
					t.Errorf("%d bytes of answers wait for a client that does not read", waits)
				}
				_ = p.c.Close()
				_ = p.nc.Close()
				if n := <-said; n == 100_000 {
					t.Error("everything was read")
				}
			})
		})
	}
}

// Each answer needs room that the ones before it use.
func TestLongHeadsOfManyAnswersComeOneAfterTheOther(t *testing.T) {
	const requests = 400
	cfg := small
	cfg.MaxStreams, cfg.Progress = requests, time.Minute
	head := []Field{ok200[0], {Name: "x-long", Value: strings.Repeat("v", 16<<10), Sensitive: true}}
	results := make(chan error, requests)
	serve := handler(func(p *peer, s *Stream) {
		<-p.release
		results <- s.Send(head, true)
	})
	bubble(t, serve.server(cfg), true, func(p *peer) {
		for i := range requests {
			p.request(uint32(2*i+1), flagEndStream)
		}
		p.settle()
		close(p.release)
		synctest.Wait()
		for i := range requests {
			if err := <-results; err != nil {
				p.t.Fatalf("answer %d: %v", i, err)
			}
		}
		if p.c.mu.Lock(); len(p.c.heads) > 0 {
			t.Errorf("%d streams wait although everything was sent", len(p.c.heads))
		}
		if n := p.c.encoded.Cap(); n > keptEncoded {
			t.Errorf("%d bytes of heads that were sent stay", n)
		}
		p.c.mu.Unlock()
	})
}

// What ends a wait of Write ends that of Send.
func TestAStreamThatWaitsToSendItsHeadIsEndedAsOneThatSendsItsBody(t *testing.T) {
	const requests = 40
	cfg := small
	cfg.Progress = time.Minute
	head := []Field{ok200[0], {Name: "x-long", Value: strings.Repeat("v", 16<<10), Sensitive: true}}
	for name, end := range map[string]func(p *peer, s *Stream){
		"by a reset of the client": func(p *peer, s *Stream) { p.say(appendReset(nil, s.id, Cancel)) },
		"by a reset of this side":  func(_ *peer, s *Stream) { s.Reset(InternalError) },
		"by an interruption":       func(_ *peer, s *Stream) { s.InterruptWrite(io.ErrClosedPipe) },
		"by the progress timeout": func(p *peer, _ *Stream) {
			for range 61 {
				p.c.mu.Lock()
				p.c.checkStreams(time.Second)
				p.c.mu.Unlock()
			}
		},
		"with the connection": func(p *peer, _ *Stream) { _ = p.c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			results := make(chan error, requests)
			serve := handler(func(p *peer, s *Stream) {
				<-p.release
				results <- s.Send(head, true)
			})
			bubble(t, serve.server(cfg), false, func(p *peer) {
				for i := range requests {
					p.request(uint32(2*i+1), flagEndStream)
				}
				synctest.Wait() // the connection reads no more once heads wait
				close(p.release)
				synctest.Wait()
				p.c.mu.Lock()
				waiting := slices.Clone(p.c.heads)
				p.c.mu.Unlock()
				if len(waiting) == 0 {
					p.t.Fatal("no stream waits")
				}
				for len(results) > 0 {
					<-results
				}
				end(p, waiting[len(waiting)-1])
				if synctest.Wait(); len(results) == 0 {
					t.Error("the stream waits on")
				} else if err := <-results; err == nil {
					t.Error("it was sent")
				}
			})
		})
	}
}

// turns checks the order of the frames of two long bodies.
func turns(t *testing.T, p *peer) {
	t.Helper()
	const first, second, few = 1, 3, 2
	p.say(appendSettings(nil, setting{settingInitialWindow, 1 << 30}))
	p.grant(0, 1<<30)
	for range 400 {
		p.gate <- struct{}{}
		synctest.Wait()
	}
	frames, begun := map[uint32]int{}, 0
	for _, a := range p.settle() {
		if a.kind != frameData {
			continue
		}
		if begun++; begun <= 2*outLimit/maxFrame {
			continue // one body began earlier
		}
		frames[a.stream]++
		if ahead := frames[first] - frames[second]; ahead > few || ahead < -few {
			p.t.Fatalf("%d frames of one stream, %d of the other", frames[first], frames[second])
		}
	}
	if frames[first] < 100 || frames[second] < 100 {
		t.Errorf("%d and %d frames", frames[first], frames[second])
	}
}

// long is a body of which turns sees a part.
var long = make([]byte, 16<<20)

func TestLongDownloadsShareTheConnectionFrameByFrame(t *testing.T) {
	download := handler(func(_ *peer, s *Stream) {
		_ = s.Send(ok200, false)
		_, _ = s.Write(long, true)
	})
	fair(t, download.server(small), func(p *peer) {
		p.request(1, flagEndStream)
		p.request(3, flagEndStream)
	})
}

func TestLongUploadsShareTheConnectionFrameByFrame(t *testing.T) {
	fair(t, clientOf(small), func(p *peer) {
		for range 2 {
			s := p.c.NewStream()
			if err := s.Open(get("/"), false, false); err != nil {
				p.t.Fatal(err)
			}
			go func() {
				_, _ = s.Write(long, true)
				s.Close()
			}()
		}
	})
}

func fair(t *testing.T, open func(*peer, net.Conn) *Conn, begin func(*peer)) {
	t.Helper()
	bubble(t, open, false, func(p *peer) {
		p.gate = make(chan struct{})
		done := make(chan struct{})
		go func() { defer close(done); p.read() }()
		defer func() {
			_ = p.c.Close()
			close(p.gate)
			<-done
		}()
		begin(p)
		turns(t, p)
	})
}

func TestAStreamWithoutAWindowDoesNotHoldUpTheOthers(t *testing.T) {
	withServer(t, func(_ *peer, s *Stream) {
		_ = s.Send(ok200, false)
		_, _ = s.Write(make([]byte, 100_000), true)
	}, func(p *peer) {
		p.grant(0, 1<<20)
		p.request(1, flagEndStream)
		if n := bytesOf(p.settle(), 1); n != firstWindow {
			t.Errorf("%d bytes", n)
		}
		p.request(3, flagEndStream)
		p.grant(3, 1<<20)
		if n := bytesOf(p.settle(), 3); n != 100_000 {
			t.Errorf("%d bytes next to a stream that waits for its window", n)
		}
	})
}

func TestAWriteThatIsInterruptedGivesItsTurnBack(t *testing.T) {
	errStop := errors.New("stop")
	withClient(t, func(p *peer) {
		p.say(appendSettings(nil, setting{settingInitialWindow, 1 << 20}))
		p.settle()
		results := make(chan error, 3)
		var all []*Stream
		for range 3 {
			s := p.c.NewStream()
			if err := s.Open(get("/"), false, false); err != nil {
				p.t.Fatal(err)
			}
			all = append(all, s)
			go func() {
				_, err := s.Write(make([]byte, 200_000), true)
				results <- err
			}()
			synctest.Wait() // the first one uses up the window of the connection
		}
		all[0].Interrupt(errStop)
		all[1].Reset(Cancel)
		for range 2 {
			var reset *ResetError
			if err := <-results; err != errStop && !errors.As(err, &reset) {
				t.Error(err)
			}
		}
		p.grant(0, 1<<20)
		if n := bytesOf(p.settle(), 5); n != 200_000 {
			t.Errorf("%d bytes of the stream that is left", n)
		}
		if err := <-results; err != nil {
			t.Error(err)
		}
		for _, s := range all {
			s.Close()
		}
	})
}

// The end of a body needs no window, and windows can be less than nothing.
func TestABodyEndsWithoutAWindow(t *testing.T) {
	withServer(t, func(p *peer, s *Stream) {
		_ = s.Send(ok200, false)
		_, _ = s.Write(make([]byte, firstWindow), false)
		<-p.release
		if _, err := s.Write(nil, true); err != nil {
			t.Error(err)
		}
	}, func(p *peer) {
		p.request(1, flagEndStream)
		p.settle()
		p.say(appendSettings(nil, setting{settingInitialWindow, 0}))
		p.settle()
		close(p.release)
		if last, ok := find(p.settle(), frameData); !ok || !last.has(flagEndStream) {
			t.Error("the body does not end:", last)
		}
	})
}

// A side that does not know the windows sends less than there is room for, or more.
func TestAConnectionBeginsWithTheSizesOfItsWindows(t *testing.T) {
	cfg := small
	cfg.Window, cfg.MaxWindow = 100_000, 300_000
	shared := cfg
	shared.Shared = true
	for name, c := range map[string]struct {
		open func(*peer, net.Conn) *Conn
		want int
	}{"client": {clientOf(cfg), sharedWindow}, "server": {handler(unread).server(cfg), 300_000}, "server of relays": {handler(unread).server(shared), sharedWindow}} {
		bubble(t, c.open, true, func(p *peer) {
			frames := p.settle()
			settings, _ := find(frames, frameSettings)
			if want := appendSettings(nil, setting{settingInitialWindow, 100_000})[frameHead:]; !bytes.Contains(settings.payload, want) {
				t.Errorf("%s: the settings %x say nothing of the window of streams, %x", name, settings.payload, want)
			}
			more, ok := find(frames, frameWindowUpdate)
			if !ok || more.stream != 0 || more.value() != c.want-firstWindow {
				t.Errorf("%s: the window of the connection: %v", name, more)
			}
		})
	}
}
