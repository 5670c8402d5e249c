package http2

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// status is the head of an answer.
func status(code string, more ...Field) []Field {
	return append([]Field{{Name: ":status", Value: code}}, more...)
}

func length(n string) Field { return Field{Name: "content-length", Value: n} }

// step is a frame of an answer: a header list, or else DATA.
type step struct {
	list []Field
	data string
	end  bool
}

func TestAnAnswerThatContradictsItselfIsReset(t *testing.T) {
	const lives = ^Code(0)
	big := Field{Name: "x", Value: strings.Repeat("y", small.MaxHead)}
	for name, c := range map[string]struct {
		steps   []step
		request string // method; POST if empty
		want    Code
		body    string
	}{
		"head and body":                       {steps: []step{{status("200"), "", false}, {nil, "abc", true}}, want: lives, body: "abc"},
		"head, body and trailers":             {steps: []step{{status("200", length("3")), "", false}, {nil, "abc", false}, {[]Field{{Name: "x", Value: "y"}}, "", true}}, want: lives, body: "abc"},
		"a head that is too large":            {steps: []step{{status("200", big), "", false}}, want: Cancel},
		"trailers that are too large":         {steps: []step{{status("200"), "", false}, {[]Field{big}, "", true}}, want: EnhanceYourCalm},
		"trailers that do not end it":         {steps: []step{{status("200"), "", false}, {[]Field{{Name: "x", Value: "y"}}, "", false}}, want: ProtocolError},
		"trailers with a status":              {steps: []step{{status("200"), "", false}, {status("200"), "", true}}, want: ProtocolError},
		"trailers before the end of the body": {steps: []step{{status("200", length("3")), "", false}, {nil, "ab", false}, {[]Field{{Name: "x", Value: "y"}}, "", true}}, want: ProtocolError},
		"no status":                           {steps: []step{{[]Field{{Name: "x", Value: "y"}}, "", false}}, want: ProtocolError},
		"101":                                 {steps: []step{{status("101"), "", false}}, want: ProtocolError},
		"103":                                 {steps: []step{{status("103"), "", false}, {status("200"), "", true}}, want: lives},
		"103 at the end":                      {steps: []step{{status("103"), "", true}}, want: ProtocolError},
		"199":                                 {steps: []step{{status("199"), "", false}, {status("200"), "", true}}, want: lives},
		"a length without a body":             {steps: []step{{status("200", length("3")), "", true}}, want: ProtocolError},
		"a length without a body of a 204":    {steps: []step{{status("204", length("3")), "", true}}, want: lives},
		"a length without a body of a 304":    {steps: []step{{status("304", length("3")), "", true}}, want: lives},
		"a length without a body of HEAD":     {steps: []step{{status("200", length("3")), "", true}}, request: "HEAD", want: lives},
		"a body of a 204":                     {steps: []step{{status("204"), "", false}, {nil, "abc", true}}, want: ProtocolError},
		"a body of a 304":                     {steps: []step{{status("304"), "", false}, {nil, "abc", true}}, want: ProtocolError},
		"a body of HEAD":                      {steps: []step{{status("200", length("3")), "", false}, {nil, "abc", true}}, request: "HEAD", want: ProtocolError},
		"trailers of HEAD with a length":      {steps: []step{{status("200", length("3")), "", false}, {[]Field{{Name: "x", Value: "y"}}, "", true}}, request: "HEAD", want: lives},
		"an empty body of a 204":              {steps: []step{{status("204"), "", false}, {nil, "", true}}, want: lives},
		"less than the length":                {steps: []step{{status("200", length("3")), "", false}, {nil, "ab", true}}, want: ProtocolError},
		"as much as the length":               {steps: []step{{status("200", length("3")), "", false}, {nil, "ab", false}, {nil, "c", true}}, want: lives, body: "abc"},
		"more than the length":                {steps: []step{{status("200", length("3")), "", false}, {nil, "abcd", false}}, want: ProtocolError},
		"a tunnel with a length":              {steps: []step{{status("200", length("3")), "", false}, {nil, "abcdef", true}}, request: "CONNECT", want: lives, body: "abcdef"},
		"no tunnel and a length":              {steps: []step{{status("300", length("3")), "", false}, {nil, "abcdef", true}}, request: "CONNECT", want: ProtocolError},
		"HEADERS after its end":               {steps: []step{{status("200"), "", true}, {status("200"), "", true}}, want: StreamClosed},
	} {
		t.Run(name, func(t *testing.T) {
			withClient(t, func(p *peer) {
				p.settle()
				fields := get("/")
				if c.request != "" {
					fields[0].Value = c.request
				}
				s := p.c.NewStream()
				defer s.Close()
				if err := s.Open(fields, false, c.request == "HEAD"); err != nil {
					t.Fatal(err)
				}
				for _, step := range c.steps {
					flags := uint8(0)
					if step.end {
						flags = flagEndStream
					}
					if step.list != nil {
						p.headers(s.id, flags, step.list...)
					} else {
						p.frame(frameData, flags, s.id, []byte(step.data))
					}
				}
				if c.want != lives {
					p.resets(name, s.id, c.want)
					return
				}
				if a, reset := find(p.settle(), frameReset); reset || p.over() {
					t.Errorf("reset with %v, the connection has ended: %v", a.code(), p.over())
				}
				if body, err := io.ReadAll(readerOf(s.Read)); err != nil || string(body) != c.body {
					t.Errorf("%q, %v", body, err)
				}
			})
		})
	}
}

