package upstream_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"testing"

	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/internal/wire"
)

func TestHopByHopFieldsStayAndTheRestPasses(t *testing.T) {
	seen := make(chan *http.Request, 1)
	addr := rawEndpoint(t, func(_ int, c *rawConn) {
		for r, _ := c.request(); r != nil; r, _ = c.request() {
			seen <- r
			c.say("HTTP/1.1 200 OK\r\ncontent-length: 0\r\nKeep-Alive: timeout=5\r\nConnection: x-hop, keep-alive\r\n" +
				"X-Hop: 1\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\nx-kept: yes \r\nRingway-Load: 17\r\nRingway-Relay: forged\r\n\r\n")
		}
	})
	in := startIngress(t, newPool(t, upstream.Config{Address: addr}), func(r *http.Request) upstream.Options {
		return upstream.Options{
			Header:         []wire.Field{{Name: "X-Forwarded-Proto", Value: "http"}},
			ForwardedFor:   "192.0.2.9",
			Drop:           dropRingway,
			ResponseHeader: []wire.Field{{Name: "Ringway-Relay", Value: "r1"}},
			SetCookie:      "b=3",
		}
	})
	c := procs.Dial(t, in.addr)
	fmt.Fprint(c, "GET /a%2fb?q=%20 HTTP/1.1\r\nHost: shop.example:81\r\nConnection: X-Secret, keep-alive\r\nX-Secret: 1\r\nTe: trailers, deflate\r\n"+
		"Keep-Alive: 1\r\nProxy-Authorization: b\r\nProxy-Connection: c\r\nUpgrade: h2c\r\nHttp2-Settings: x\r\nX-Forwarded-For: 198.51.100.1\r\n"+
		"X-Forwarded-Proto: https\r\nRingway-Hop: 1\r\nCookie: k=v\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	r := within(t, seen, "the request")
	if r.RequestURI != "/a%2fb?q=%20" || r.Host != "shop.example:81" {
		t.Errorf("target %q host %q", r.RequestURI, r.Host)
	}
	want := http.Header{"Proxy-Authorization": {"b"}, "Connection": {"TE"}, "Te": {"trailers"}, "X-Forwarded-For": {"198.51.100.1, 192.0.2.9"}, "X-Forwarded-Proto": {"http"}, "Cookie": {"k=v"}}
	if fmt.Sprint(r.Header) != fmt.Sprint(want) {
		t.Errorf("the endpoint saw\n%v, want\n%v", r.Header, want)
	}
	resp.Header.Del("Date")
	wantResp := http.Header{"Content-Length": {"0"}, "Set-Cookie": {"a=1", "b=2", "b=3"}, "X-Kept": {"yes"}, "Ringway-Relay": {"r1"}}
	if fmt.Sprint(resp.Header) != fmt.Sprint(wantResp) {
		t.Errorf("the client saw\n%v, want\n%v", resp.Header, wantResp)
	}
	if out := within(t, in.outcomes, "outcome"); out.res.Load != 17 || out.res.Shed {
		t.Errorf("result %+v", out.res)
	}
}

// net/http sends an announced field as a trailer, even one that the relay has set.
func TestAnEndpointCannotAnnounceAFieldOfOursAsATrailer(t *testing.T) {
	addr := rawEndpoint(t, func(_ int, c *rawConn) {
		for r, _ := c.request(); r != nil; r, _ = c.request() {
			c.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum,ringway-load, Ringway-Relay\r\nTrailer: Ringway-Relay\r\n\r\n" +
				"5\r\nhello\r\n0\r\nX-Sum: 9\r\nRingway-Load: 3\r\nRingway-Relay: forged\r\n\r\n")
		}
	})
	in := startIngress(t, newPool(t, upstream.Config{Address: addr}), func(*http.Request) upstream.Options {
		return upstream.Options{ResponseHeader: []wire.Field{{Name: "Ringway-Relay", Value: "r1"}}}
	})
	resp, err := in.client.Get(in.url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	announced := fmt.Sprint(resp.Trailer)
	if body, err := io.ReadAll(resp.Body); string(body) != "hello" || err != nil {
		t.Errorf("%q, %v", body, err)
	}
	if got, want := fmt.Sprint(resp.Trailer), "map[X-Sum:[9]]"; got != want || announced != "map[X-Sum:[]]" || resp.Header.Get("Ringway-Relay") != "r1" {
		t.Errorf("trailers %s and then %s, want %s; header %v", announced, got, want, resp.Header)
	}
}

// A client that joins head and trailers must not take such a field from the trailers.
func TestTrailersOfAnswersCarryNoFieldThatCountsOnlyInAHead(t *testing.T) {
	addr := rawEndpoint(t, func(_ int, c *rawConn) {
		for r, _ := c.request(); r != nil; r, _ = c.request() {
			c.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: Www-Authenticate, X-Sum\r\n\r\n5\r\nhello\r\n0\r\n" +
				"X-Sum: 9\r\nWww-Authenticate: forged\r\nCache-Control: forged\r\nKeep-Alive: forged\r\nUpgrade: forged\r\n\r\n")
		}
	})
	in := startIngress(t, newPool(t, upstream.Config{Address: addr}), nil)
	resp, err := in.client.Get(in.url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	announced := fmt.Sprint(resp.Trailer)
	if body, err := io.ReadAll(resp.Body); string(body) != "hello" || err != nil {
		t.Errorf("%q, %v", body, err)
	}
	if got, want := fmt.Sprint(resp.Trailer), "map[X-Sum:[9]]"; got != want || announced != "map[X-Sum:[]]" {
		t.Errorf("trailers %s and then %s, want %s", announced, got, want)
	}
}

// A field that the head and the trailers have does not move to the trailers.
func TestAFieldOfTheHeadStaysThereWhenItIsAnnouncedAsATrailer(t *testing.T) {
	addr := rawEndpoint(t, func(_ int, c *rawConn) {
		for r, _ := c.request(); r != nil; r, _ = c.request() {
			c.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x-sum, X-Late\r\nX-Sum: 1\r\n\r\n" +
				"5\r\nhello\r\n0\r\nX-Sum: 2\r\nX-Late: 3\r\n\r\n")
		}
	})
	in := startIngress(t, newPool(t, upstream.Config{Address: addr}), nil)
	resp, body := in.get(t, "/")
	if got := fmt.Sprintf("%v %s %v", resp.Header["X-Sum"], body, resp.Trailer); got != "[1] hello map[X-Late:[3] X-Sum:[2]]" {
		t.Error(got)
	}
}

