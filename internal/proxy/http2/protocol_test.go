package http2

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

// said is a frame that a peer sends.
type said struct {
	kind    frameType
	flags   uint8
	stream  uint32
	payload []byte
}

func settings(of ...setting) said {
	return said{frameSettings, 0, 0, appendSettings(nil, of...)[frameHead:]}
}

// u32 are numbers of four bytes.
func u32(numbers ...uint32) (b []byte) {
	for _, n := range numbers {
		b = binary.BigEndian.AppendUint32(b, n)
	}
	return b
}

// Stream 1 is open, stream 3 was not opened.
func TestAFrameThatBreaksTheProtocolEndsItsConnectionOrItsStream(t *testing.T) {
	const lives = ^Code(0)
	for name, c := range map[string]struct {
		frames []said
		conn   Code // with which the connection ends, or lives
		stream Code // with which stream 1 is reset, or lives
	}{
		"DATA for stream 0":                      {[]said{{frameData, 0, 0, nil}}, ProtocolError, lives},
		"DATA for a stream that was not opened":  {[]said{{frameData, 0, 3, nil}}, ProtocolError, lives},
		"padded DATA without a length":           {[]said{{frameData, flagPadded, 1, nil}}, FrameSizeError, lives},
		"more padding than DATA":                 {[]said{{frameData, flagPadded, 1, []byte{2, 0}}}, ProtocolError, lives},
		"as much padding as DATA":                {[]said{{frameData, flagPadded, 1, []byte{1, 0}}}, lives, lives},
		"padding only":                           {[]said{{frameData, flagPadded, 1, []byte{0}}}, lives, lives},
		"HEADERS for stream 0":                   {[]said{{frameHeaders, flagEndHeaders, 0, nil}}, ProtocolError, lives},
		"HEADERS with half a priority":           {[]said{{frameHeaders, flagPriority | flagEndHeaders, 3, []byte{0, 0, 0, 1}}}, FrameSizeError, lives},
		"HEADERS that depend on themselves":      {[]said{{frameHeaders, flagPriority | flagEndHeaders, 3, append(u32(3), 0)}}, ProtocolError, lives},
		"padded HEADERS without a length":        {[]said{{frameHeaders, flagPadded, 3, nil}}, FrameSizeError, lives},
		"CONTINUATION without HEADERS":           {[]said{{frameContinuation, flagEndHeaders, 1, nil}}, ProtocolError, lives},
		"PRIORITY for stream 0":                  {[]said{{framePriority, 0, 0, append(u32(3), 0)}}, ProtocolError, lives},
		"PRIORITY of 4 bytes":                    {[]said{{framePriority, 0, 1, u32(3)}}, lives, FrameSizeError},
		"PRIORITY of 6 bytes":                    {[]said{{framePriority, 0, 1, append(u32(3), 0, 0)}}, lives, FrameSizeError},
		"PRIORITY on itself":                     {[]said{{framePriority, 0, 1, append(u32(1), 0)}}, lives, ProtocolError},
		"PRIORITY on itself alone":               {[]said{{framePriority, 0, 1, append(u32(1<<31|1), 0)}}, lives, ProtocolError},
		"PRIORITY":                               {[]said{{framePriority, 0, 1, append(u32(3), 0)}}, lives, lives},
		"RST_STREAM for stream 0":                {[]said{{frameReset, 0, 0, u32(8)}}, ProtocolError, lives},
		"RST_STREAM of 3 bytes":                  {[]said{{frameReset, 0, 1, []byte{0, 0, 8}}}, FrameSizeError, lives},
		"RST_STREAM of 5 bytes":                  {[]said{{frameReset, 0, 1, append(u32(8), 0)}}, FrameSizeError, lives},
		"RST_STREAM for one that was not opened": {[]said{{frameReset, 0, 3, u32(8)}}, ProtocolError, lives},
		"RST_STREAM":                             {[]said{{frameReset, 0, 1, u32(8)}}, lives, lives},
		"RST_STREAM twice":                       {[]said{{frameReset, 0, 1, u32(8)}, {frameReset, 0, 1, u32(8)}}, lives, lives},
		"SETTINGS for a stream":                  {[]said{{frameSettings, 0, 1, nil}}, ProtocolError, lives},
		"SETTINGS of 5 bytes":                    {[]said{{frameSettings, 0, 0, make([]byte, 5)}}, FrameSizeError, lives},
		"an answer to SETTINGS with settings":    {[]said{{frameSettings, flagAck, 0, make([]byte, 6)}}, FrameSizeError, lives},
		"an answer to SETTINGS":                  {[]said{{frameSettings, flagAck, 0, nil}}, lives, lives},
		"a setting that is not known":            {[]said{settings(setting{99, 1<<32 - 1})}, lives, lives},
		"ENABLE_PUSH of 2":                       {[]said{settings(setting{settingEnablePush, 2})}, ProtocolError, lives},
		"ENABLE_PUSH":                            {[]said{settings(setting{settingEnablePush, 1})}, lives, lives},
		"a frame size below the least":           {[]said{settings(setting{settingMaxFrame, maxFrame - 1})}, ProtocolError, lives},
		"a frame size above the largest":         {[]said{settings(setting{settingMaxFrame, 1 << 24})}, ProtocolError, lives},
		"the least and the largest frame size":   {[]said{settings(setting{settingMaxFrame, maxFrame}, setting{settingMaxFrame, 1<<24 - 1})}, lives, lives},
		"a CONNECT protocol of 2":                {[]said{settings(setting{settingConnectProtocol, 2})}, ProtocolError, lives},
		"a CONNECT protocol":                     {[]said{settings(setting{settingConnectProtocol, 0}, setting{settingConnectProtocol, 1}, setting{settingConnectProtocol, 1})}, lives, lives},
		"a CONNECT protocol that is withdrawn":   {[]said{settings(setting{settingConnectProtocol, 1}), settings(setting{settingConnectProtocol, 0})}, ProtocolError, lives},
		"PUSH_PROMISE":                           {[]said{{framePushPromise, 0, 1, u32(2)}}, ProtocolError, lives},
		"PING for a stream":                      {[]said{{framePing, 0, 1, make([]byte, 8)}}, ProtocolError, lives},
		"PING of 7 bytes":                        {[]said{{framePing, 0, 0, make([]byte, 7)}}, FrameSizeError, lives},
		"PING of 9 bytes":                        {[]said{{framePing, 0, 0, make([]byte, 9)}}, FrameSizeError, lives},
		"GOAWAY for a stream":                    {[]said{{frameGoAway, 0, 1, u32(0, 0)}}, ProtocolError, lives},
		"GOAWAY of 7 bytes":                      {[]said{{frameGoAway, 0, 0, make([]byte, 7)}}, FrameSizeError, lives},
		"GOAWAY":                                 {[]said{{frameGoAway, 0, 0, u32(0, 0)}}, lives, lives},
		"WINDOW_UPDATE of 3 bytes":               {[]said{{frameWindowUpdate, 0, 0, make([]byte, 3)}}, FrameSizeError, lives},
		"WINDOW_UPDATE of 5 bytes":               {[]said{{frameWindowUpdate, 0, 0, append(u32(1), 0)}}, FrameSizeError, lives},
		"WINDOW_UPDATE of nothing":               {[]said{{frameWindowUpdate, 0, 0, u32(0)}}, ProtocolError, lives},
		"WINDOW_UPDATE of one reserved bit":      {[]said{{frameWindowUpdate, 0, 0, u32(1 << 31)}}, ProtocolError, lives},
		"WINDOW_UPDATE of nothing for a stream":  {[]said{{frameWindowUpdate, 0, 1, u32(0)}}, lives, ProtocolError},
		"WINDOW_UPDATE for one not opened":       {[]said{{frameWindowUpdate, 0, 3, u32(1)}}, ProtocolError, lives},
		"WINDOW_UPDATE for one that has ended":   {[]said{{frameReset, 0, 1, u32(8)}, {frameWindowUpdate, 0, 1, u32(1)}}, lives, lives},
		"a frame of another type":                {[]said{{99, 255, 1, make([]byte, 9)}}, lives, lives},
		"trailers without an end":                {[]said{{frameHeaders, flagEndHeaders, 1, nil}}, lives, ProtocolError},
	} {
		t.Run(name, func(t *testing.T) {
			withServer(t, drains, func(p *peer) {
				p.request(1, 0)
				p.settle()
				for _, f := range c.frames {
					p.frame(f.kind, f.flags, f.stream, f.payload)
				}
				switch {
				case c.conn != lives:
					p.ends(name, c.conn)
					if why := WhyEnded(p.why()); why != WhyMalformed {
						t.Errorf("it has ended because of %v", why)
					}
				case c.stream != lives:
					p.resets(name, 1, c.stream)
				default:
					p.frame(framePing, 0, 0, []byte("12345678"))
					frames := p.settle()
					if a, ok := find(frames, framePing); !ok || string(a.payload) != "12345678" || !a.has(flagAck) || p.over() {
						t.Errorf("the connection does not live on: %v, %v", frames, p.why())
					}
					if a, ok := find(frames, frameReset); ok {
						t.Errorf("stream %d was reset with %v", a.stream, a.code())
					}
				}
			})
		})
	}
}