type readerOf func([]byte) (int, error)

func (r readerOf) Read(p []byte) (int, error) { return r(p) }

func TestABodyBeforeItsHeadEndsTheConnection(t *testing.T) {
	withClient(t, func(p *peer) {
		p.settle()
		s := p.c.NewStream()
		defer s.Close()
		if err := s.Open(get("/"), true, false); err != nil {
			t.Fatal(err)
		}
		p.data(s.id, 1)
		p.ends("DATA before HEADERS", ProtocolError)
	})
}

// Each costs its size and a status line.
func TestInformationalAnswersAreBounded(t *testing.T) {
	withClient(t, func(p *peer) {
		p.settle()
		s := p.c.NewStream()
		defer s.Close()
		if err := s.Open(get("/"), true, false); err != nil {
			t.Fatal(err)
		}
		hint := Field{Name: "link", Value: strings.Repeat("y", 1000)}
		fits := maxInformation / (int(hint.Size()) + informationSize)
		for range fits {
			p.headers(s.id, 0, status("103", hint)...)
		}
		if a, reset := find(p.settle(), frameReset); reset {
			t.Fatalf("%d of them are reset with %v", fits, a.code())
		}
		for range fits {
			if head, err := s.Answer(); err != nil || head.Status != 103 || len(head.Fields) != 1 || head.Fields[0].Value != hint.Value {
				t.Fatalf("%+v, %v", head, err)
			}
		}
		p.headers(s.id, 0, status("103", hint)...)
		p.resets("one more", s.id, EnhanceYourCalm)
	})
}

func TestARequestThatContradictsItselfIsRefused(t *testing.T) {
	malformed := 0
	cfg := small
	cfg.Malformed = func() { malformed++ }
	for name, c := range map[string]struct {
		list  []Field
		end   bool
		more  []Field // trailers
		want  Code
		count int
	}{
		"a length without a body":         {append(get("/"), length("3")), true, nil, ProtocolError, 1},
		"a length of nothing":             {append(get("/"), length("0")), true, nil, ^Code(0), 0},
		"no path":                         {get("/")[:3], true, nil, ProtocolError, 1},
		"trailers that are too large":     {get("/"), false, []Field{{Name: "x", Value: strings.Repeat("y", small.MaxHead)}}, EnhanceYourCalm, 0},
		"trailers with a bad name":        {get("/"), false, []Field{{Name: "X", Value: "y"}}, ProtocolError, 1},
		"trailers with a length":          {get("/"), false, []Field{length("0")}, ProtocolError, 1},
		"trailers before the body's end":  {append(get("/"), length("3")), false, []Field{{Name: "x", Value: "y"}}, ProtocolError, 0},
		"trailers where there is no more": {append(get("/"), length("0")), false, []Field{{Name: "x", Value: "y"}}, ^Code(0), 0},
	} {
		malformed = 0
		bubble(t, handler(drains).server(cfg), true, func(p *peer) {
			flags := uint8(0)
			if c.end {
				flags = flagEndStream
			}
			p.headers(1, flags, c.list...)
			if c.more != nil {
				p.headers(1, flagEndStream, c.more...)
			}
			if c.want != ^Code(0) {
				p.resets(name, 1, c.want)
			} else if a, ok := find(p.settle(), frameHeaders); !ok || !a.has(flagEndStream) {
				t.Errorf("%s: no answer", name)
			}
			if malformed != c.count {
				t.Errorf("%s: counted %d times as malformed, want %d", name, malformed, c.count)
			}
		})
	}
}

