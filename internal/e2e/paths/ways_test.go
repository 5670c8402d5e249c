package paths

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/ringway/ringway/internal/e2e/unasked"
	"github.com/ringway/ringway/internal/procs"
)

func TestNoClientReadsWhatTheServiceSentBehindTheAnswerToAnother(t *testing.T) {
	const rounds = 50 // with four ways and five kinds of poison a thousand connections
	everyWay(t, func(t *testing.T, w *way) {
		for path, method := range map[string]string{"/second": "GET", "/chunked": "GET", "/head": "HEAD", "/204": "GET", "/304": "GET"} {
			for range rounds {
				first, next := w.dial(t), w.dial(t)
				first.say("%s %s HTTP/1.1\r\nHost: a\r\nRingway-Service: odd\r\n\r\n", method, path)
				if resp, body, err := first.answer(method); err != nil || body == "foreign" {
					t.Fatalf("%s %s: %v, %q, %v", method, path, resp.StatusCode, body, err)
				}
				<-w.service.wrote
				next.say("GET /own HTTP/1.1\r\nHost: a\r\nRingway-Service: odd\r\n\r\n")
				if resp, body, err := next.answer("GET"); resp.StatusCode != http.StatusOK || body != "own" {
					t.Fatalf("after %s %s the next client got %v %q, %v", method, path, resp.StatusCode, body, err)
				}
				_, _ = first.Close(), next.Close()
			}
		}
	})
}

// The rest of a connection covers what comes late behind an answer without a body. Behind a body
// it comes once, and then this endpoint's answers are all treated so.
func TestNoClientReadsWhatTheServiceSendsLate(t *testing.T) {
	const rounds = 4 // with four ways and three services 48 connections of each kind
	everyWay(t, func(t *testing.T, w *way) {
		var running sync.WaitGroup
		defer running.Wait()
		for name, s := range w.late {
			running.Go(func() {
				allowed := 0
				if !s.Kind.Bodyless {
					allowed = 1
				}
				if n := s.Try(unasked.Client{Addr: w.ingress, Name: name}, rounds); n.Foreign > allowed || n.Failed > 0 {
					t.Errorf("%s after %v, Nagle %v: %+v, at most %d foreign answers are possible", s.Kind.Name, s.Pause, s.Nagle, n, allowed)
				}
			})
		}
	})
}

func TestAnUploadThatIsCutIsNotAnsweredAsIfItHadRun(t *testing.T) {
	everyWay(t, func(t *testing.T, w *way) {
		for _, framing := range []string{"Content-Length: 10\r\n\r\nabc", "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", "Content-Length: 10\r\n\r\n"} {
			c := w.dial(t)
			c.say("PUT /ok HTTP/1.1\r\nHost: a\r\nRingway-Service: odd\r\n%s", framing)
			_ = c.CloseWrite()
			if got := c.ended(); strings.HasPrefix(got, "HTTP/1.1 2") {
				t.Errorf("%q, then the end: answered %q", framing, got)
			}
		}
	})
}

func TestAnswersWithoutABodyKeepTheLengthThatTheyDeclareAndTheConnection(t *testing.T) {
	everyWay(t, func(t *testing.T, w *way) {
		c := w.dial(t)
		for path, want := range map[string]int{"/204-long": 204, "/304-long": 304} {
			c.say("GET %s HTTP/1.1\r\nHost: a\r\nRingway-Service: odd\r\n\r\n", path)
			resp, body, err := c.answer("GET")
			if err != nil || resp.StatusCode != want || body != "" || resp.Header.Get("Etag") != "a" {
				t.Fatalf("%s: %v %v %q, %v", path, resp.StatusCode, resp.Header, body, err)
			}
			if want == 304 && resp.Header.Get("Content-Length") != "5" {
				t.Errorf("%s: a validation loses its length: %v", path, resp.Header)
			}
			c.say("GET /ok HTTP/1.1\r\nHost: a\r\nRingway-Service: odd\r\n\r\n")
			if resp, body, err := c.answer("GET"); err != nil || body != "ok" {
				t.Fatalf("the request after %s: %v %q, %v", path, resp.StatusCode, body, err)
			}
		}
	})
}