func TestAConnectionBeginsWithSettings(t *testing.T) {
	for name, c := range map[string]struct {
		first []byte
		want  Code
	}{
		"PING":                  {appendPing(nil, 0, [8]byte{}), ProtocolError},
		"HEADERS":               {frame{0, frameHeaders, flagEndHeaders, 1}.append(nil), ProtocolError},
		"an answer to SETTINGS": {frame{0, frameSettings, flagAck, 0}.append(nil), ProtocolError},
	} {
		synctest.Test(t, func(t *testing.T) {
			ours, theirs := net.Pipe()
			cfg := small
			cfg.Serve = func(s *Stream) { s.Close() }
			p := &peer{t: t, nc: theirs, c: NewServer(ours, cfg, nil)}
			var running sync.WaitGroup
			running.Go(func() {
				err := p.c.Run()
				p.mu.Lock()
				defer p.mu.Unlock()
				p.ended, p.result = true, err
			})
			running.Go(p.read)
			p.say(append([]byte(Preface), c.first...))
			p.ends(name, c.want)
			_ = theirs.Close()
			running.Wait()
		})
	}
}

func TestAServerMustNotPush(t *testing.T) {
	for value, ends := range map[uint32]bool{0: false, 1: true} {
		withClient(t, func(p *peer) {
			p.settle()
			p.say(appendSettings(nil, setting{settingEnablePush, value}))
			if p.settle(); p.over() != ends {
				t.Errorf("ENABLE_PUSH of %d: the connection has ended: %v", value, p.over())
			}
		})
	}
}