// A client that still sends its body gets time to read the answer.
func TestAStreamLingersUntilTheOtherSideHasSentEverything(t *testing.T) {
	for name, c := range map[string]struct {
		then func(p *peer)
		want time.Duration
	}{
		"the client sends nothing": {func(*peer) {}, time.Minute},
		"the client ends":          {func(p *peer) { p.frame(frameData, flagEndStream, 1, nil) }, 0},
		"the client resets":        {func(p *peer) { p.say(appendReset(nil, 1, Cancel)) }, 0},
		"its window is used up":    {func(p *peer) { p.data(1, defaultWindow) }, 0},
	} {
		took := time.Duration(-1)
		withServer(t, func(_ *peer, s *Stream) {
			_ = s.Send(ok200, true)
			began := time.Now()
			s.Linger(time.Minute)
			took = time.Since(began)
		}, func(p *peer) {
			p.request(1, 0)
			p.settle()
			c.then(p)
			p.settle()
			time.Sleep(2 * time.Minute)
			synctest.Wait()
		})
		if took != c.want {
			t.Errorf("%s: it has lingered for %v, want %v", name, took, c.want)
		}
	}
}

func TestAStreamLingersOnlyBehindItsAnswerAndWithFewOthers(t *testing.T) {
	lingered := make([]time.Duration, maxLingering+2)
	withServer(t, func(_ *peer, s *Stream) {
		n := s.id / 2
		if n > 0 {
			_ = s.Send(ok200, true)
		}
		began := time.Now()
		s.Linger(time.Minute)
		lingered[n] = time.Since(began)
	}, func(p *peer) {
		for n := range uint32(2) {
			p.request(2*n+1, 0)
			p.settle()
		}
		time.Sleep(2 * time.Minute)
	})
	if lingered[0] != 0 || lingered[1] != time.Minute {
		t.Errorf("without an answer %v, with one %v", lingered[0], lingered[1])
	}
	cfg := small
	cfg.MaxStreams = 2 * maxLingering
	bubble(t, handler(func(_ *peer, s *Stream) {
		n := s.id / 2
		_ = s.Send(ok200, true)
		began := time.Now()
		s.Linger(time.Minute)
		lingered[n] = time.Since(began)
	}).server(cfg), true, func(p *peer) {
		for n := range uint32(maxLingering + 1) {
			p.request(2*n+1, 0)
			p.settle()
		}
		time.Sleep(2 * time.Minute)
		p.request(2*(maxLingering+1)+1, 0)
		time.Sleep(2 * time.Minute)
	})
	if n := slices.Index(lingered, 0); n != maxLingering || lingered[maxLingering+1] != time.Minute {
		t.Errorf("the first that does not linger is %d, want %d; a later one lingers for %v", n, maxLingering, lingered[maxLingering+1])
	}
}