func TestATargetThatIsNoPathReachesNoService(t *testing.T) {
	everyWay(t, func(t *testing.T, w *way) {
		for _, target := range []string{"x:@evil.test/p", "a:80", "evil.test"} {
			c := w.dial(t)
			c.say("GET %s HTTP/1.1\r\nHost: a\r\nRingway-Service: odd\r\n\r\n", target)
			if resp, body, err := c.answer("GET"); err != nil || resp.StatusCode != http.StatusBadRequest {
				t.Errorf("%s: %v %q, %v", target, resp.StatusCode, body, err)
			}
			if w.service.got(target) {
				t.Errorf("the service got %q", target)
			}
		}
	})
}

// A proxy that writes a path in another way may ask for another resource than its client.
func TestTheTargetReachesTheServiceInTheBytesOfTheClient(t *testing.T) {
	everyWay(t, func(t *testing.T, w *way) {
		c := w.dial(t)
		for _, r := range []struct{ sent, want string }{
			{"GET /x%2Fy|", "GET /x%2Fy|"},
			{"GET http://a.test/x%2Fz|", "GET /x%2Fz|"},
			{"GET http://a.test/p%2F..%2Fadmin\"", "GET /p%2F..%2Fadmin\""},
			{"GET http://a.test//%7e\\\xff?%zz&|#", "GET //%7e\\\xff?%zz&|#"},
			{"GET http://a.test?q", "GET /?q"},
			{"OPTIONS http://a.test/?o", "OPTIONS /?o"},
			{"OPTIONS http://a.test", "OPTIONS *"},
			{"OPTIONS *", "OPTIONS *"},
		} {
			w.service.forget()
			c.say("%s HTTP/1.1\r\nHost: a.test\r\nRingway-Service: odd\r\n\r\n", r.sent)
			if resp, body, err := c.answer("GET"); err != nil || resp.StatusCode != http.StatusOK {
				t.Fatalf("%s: %v %q, %v", r.sent, resp.StatusCode, body, err)
			}
			if !w.service.got(r.want + " HTTP/1.1\r\n") {
				t.Errorf("%q did not arrive as %q", r.sent, r.want)
			}
		}
	})
}

// malformed has requests of which another reader may see another end, by the fault.
var malformed = map[string]string{
	"two framings":                   "POST /poison HTTP/1.1\r\nHost: a\r\nRingway-Service: odd\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	"chunks in HTTP/1.0":             "POST /poison HTTP/1.0\r\nHost: a\r\nRingway-Service: odd\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	"a length that is no number":     "POST /poison HTTP/1.1\r\nHost: a\r\nRingway-Service: odd\r\nContent-Length: +3\r\n\r\nabc",
	"two lengths":                    "POST /poison HTTP/1.1\r\nHost: a\r\nRingway-Service: odd\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
	"a coding that is unknown":       "POST /poison HTTP/1.1\r\nHost: a\r\nRingway-Service: odd\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
	"a name with a space":            "GET /poison HTTP/1.1\r\nHost: a\r\nRingway-Service: odd\r\nX : a\r\n\r\n",
	"a line end without CR":          "GET /poison HTTP/1.1\nHost: a\nRingway-Service: odd\n\n",
	"a host that is none":            "GET /poison HTTP/1.1\r\nHost: a:80:90\r\nRingway-Service: odd\r\n\r\n",
	"a user in the target":           "GET http://u:p@a/poison HTTP/1.1\r\nHost: a\r\nRingway-Service: odd\r\n\r\n",
	"an expectation that is unknown": "POST /poison HTTP/1.1\r\nHost: a\r\nRingway-Service: odd\r\nContent-Length: 3\r\nExpect: other\r\n\r\nabc",
}