func TestFieldsWithLineBreaksAreNeverWritten(t *testing.T) {
	addr := rawEndpoint(t, func(_ int, c *rawConn) { c.untilClosed() })
	for name, x := range map[string]func(*http.Request) upstream.Options{
		"value": func(*http.Request) upstream.Options {
			return upstream.Options{Header: []wire.Field{{Name: "X-A", Value: "a\r\nX-B: c"}}}
		},
		"name": func(*http.Request) upstream.Options {
			return upstream.Options{Header: []wire.Field{{Name: "X-A: 1\r\nB", Value: "a"}}}
		},
		"client map changed by the handler": func(r *http.Request) upstream.Options {
			r.Header.Set("X-A", "a\nb")
			return upstream.Options{}
		},
		"forwarded for": func(*http.Request) upstream.Options { return upstream.Options{ForwardedFor: "a\r\nb"} },
	} {
		t.Run(name, func(t *testing.T) {
			in := startIngress(t, newPool(t, upstream.Config{Address: addr}), x)
			in.get(t, "/")
			if out := within(t, in.outcomes, "outcome"); out.err == nil || !out.err.Client() || out.err.Sent() {
				t.Errorf("outcome %v", out.err)
			}
		})
	}
}

func TestShedAnswersAreReported(t *testing.T) {
	for answer, want := range map[string]upstream.Result{
		"429 Too Many Requests\r\n":                       {Status: 429, Load: -1, Shed: true},
		"503 Service Unavailable\r\n":                     {Status: 503, Load: -1},
		"503 Service Unavailable\r\nRetry-After: 1\r\n":   {Status: 503, Load: -1, Shed: true},
		"503 Service Unavailable\r\nRingway-Load: 90\r\n": {Status: 503, Load: 90, Shed: true},
		"200 OK\r\nRingway-Load: lots\r\n":                {Status: 200, Load: -1},
	} {
		addr := rawEndpoint(t, func(_ int, c *rawConn) {
			for r, _ := c.request(); r != nil; r, _ = c.request() {
				c.say("HTTP/1.1 " + answer + "Content-Length: 0\r\n\r\n")
			}
		})
		in := startIngress(t, newPool(t, upstream.Config{Address: addr}), nil)
		in.get(t, "/")
		out := within(t, in.outcomes, "outcome")
		out.res.Waited = 0 // for its connection
		if out.err != nil || !reflect.DeepEqual(out.res, want) {
			t.Errorf("%q: %+v %v, want %+v", answer, out.res, out.err, want)
		}
	}
}