func TestABodyIsReadLateAndCounted(t *testing.T) {
	withServer(t, func(p *peer, s *Stream) {
		taken := 0
		take := func() []byte { taken++; return make([]byte, 2) }
		for _, want := range []string{"ab", "cd", "e"} {
			got, err := s.ReadLate(take)
			if err != nil || string(got) != want {
				t.Errorf("%q, %v: want %q", got, err, want)
			}
			if want == "ab" {
				if n, end := s.Buffered(); n != 3 || end {
					t.Errorf("%d bytes are there, the end is known: %v", n, end)
				}
			}
		}
		<-p.release
		if n, end := s.Buffered(); n != 0 || !end {
			t.Errorf("%d bytes are there, the end is known: %v", n, end)
		}
		if _, err := s.ReadLate(take); err != io.EOF || taken != 3 {
			t.Errorf("at the end: %v, %d buffers were taken", err, taken)
		}
		if n, err := s.Read(nil); n != 0 || err != io.EOF {
			t.Errorf("nothing at the end: %d, %v", n, err)
		}
	}, func(p *peer) {
		p.request(1, 0)
		p.frame(frameData, 0, 1, []byte("abcde"))
		p.settle()
		p.frame(frameData, flagEndStream, 1, nil)
		p.settle()
		close(p.release)
		p.settle()
	})
}

func TestWhatAStreamWaitsForCanBeInterrupted(t *testing.T) {
	interrupted := errors.New("interrupted")
	withClient(t, func(p *peer) {
		p.settle()
		s := p.c.NewStream()
		defer s.Close()
		s.Interrupt(interrupted)
		if err := s.Open(get("/"), false, false); err != interrupted {
			t.Errorf("opening: %v", err)
		}
		s.Interrupt(nil)
		if err := s.Open(get("/"), false, false); err != nil {
			t.Fatal(err)
		}
		if n, err := s.Read(nil); n != 0 || err != nil {
			t.Errorf("a read of nothing waits: %d, %v", n, err)
		}
		s.Interrupt(interrupted)
		if _, err := s.Answer(); err != interrupted {
			t.Errorf("waiting for the answer: %v", err)
		}
		if _, err := s.Read(make([]byte, 1)); err != interrupted {
			t.Errorf("reading: %v", err)
		}
		if _, err := s.Write([]byte("a"), false); err != interrupted {
			t.Errorf("writing: %v", err)
		}
		if err := s.Send(nil, true); err != interrupted {
			t.Errorf("sending trailers: %v", err)
		}
		s.Interrupt(nil)
		s.InterruptRead(interrupted)
		if _, err := s.Read(make([]byte, 1)); err != interrupted {
			t.Errorf("reading: %v", err)
		}
		s.InterruptWrite(interrupted)
		if _, err := s.Write([]byte("a"), false); err != interrupted {
			t.Errorf("writing: %v", err)
		}
		s.InterruptWrite(nil)
		if n, err := s.Write([]byte("a"), true); n != 1 || err != nil {
			t.Errorf("writing again: %d, %v", n, err)
		}
		if _, err := s.Write([]byte("a"), false); err != errSentEnd {
			t.Errorf("writing after the end: %v", err)
		}
	})
}

// A head is bounded by the limit that the other side has announced.
func TestAHeadThatTheOtherSideDoesNotAcceptIsNotSent(t *testing.T) {
	const most = 300
	withClient(t, func(p *peer) {
		p.settle()
		p.say(appendSettings(nil, setting{settingMaxHeaderList, most}, setting{settingConnectProtocol, 1}))
		p.settle()
		free := most - int(listSize(get("/"))) - len("x") - 32
		for more, want := range map[int]error{0: nil, 1: ErrHeadTooLarge} {
			s := p.c.NewStream()
			if !s.TakesConnect() {
				t.Error("the other side takes no CONNECT")
			}
			if err := s.Open(append(get("/"), Field{Name: "x", Value: strings.Repeat("y", free+more)}), false, false); err != want {
				t.Errorf("%d bytes: %v", most+more, err)
			}
			if want == nil {
				if err := s.Send([]Field{{Name: "x", Value: strings.Repeat("y", most-32)}}, true); err != ErrHeadTooLarge {
					t.Errorf("trailers: %v", err)
				}
				if err := s.Send([]Field{{Name: "x", Value: strings.Repeat("y", most-33)}}, true); err != nil {
					t.Errorf("trailers: %v", err)
				}
			}
			s.Close()
		}
		if a, ok := find(p.settle(), frameHeaders); !ok || a.stream != 1 {
			t.Errorf("the first request has the stream %d", a.stream)
		}
	})
}