func TestAMalformedRequestIsRefusedAndNothingBehindItIsRead(t *testing.T) {
	everyWay(t, func(t *testing.T, w *way) {
		for fault, text := range malformed {
			c := w.dial(t)
			c.say("%sGET /smuggled HTTP/1.1\r\nHost: a\r\nRingway-Service: odd\r\n\r\n", text)
			got := c.ended()
			if n := strings.Count(got, "HTTP/1.1 "); n != 1 || !strings.HasPrefix(got, "HTTP/1.1 4") {
				t.Errorf("%s: answered %q", fault, got)
			}
		}
		for _, text := range []string{"/poison", "/smuggled"} {
			if w.service.got(text) {
				t.Errorf("the service got %q", text)
			}
		}
	})
}

func TestAnUploadThatMovesOutlivesTheTimeOfARequestAndIsNoFailureOfTheEndpoint(t *testing.T) {
	everyWay(t, func(t *testing.T, w *way) {
		c := w.dial(t)
		c.say("PUT /ok HTTP/1.1\r\nHost: a\r\nRingway-Service: brief\r\nContent-Length: 20\r\n\r\n")
		tick := time.NewTicker(100 * time.Millisecond) // twice the time limit of this service in all
		defer tick.Stop()
		for range 20 {
			<-tick.C
			c.say("x")
		}
		if resp, body, err := c.answer("PUT"); err != nil || body != "ok" {
			t.Errorf("%v %q, %v", resp.StatusCode, body, err)
		}
	})
}

func TestAClientThatReadsNothingHoldsNoPlaceForLong(t *testing.T) {
	everyWay(t, func(t *testing.T, w *way) {
		c := w.dial(t)
		c.say("GET /large HTTP/1.1\r\nHost: a\r\nRingway-Service: brief\r\n\r\n")
		procs.Await(t, "the request to be in flight", func() bool { return w.inFlight(t, "brief") > 0 })
		procs.Await(t, "the request to end", func() bool { return w.inFlight(t, "brief") == 0 })
	})
}

func TestAServiceThatAnswersBeforeItReadsIsNotAnticipated(t *testing.T) {
	everyWay(t, func(t *testing.T, w *way) {
		for range 100 { // clients that leave without their body
			c := w.dial(t)
			c.say("POST /417 HTTP/1.1\r\nHost: a\r\nRingway-Service: odd\r\nExpect: 100-continue\r\nContent-Length: 10\r\n\r\n")
			resp, body, err := c.answer("POST") // not 100, which only the service may send
			if err != nil || resp.StatusCode != http.StatusExpectationFailed || body != "no" {
				t.Fatalf("%v %q, %v", resp.StatusCode, body, err)
			}
			_ = c.Close()
		}
		procs.Await(t, "the places of these requests to be free", func() bool { return w.inFlight(t, "odd") == 0 })
	})
}

func TestAnUpgradeThatAServiceDoesNotKnowIsIgnored(t *testing.T) {
	everyWay(t, func(t *testing.T, w *way) {
		procs.Await(t, "the service over HTTP/2 to answer", func() bool {
			c := w.dial(t)
			defer c.Close()
			c.say("GET / HTTP/1.1\r\nHost: a\r\nRingway-Service: h2c\r\n\r\n")
			_, body, _ := c.answer("GET")
			return body == "over h2c"
		})
		for _, service := range []string{"h2c", "odd"} {
			c := w.dial(t)
			c.say("GET /ok HTTP/1.1\r\nHost: a\r\nRingway-Service: %s\r\nConnection: Upgrade\r\nUpgrade: foo\r\n\r\n", service)
			if resp, body, err := c.answer("GET"); err != nil || resp.StatusCode != http.StatusOK {
				t.Errorf("%s: %v %q, %v", service, resp.StatusCode, body, err)
			}
		}
	})
}