// valid is the header list of a request, with what change makes of it.
func valid(change ...Field) []Field {
	list := []Field{{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "https"}, {Name: ":authority", Value: "a"}, {Name: ":path", Value: "/"}, {Name: "x", Value: "y"}}
	for _, c := range change {
		for i := range list {
			if list[i].Name == c.Name {
				list[i].Value = c.Value
			}
		}
	}
	return list
}

// without is a request without one field.
func without(name string, of []Field) (list []Field) {
	for _, f := range of {
		if f.Name != name {
			list = append(list, f)
		}
	}
	return list
}

func TestAHeaderListIsCheckedAsAWhole(t *testing.T) {
	connect := []Field{{Name: ":method", Value: "CONNECT"}, {Name: ":authority", Value: "a:1"}}
	tunnel := append(valid(Field{Name: ":method", Value: "CONNECT"})[:4:4], Field{Name: ":protocol", Value: "websocket"})
	with := func(more ...Field) []Field { return append(valid(), more...) }
	for name, c := range map[string]struct {
		list []Field
		want error
	}{
		"a request":                         {valid(), nil},
		"of clear text":                     {valid(Field{Name: ":scheme", Value: "http"}), nil},
		"of another scheme":                 {valid(Field{Name: ":scheme", Value: "ftp"}), errScheme},
		"without a method":                  {without(":method", valid()), errPseudoMissing},
		"without a scheme":                  {without(":scheme", valid()), errPseudoMissing},
		"without a path":                    {without(":path", valid()), errPseudoMissing},
		"without an authority":              {without(":authority", valid()), nil},
		"with an empty path":                {valid(Field{Name: ":path", Value: ""}), errPseudoMissing},
		"with a path that does not begin":   {valid(Field{Name: ":path", Value: "a"}), errPath},
		"with a path of two words":          {valid(Field{Name: ":path", Value: "/a b"}), errPath},
		"with an asterisk":                  {valid(Field{Name: ":path", Value: "*"}), errPath},
		"OPTIONS with an asterisk":          {valid(Field{Name: ":path", Value: "*"}, Field{Name: ":method", Value: "OPTIONS"}), nil},
		"OPTIONS with a bad path":           {valid(Field{Name: ":path", Value: "a"}, Field{Name: ":method", Value: "OPTIONS"}), errPath},
		"with a method of two words":        {valid(Field{Name: ":method", Value: "A B"}), errMethod},
		"with a control byte":               {valid(Field{Name: ":path", Value: "/\n"}), errValue},
		"with a user":                       {valid(Field{Name: ":authority", Value: "u@a"}), errAuthority},
		"with an authority that is none":    {valid(Field{Name: ":authority", Value: "a b"}), errAuthority},
		"with the same host":                {with(Field{Name: "host", Value: "A"}), nil},
		"with another host":                 {with(Field{Name: "host", Value: "b"}), errAuthority},
		"with an empty host":                {with(Field{Name: "host", Value: ""}), errAuthority},
		"with two equal hosts":              {with(Field{Name: "host", Value: "a"}, Field{Name: "host", Value: "a"}), nil},
		"with two hosts":                    {append(without(":authority", valid()), Field{Name: "host", Value: "a"}, Field{Name: "host", Value: "b"}), errAuthority},
		"with a late pseudo-header field":   {with(Field{Name: ":path", Value: "/"}), errPseudoLate},
		"with one twice":                    {append([]Field{{Name: ":path", Value: "/b"}}, valid()...), errPseudoTwice},
		"with one of an answer":             {append([]Field{{Name: ":status", Value: "200"}}, valid()...), errPseudoUnknown},
		"with an upper-case name":           {with(Field{Name: "X-A", Value: "1"}), errName},
		"with a name of two words":          {with(Field{Name: "x a", Value: "1"}), errName},
		"with an empty name":                {with(Field{Name: "", Value: "1"}), errName},
		"with a line end in a value":        {with(Field{Name: "x-a", Value: "1\r\n"}), errValue},
		"with a connection":                 {with(Field{Name: "connection", Value: "close"}), errConnection},
		"with a transfer encoding":          {with(Field{Name: "transfer-encoding", Value: "chunked"}), errConnection},
		"with TE":                           {with(Field{Name: "te", Value: "trailers"}), nil},
		"with another TE":                   {with(Field{Name: "te", Value: "gzip"}), errTE},
		"with a length":                     {with(Field{Name: "content-length", Value: "3"}), nil},
		"with a bad length":                 {with(Field{Name: "content-length", Value: "x"}), errLength},
		"with two lengths":                  {with(Field{Name: "content-length", Value: "0"}, Field{Name: "content-length", Value: "0"}), errLength},
		"with a protocol":                   {append(valid()[:4:4], Field{Name: ":protocol", Value: "websocket"}), errProtocol},
		"CONNECT":                           {connect, nil},
		"CONNECT with a scheme":             {append([]Field{{Name: ":scheme", Value: "http"}}, connect...), errPseudoMissing},
		"CONNECT with a path":               {append([]Field{{Name: ":path", Value: "/"}}, connect...), errPseudoMissing},
		"CONNECT without an authority":      {connect[:1], errPseudoMissing},
		"CONNECT of a protocol":             {tunnel, nil},
		"CONNECT of a protocol and no path": {without(":path", tunnel), errPseudoMissing},
	} {
		h := Head{}
		if err := h.take(c.list, true); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	h := Head{}
	if err := h.take(append(without(":authority", valid()), Field{Name: "host", Value: "b"}), true); err != nil || h.Authority != "b" || h.Method != "GET" || h.Scheme != "https" || h.Path != "/" {
		t.Errorf("a host without an authority: %+v, %v", h, err)
	}
	for name, c := range map[string]struct {
		list []Field
		want error
	}{
		"an answer":                 {[]Field{{Name: ":status", Value: "100"}}, nil},
		"of the last status":        {[]Field{{Name: ":status", Value: "999"}}, nil},
		"without a status":          {[]Field{{Name: "x", Value: "y"}}, errPseudoMissing},
		"of nothing":                {nil, errPseudoMissing},
		"with two":                  {[]Field{{Name: ":status", Value: "200"}, {Name: ":status", Value: "200"}}, errPseudoTwice},
		"with a path":               {[]Field{{Name: ":path", Value: "/"}}, errPseudoUnknown},
		"with a status that is low": {[]Field{{Name: ":status", Value: "099"}}, errStatus},
		"with a sign":               {[]Field{{Name: ":status", Value: "+20"}}, errStatus},
		"of two digits":             {[]Field{{Name: ":status", Value: "20"}}, errStatus},
		"of four digits":            {[]Field{{Name: ":status", Value: "0200"}}, errStatus},
		"of a word":                 {[]Field{{Name: ":status", Value: "two"}}, errStatus},
		"with a bad field":          {[]Field{{Name: ":status", Value: "200"}, {Name: "X", Value: "y"}}, errName},
	} {
		if err := (&Head{}).take(c.list, false); !errors.Is(err, c.want) {
			t.Errorf("an answer %s: %v, want %v", name, err, c.want)
		}
	}
	for name, c := range map[string]struct {
		list []Field
		want error
	}{
		"a field": {[]Field{{Name: "x", Value: "y"}}, nil}, "none": {nil, nil}, "a length": {[]Field{{Name: "content-length", Value: "0"}}, errLength},
		"a status": {[]Field{{Name: ":status", Value: "200"}}, errPseudoLate}, "a bad name": {[]Field{{Name: "X", Value: "y"}}, errName},
	} {
		if err := (&Head{}).takeTrailers(c.list); !errors.Is(err, c.want) {
			t.Errorf("trailers with %s: %v, want %v", name, err, c.want)
		}
	}
}

func TestNamesOfFieldsAreTranslatedBothWays(t *testing.T) {
	for canonical, lower := range map[string]string{"Content-Type": "content-type", "X-Unknown-Name": "x-unknown-name", "Etag": "etag"} {
		if got := LowerName(canonical); got != lower {
			t.Errorf("%s in HTTP/2 is %s", canonical, got)
		}
		if got := CanonicalName(lower); got != canonical {
			t.Errorf("%s in a header is %s", lower, got)
		}
	}
}

func TestErrorsSayWhoEndedWhatAndWhy(t *testing.T) {
	for _, c := range []struct {
		err         error
		text        string
		code        Code
		unprocessed bool
		why         Why
	}{
		{&ResetError{Code: Cancel}, "http2: this side has reset the stream with CANCEL", NoError, false, WhyOther},
		{&ResetError{Code: RefusedStream}, "http2: this side has reset the stream with REFUSED_STREAM", NoError, false, WhyOther},
		{&ResetError{Code: RefusedStream, Remote: true}, "http2: the other side has reset the stream with REFUSED_STREAM", RefusedStream, true, WhyOther},
		{&ResetError{Code: Cancel, Remote: true, reason: "because"}, "http2: the other side has reset the stream with CANCEL: because", Cancel, false, WhyOther},
		{&GoAwayError{Code: InternalError}, "http2: the other side has ended the connection with INTERNAL_ERROR", InternalError, false, WhyOther},
		{&GoAwayError{Code: 99, Reason: "a\n", unprocessed: true}, `http2: the other side has ended the connection with code 0x63: "a\n"`, 99, true, WhyOther},
		{connError{ProtocolError, "x"}, "http2: PROTOCOL_ERROR: x", NoError, false, WhyMalformed},
		{connError{EnhanceYourCalm, "x"}, "http2: ENHANCE_YOUR_CALM: x", NoError, false, WhyAbusive},
		{streamError{3, HTTP11Required, "x"}, "http2: stream 3: HTTP_1_1_REQUIRED: x", NoError, false, WhyOther},
		{errStuck, errStuck.Error(), NoError, false, WhyStuck},
		{errStalled, errStalled.Error(), NoError, false, WhyStalled},
		{io.EOF, "EOF", NoError, false, WhyOther},
	} {
		if got := c.err.Error(); got != c.text {
			t.Errorf("%q, want %q", got, c.text)
		}
		wrapped := fmt.Errorf("wrapped: %w", c.err)
		if CodeOf(wrapped) != c.code || errors.Is(wrapped, ErrUnprocessed) != c.unprocessed || errors.Is(wrapped, io.ErrClosedPipe) || WhyEnded(c.err) != c.why {
			t.Errorf("%s: code %v, unprocessed %v, %v", c.text, CodeOf(wrapped), errors.Is(wrapped, ErrUnprocessed), WhyEnded(c.err))
		}
	}
	if got := (HTTP11Required + 1).String(); !strings.Contains(got, "0xe") {
		t.Error(got)
	}
}