func TestAnAnswerThatIsCutIsCutForTheClient(t *testing.T) {
	everyWay(t, func(t *testing.T, w *way) {
		for _, version := range []string{"1.0", "1.1"} {
			w.faults++
			c := w.dial(t)
			c.say("GET /cut HTTP/%s\r\nHost: a\r\nRingway-Service: odd\r\n\r\n", version)
			resp, body, err := c.answer("GET")
			if err == nil {
				t.Errorf("HTTP/%s: %v %q looks complete", version, resp.Header, body)
			}
		}
	})
}

func TestInformationalAnswersAndUpgradeRequiredPass(t *testing.T) {
	everyWay(t, func(t *testing.T, w *way) {
		for service, want := range map[string]string{"odd": "ok", "h2c": "over h2c"} {
			c := w.dial(t)
			c.say("GET /hints HTTP/1.1\r\nHost: a\r\nRingway-Service: %s\r\n\r\n", service)
			resp, _, err := c.answer("GET")
			if err != nil || resp.StatusCode != http.StatusEarlyHints || resp.Header.Get("Link") != "</a>" || resp.Header.Get("Content-Length") != "" || len(resp.TransferEncoding) > 0 {
				t.Fatalf("hints of %s: %v %v, %v", service, resp.StatusCode, resp.Header, err)
			}
			for range 30 {
				if resp, _, err := c.answer("GET"); err != nil || resp.StatusCode != http.StatusProcessing {
					t.Fatalf("after hints of %s: %v, %v", service, resp.StatusCode, err)
				}
			}
			if resp, body, err := c.answer("GET"); err != nil || body != want {
				t.Errorf("after hints of %s: %v %q, %v", service, resp.StatusCode, body, err)
			}
		}
		for _, body := range []string{"Connection: close\r\n\r\n", "Expect: 100-continue\r\nContent-Length: 9\r\n\r\n"} { // with each the connection ends
			c := w.dial(t)
			c.say("POST /426 HTTP/1.1\r\nHost: a\r\nRingway-Service: odd\r\n%s", body)
			got := c.ended()
			for _, field := range []string{"Upgrade: other/1\r\n", "Connection: Upgrade\r\n"} {
				required := len(w.relays) == 1 // relays use HTTP/2, which does not have this field
				if !strings.HasPrefix(got, "HTTP/1.1 426 ") || strings.Contains(got, field) != required {
					t.Errorf("%s: answered %q", field, got)
				}
			}
		}
	})
}

// HTTP/2 counts 28 bytes more of each field than HTTP/1.1 has. The member that is next to the service has
// taken the answer, and a request that has run must not fail behind it.
func TestAHeadThatTheFirstMemberTakesPassesAllOthers(t *testing.T) {
	everyWay(t, func(t *testing.T, w *way) {
		for _, method := range []string{"GET", "POST"} {
			c := w.dial(t)
			c.say("%s /long-head HTTP/1.1\r\nHost: a\r\nRingway-Service: odd\r\nContent-Length: 0\r\n\r\n", method)
			if resp, body, err := c.answer(method); err != nil || body != "ok" || len(resp.Header["X-Field"]) != longFields {
				t.Errorf("%s: %v %.200q with %d fields, %v", method, resp.StatusCode, body, len(resp.Header["X-Field"]), err)
			}
		}
	})
}

// A service may be a proxy itself, whose clients prove who they are to it.
func TestTheFieldsOfProxyAuthenticationPassBothWays(t *testing.T) {
	everyWay(t, func(t *testing.T, w *way) {
		c := w.dial(t)
		c.say("GET /407 HTTP/1.1\r\nHost: a\r\nRingway-Service: odd\r\nProxy-Authorization: Basic first\r\n\r\n")
		if resp, body, err := c.answer("GET"); err != nil || body != "no" || resp.Header.Get("Proxy-Authenticate") != "Basic" {
			t.Errorf("%v %v %q, %v", resp.StatusCode, resp.Header, body, err)
		}
		f := w.frames(t)
		f.request(t, 1, true, "GET", "/407", "proxy-authorization", "Basic second")
		if status, value, reset := f.answer(t, 1, "proxy-authenticate"); status != "407" || value != "Basic" || reset {
			t.Errorf("over HTTP/2: %s, %q, reset %v", status, value, reset)
		}
		if !w.service.got("Proxy-Authorization: Basic first") || !w.service.got("Proxy-Authorization: Basic second") {
			t.Error("the service did not get the credentials")
		}
	})
}

func TestTrailersCarryNoFieldThatIsForTheRelayOrTheHead(t *testing.T) {
	everyWay(t, func(t *testing.T, w *way) {
		c := w.dial(t)
		for value, announced := range map[string]string{"announced": "Trailer: Ringway-Hop, Checksum\r\n", "unannounced": ""} {
			c.say("POST /ok HTTP/1.1\r\nHost: a\r\nRingway-Service: odd\r\nTransfer-Encoding: chunked\r\n%s\r\n3\r\nabc\r\n0\r\nRingway-Hop: 7\r\nAuthorization: poison\r\nChecksum: %s\r\n\r\n", announced, value)
			if resp, body, err := c.answer("POST"); err != nil || body != "ok" {
				t.Fatalf("%v %q, %v", resp.StatusCode, body, err)
			}
			if !w.service.got("Checksum: " + value) {
				t.Errorf("the service did not get the %s trailer", value)
			}
		}
		h2 := w.frames(t)
		for i, size := range []int{0, 3, 30_000} {
			value, stream := fmt.Sprintf("over HTTP/2 behind %d bytes", size), uint32(2*i+1)
			h2.request(t, stream, false, "POST", "/ok")
			for ; size > 0; size -= min(size, 10_000) {
				_ = h2.WriteData(stream, false, make([]byte, min(size, 10_000)))
			}
			h2.list.Reset()
			for _, f := range [][2]string{{"ringway-hop", "7"}, {"authorization", "poison"}, {"checksum", value}} {
				_ = h2.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
			}
			if err := h2.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: h2.list.Bytes(), EndStream: true, EndHeaders: true}); err != nil {
				t.Fatal(err)
			}
			if status, _, reset := h2.answer(t, stream, ""); status != "200" || reset || !w.service.got("Checksum: "+value) {
				t.Errorf("%s: %s, reset %v, or the service did not get the trailer", value, status, reset)
			}
		}
		if w.service.got("poison") || w.service.got("Ringway-Hop: 7") {
			t.Error("the service got trailers that it may not get")
		}
		c.say("GET /trailers HTTP/1.1\r\nHost: a\r\nRingway-Service: odd\r\n\r\n")
		resp, body, err := c.answer("GET")
		if got := fmt.Sprint(resp.Trailer); err != nil || body != "abc" || got != "map[Checksum:[kept]]" {
			t.Errorf("the client got %q with the trailers %s, %v", body, got, err)
		}
		f := w.frames(t)
		for i, name := range []string{"checksum", "www-authenticate", "keep-alive", "upgrade", "host"} {
			stream := uint32(2*i + 1)
			f.request(t, stream, true, "GET", "/trailers")
			if _, value, reset := f.answer(t, stream, name); reset || (value == "kept") != (name == "checksum") {
				t.Errorf("over HTTP/2 the trailer %s is %q, reset %v", name, value, reset)
			}
		}
	})
}

// frames is a connection of HTTP/2 whose client writes each frame itself.
type frames struct {
	*http2.Framer
	list bytes.Buffer
	*hpack.Encoder
	service string
}

func (w *way) frames(t *testing.T) *frames {
	t.Helper()
	c := w.dial(t)
	c.say(http2.ClientPreface)
	f := &frames{Framer: http2.NewFramer(c, c.in), service: "odd"}
	f.Encoder = hpack.NewEncoder(&f.list)
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if err := f.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	return f
}

// request opens a stream. fields are names and values.
func (f *frames) request(t *testing.T, stream uint32, ended bool, method, path string, fields ...string) {
	t.Helper()
	f.list.Reset()
	all := append([]string{":method", method, ":scheme", "http", ":authority", "a", ":path", path, "ringway-service", f.service}, fields...)
	for i := 0; i < len(all); i += 2 {
		_ = f.WriteField(hpack.HeaderField{Name: all[i], Value: all[i+1]})
	}
	if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: f.list.Bytes(), EndStream: ended, EndHeaders: true}); err != nil {
		t.Fatal(err)
	}
}

// answer returns the status of a stream and its field name, or reset.
func (f *frames) answer(t *testing.T, stream uint32, name string) (status, value string, reset bool) {
	t.Helper()
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if frame.Header().StreamID != stream {
			continue
		}
		switch frame := frame.(type) {
		case *http2.RSTStreamFrame:
			return status, value, status == ""
		case *http2.MetaHeadersFrame:
			status = frame.PseudoValue("status")
			for _, field := range frame.RegularFields() {
				if field.Name == name {
					value = field.Value
				}
			}
		}
		if ended, ok := frame.(interface{ StreamEnded() bool }); ok && ended.StreamEnded() {
			return status, value, false
		}
	}
}

// whole describes the answer on a stream: its status, its body and how it ends, with the status
// of gRPC if that is in trailers.
func (f *frames) whole(t *testing.T, stream uint32) (text string) {
	t.Helper()
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if frame.Header().StreamID != stream {
			continue
		}
		switch frame := frame.(type) {
		case *http2.RSTStreamFrame:
			return text + ", then a reset"
		case *http2.DataFrame:
			text += string(frame.Data())
		case *http2.MetaHeadersFrame:
			if text == "" {
				text = frame.PseudoValue("status") + " "
				break
			}
			for _, field := range frame.RegularFields() {
				if field.Name == "grpc-status" {
					text += ", then " + field.Value
				}
			}
		}
		if ended, ok := frame.(interface{ StreamEnded() bool }); ok && ended.StreamEnded() {
			return text
		}
	}
}

func TestAnswersWithoutABodyReachClientsOverHTTP2(t *testing.T) {
	everyWay(t, func(t *testing.T, w *way) {
		f := w.frames(t)
		f.request(t, 1, true, "GET", "/304-long")
		if status, length, reset := f.answer(t, 1, "content-length"); status != "304" || length != "5" || reset {
			t.Errorf("304: %q, length %q, reset %v", status, length, reset)
		}
		f.request(t, 3, true, "GET", "/204-long")
		if status, length, reset := f.answer(t, 3, "content-length"); status != "204" || length != "" || reset {
			t.Errorf("204: %q, length %q, reset %v", status, length, reset)
		}
		f.request(t, 5, true, "HEAD", "/head-only")
		if status, length, reset := f.answer(t, 5, "content-length"); status != "200" || length != "45" || reset {
			t.Errorf("HEAD: %q, length %q, reset %v", status, length, reset)
		}
	})
}

func TestALengthOverHTTP2ThatIsNotThatOfTheBodyEndsTheStreamAndRunsNothing(t *testing.T) {
	everyWay(t, func(t *testing.T, w *way) {
		for i, lengths := range [][]string{{"x"}, {"3", "4"}, {"+3"}, {"-1"}, {"4"}, {"2"}} {
			f := w.frames(t)
			path := fmt.Sprintf("/lengths-%d", i)
			var fields []string
			for _, l := range lengths {
				fields = append(fields, "content-length", l)
			}
			f.request(t, 1, false, "POST", path, fields...)
			_ = f.WriteData(1, true, []byte("abc"))
			if status, _, reset := f.answer(t, 1, ""); !reset && status != "400" {
				t.Errorf("lengths %v: answered %q", lengths, status)
			}
			if w.service.got("POST " + path + " ") {
				t.Errorf("lengths %v: the service got the request", lengths)
			}
		}
	})
}
