package upstream_test

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/proxy/upstream"
)

func TestMalformedHeadsNeverReachTheClient(t *testing.T) {
	for name, answer := range map[string]string{
		"no status":               "HTTP/1.1\r\n\r\n",
		"short status":            "HTTP/1.1 20\r\n\r\n",
		"status with a letter":    "HTTP/1.1 2x0 OK\r\n\r\n",
		"status below 100":        "HTTP/1.1 099 OK\r\n\r\n",
		"long status":             "HTTP/1.1 2000 OK\r\n\r\n",
		"not HTTP":                "SSH-2.0-OpenSSH_9.2\r\n\r\n",
		"HTTP/2.0":                "HTTP/2.0 200 OK\r\n\r\n",
		"HTTP/1.x":                "HTTP/1.x 200 OK\r\n\r\n",
		"empty first line":        "\r\nHTTP/1.1 200 OK\r\n\r\n",
		"bare LF":                 "HTTP/1.1 200 OK\nContent-Length: 0\n\n",
		"bare CR":                 "HTTP/1.1 200 OK\r\nA: b\rC: d\r\nContent-Length: 0\r\n\r\n",
		"blank before the colon":  "HTTP/1.1 200 OK\r\nContent-Length : 0\r\n\r\n",
		"no colon":                "HTTP/1.1 200 OK\r\nnonsense\r\nContent-Length: 0\r\n\r\n",
		"empty name":              "HTTP/1.1 200 OK\r\n: x\r\nContent-Length: 0\r\n\r\n",
		"bad byte in a name":      "HTTP/1.1 200 OK\r\nA\x00b: x\r\nContent-Length: 0\r\n\r\n",
		"NUL in a value":          "HTTP/1.1 200 OK\r\nA: x\x00y\r\nContent-Length: 0\r\n\r\n",
		"folded line":             "HTTP/1.1 200 OK\r\nA: x\r\n y\r\nContent-Length: 0\r\n\r\n",
		"folded first line":       "HTTP/1.1 200 OK\r\n A: x\r\nContent-Length: 0\r\n\r\n",
		"length and chunked":      "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"conflicting lengths":     "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
		"length list":             "HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\nhello",
		"negative length":         "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
		"signed length":           "HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\nhello",
		"hexadecimal length":      "HTTP/1.1 200 OK\r\nContent-Length: 0x5\r\n\r\nhello",
		"empty length":            "HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\n",
		"huge length":             "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
		"gzip coding":             "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
		"gzip, chunked":           "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
		"chunked twice":           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"chunked in HTTP/1.0":     "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"one length in two texts": "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 03\r\n\r\nabc",
		"framing in the trailers": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: Content-Length\r\n\r\n0\r\n\r\n",
		"head without end":        "HTTP/1.1 200 OK\r\nA: " + strings.Repeat("x", 70<<10),
		"too many lines":          "HTTP/1.1 200 OK\r\n" + strings.Repeat("A: b\r\n", 20000) + "\r\n",
		"unrequested switch":      "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
		"endless early hints":     strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 30),
		"cut in the head":         "HTTP/1.1 200 OK\r\nContent-Le",
		"nothing":                 "",
	} {
		t.Run(name, func(t *testing.T) {
			addr := rawEndpoint(t, func(_ int, c *rawConn) {
				if r, _ := c.request(); r != nil {
					c.say(answer)
				}
			})
			in := startIngress(t, newPool(t, upstream.Config{Address: addr}), nil)
			resp, body := in.get(t, "/")
			out := within(t, in.outcomes, "the outcome")
			if out.err == nil {
				t.Fatalf("accepted as %d %q", resp.StatusCode, body)
			}
			if out.err.Stage != upstream.StageHead || out.err.Committed() || !out.err.Sent() || out.err.Client() {
				t.Errorf("error %+v: want stage head, sent, not committed, not the client's", out.err)
			}
			if resp.StatusCode != http.StatusBadGateway || out.res.BytesOut != 0 {
				t.Errorf("the client saw %d and %d bytes of the endpoint", resp.StatusCode, out.res.BytesOut)
			}
			if s := in.pool.Stats(); s.Idle != 0 {
				t.Errorf("a broken connection went back to the pool: %+v", s)
			}
		})
	}
}

func TestMalformedChunksEndTheResponse(t *testing.T) {
	for name, body := range map[string]string{
		"no size":              "\r\nhello\r\n0\r\n\r\n",
		"not hexadecimal":      "xyz\r\nhello\r\n",
		"bare LF":              "5\nhello\r\n0\r\n\r\n",
		"signed":               "+5\r\nhello\r\n",
		"0x":                   "0x5\r\nhello\r\n",
		"too large":            "fffffffffffffffff\r\nhello\r\n",
		"no line end":          "5\r\nhelloXX0\r\n\r\n",
		"endless extension":    "5;" + strings.Repeat("x", 5000) + "\r\nhello\r\n0\r\n\r\n",
		"extensions add up":    strings.Repeat("1;"+strings.Repeat("x", 2000)+"\r\na\r\n", 20) + "0\r\n\r\n",
		"cut":                  "5\r\nhel",
		"cut in the trailers":  "5\r\nhello\r\n0\r\nA: b\r\n",
		"bad trailer":          "0\r\nA : b\r\n\r\n",
		"trailers without end": "0\r\n" + strings.Repeat("A: b\r\n", 20000) + "\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			addr := rawEndpoint(t, func(_ int, c *rawConn) {
				if r, _ := c.request(); r != nil {
					c.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body)
				}
			})
			in := startIngress(t, newPool(t, upstream.Config{Address: addr}), nil)
			resp, err := in.client.Get(in.url)
			if err == nil {
				_, err = io.ReadAll(resp.Body)
				resp.Body.Close()
			}
			if err == nil {
				t.Error("the client took the response for complete")
			}
			out := within(t, in.outcomes, "the outcome")
			if out.err == nil || out.err.Stage != upstream.StageBody || !out.err.Committed() {
				t.Errorf("outcome %v: want stage body, committed", out.err)
			}
		})
	}
}

func TestOneConnectionServesManyRequests(t *testing.T) {
	for name, answer := range map[string]string{
		"length":              "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
		"length twice":        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
		"chunked":             "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;a=b\r\nhe\r\n3 ;q=\"x\"\r\nllo\r\n0\r\n\r\n",
		"HTTP/1.0 keep-alive": "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\nhello",
		"HTTP/1.2":            "HTTP/1.2 200 OK\r\nContent-Length: 5\r\n\r\nhello",
		"no reason":           "HTTP/1.1 200\r\nContent-Length: 5\r\n\r\nhello",
	} {
		t.Run(name, func(t *testing.T) {
			addr := rawEndpoint(t, func(_ int, c *rawConn) {
				for r, _ := c.request(); r != nil; r, _ = c.request() {
					c.say(answer)
				}
			})
			in := startIngress(t, newPool(t, upstream.Config{Address: addr}), nil)
			for range 5 {
				if _, body := in.get(t, "/"); body != "hello" {
					t.Fatalf("body %q", body)
				}
			}
			if s := in.pool.Stats(); s.Dials != 1 || s.Reused != 4 {
				t.Errorf("stats %+v: want 1 dial, 4 reuses", s)
			}
		})
	}
}

func TestConnectionsThatEndWithTheResponseAreNotReused(t *testing.T) {
	for name, answer := range map[string]string{
		"close":           "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello",
		"HTTP/1.0":        "HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello",
		"until closed":    "HTTP/1.1 200 OK\r\n\r\nhello",
		"more than asked": "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloHTTP/1.1 200 OK\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			addr := rawEndpoint(t, func(_ int, c *rawConn) {
				if r, _ := c.request(); r != nil {
					c.say(answer)
				}
			})
			in := startIngress(t, newPool(t, upstream.Config{Address: addr}), nil)
			for range 3 {
				if _, body := in.get(t, "/"); body != "hello" {
					t.Fatalf("body %q", body)
				}
			}
			if s := in.pool.Stats(); s.Dials != 3 || s.Reused != 0 {
				t.Errorf("stats %+v: want 3 dials", s)
			}
		})
	}
}

func TestRequestsWithoutBodyAnswer(t *testing.T) {
	addr := rawEndpoint(t, func(_ int, c *rawConn) {
		for r, _ := c.request(); r != nil; r, _ = c.request() {
			switch r.URL.Path {
			case "/head":
				c.say("HTTP/1.1 200 OK\r\nContent-Length: 1234\r\nX: y\r\n\r\n")
			case "/204":
				c.say("HTTP/1.1 204 No Content\r\nX: y\r\n\r\n")
			case "/304":
				c.say("HTTP/1.1 304 Not Modified\r\nEtag: \"z\"\r\nContent-Length: 99\r\nX: y\r\n\r\n")
			}
		}
	})
	in := startIngress(t, newPool(t, upstream.Config{Address: addr}), nil)
	for _, tc := range []struct {
		method, path string
		status       int
	}{{"HEAD", "/head", 200}, {"GET", "/204", 204}, {"GET", "/304", 304}} {
		req, _ := http.NewRequest(tc.method, in.url+tc.path, nil)
		resp, err := in.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != tc.status || len(body) != 0 || resp.Header.Get("X") != "y" {
			t.Errorf("%s %s: %d %q %v", tc.method, tc.path, resp.StatusCode, body, resp.Header)
		}
		if tc.method == "HEAD" && resp.ContentLength != 1234 {
			t.Errorf("HEAD lost the length: %d", resp.ContentLength)
		}
	}
	if s := in.pool.Stats(); s.Dials > 3 {
		t.Errorf("stats %+v: want at most one connection for each, because they rest", s)
	}
}

func TestDroppedResponsesLeaveNothingWithTheClient(t *testing.T) {
	addr := rawEndpoint(t, func(_ int, c *rawConn) {
		for r, _ := c.request(); r != nil; r, _ = c.request() {
			c.say("HTTP/1.1 503 Busy\r\nX-A: b\r\nRetry-After: 1\r\nContent-Length: 4\r\n\r\nbusy")
		}
	})
	in := startIngress(t, newPool(t, upstream.Config{Address: addr}), func(*http.Request) upstream.Options {
		return upstream.Options{OnHead: func(r upstream.Result) bool { return !r.Shed }}
	})
	for range 2 {
		resp, body := in.get(t, "/")
		if body != "dropped\n" || resp.Header.Get("X-A") != "" {
			t.Errorf("the client saw %q %v", body, resp.Header)
		}
	}
	if s := in.pool.Stats(); s.Dials != 1 {
		t.Errorf("the connection was lost: %+v", s)
	}
}

func TestBodiesAndTrailersPassBothWays(t *testing.T) {
	addr := httpEndpoint(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("endpoint: %v", err)
		}
		w.Header().Set("Trailer", "X-Announced")
		fmt.Fprintf(w, "%x %d %s", sha256.Sum256(body), r.ContentLength, r.Trailer.Get("X-Sum"))
		w.Header().Set("X-Announced", "yes")
		w.Header().Set(http.TrailerPrefix+"X-Unannounced", "yes too")
	})
	in := startIngress(t, newPool(t, upstream.Config{Address: addr}), nil)
	for _, size := range []int{0, 1, 5000, 16 << 10, 16<<10 + 1, 1 << 20} {
		for _, known := range []bool{true, false} {
			data := make([]byte, size)
			for i := range data {
				data[i] = byte(rand.Uint32())
			}
			req, _ := http.NewRequest("POST", in.url, bytes.NewReader(data))
			length, sum := int64(size), ""
			if !known {
				req.Body = io.NopCloser(bytes.NewReader(data))
				req.ContentLength = -1
				req.Trailer = http.Header{"X-Sum": {"abc"}}
				length, sum = -1, "abc"
			}
			resp, err := in.client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if want := fmt.Sprintf("%x %d %s", sha256.Sum256(data), length, sum); err != nil || string(body) != want {
				t.Errorf("%d bytes, known %v: %q %v, want %q", size, known, body, err, want)
			}
			if resp.Trailer.Get("X-Announced") != "yes" || resp.Trailer.Get("X-Unannounced") != "yes too" {
				t.Errorf("trailers %v", resp.Trailer)
			}
		}
	}
}

func TestLargeBodiesPassWhole(t *testing.T) {
	const size = 10 << 20
	addr := httpEndpoint(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(size))
		if err := http.NewResponseController(w).EnableFullDuplex(); err != nil {
			t.Error(err)
		}
		_, _ = io.Copy(w, r.Body)
	})
	in := startIngress(t, newPool(t, upstream.Config{Address: addr}), nil)
	data := bytes.Repeat([]byte("0123456789abcdef"), size/16)
	resp, err := in.client.Post(in.url, "application/octet-stream", bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	h := sha256.New()
	n, err := io.Copy(h, resp.Body)
	if err != nil || n != size || [32]byte(h.Sum(nil)) != sha256.Sum256(data) {
		t.Errorf("%d bytes came back, error %v", n, err)
	}
}

func TestEventsArriveBeforeTheStreamEnds(t *testing.T) {
	next := make(chan struct{})
	addr := rawEndpoint(t, func(_ int, c *rawConn) {
		if r, _ := c.request(); r == nil {
			return
		}
		c.say("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
		for range 3 {
			if _, ok := <-next; !ok {
				return
			}
			c.say("9\r\ndata: x\n\n\r\n")
		}
		<-next
		c.say("0\r\n\r\n")
	})
	in := startIngress(t, newPool(t, upstream.Config{Address: addr}), nil)
	resp, err := in.client.Get(in.url) // returns: the head came alone
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	br := bufio.NewReader(resp.Body)
	for range 3 {
		next <- struct{}{}
		for _, want := range []string{"data: x\n", "\n"} {
			if line, err := br.ReadString('\n'); err != nil || line != want {
				t.Fatalf("line %q %v", line, err)
			}
		}
	}
	close(next)
	if rest, err := io.ReadAll(br); err != nil || len(rest) > 0 {
		t.Errorf("end: %q %v", rest, err)
	}
}

func TestBothDirectionsFlowConcurrently(t *testing.T) {
	addr := httpEndpoint(t, func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		_ = rc.EnableFullDuplex()
		_ = rc.Flush()
		br := bufio.NewReader(r.Body)
		for {
			line, err := br.ReadString('\n')
			if err != nil {
				return
			}
			fmt.Fprint(w, "echo ", line)
			_ = rc.Flush()
		}
	})
	in := startIngress(t, newPool(t, upstream.Config{Address: addr}), nil)
	pr, pw := io.Pipe()
	resp, err := in.client.Post(in.url, "text/plain", pr)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	br := bufio.NewReader(resp.Body)
	for i := range 3 {
		fmt.Fprintf(pw, "%d\n", i)
		if line, err := br.ReadString('\n'); err != nil || line != fmt.Sprintf("echo %d\n", i) {
			t.Fatalf("line %q %v", line, err)
		}
	}
	pw.Close()
	if rest, err := io.ReadAll(br); err != nil || len(rest) > 0 {
		t.Errorf("end: %q %v", rest, err)
	}
	if out := within(t, in.outcomes, "outcome"); out.err != nil {
		t.Error(out.err)
	}
}

func TestEarlyAnswerEndsAnUpload(t *testing.T) {
	addr := rawEndpoint(t, func(_ int, c *rawConn) {
		if _, err := http.ReadRequest(c.br); err != nil {
			return
		}
		c.say("HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig")
		c.untilClosed()
	})
	in := startIngress(t, newPool(t, upstream.Config{Address: addr}), nil)
	c := procs.Dial(t, in.addr)
	// The rest of the body never comes; instead, something like a request.
	fmt.Fprint(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n")
	br := bufio.NewReader(c)
	resp, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != 413 || string(body) != "big" || !resp.Close {
		t.Errorf("%d %q close %v", resp.StatusCode, body, resp.Close)
	}
	out := within(t, in.outcomes, "outcome")
	if out.err != nil {
		t.Errorf("outcome %v", out.err)
	}
	if rest, _ := io.ReadAll(br); len(rest) > 0 {
		t.Errorf("the body was taken for a request: %q", rest)
	}
	if s := in.pool.Stats(); s.Open != 0 {
		t.Errorf("stats %+v", s)
	}
}

func TestALoadThatIsRepeatedIsNone(t *testing.T) {
	for _, protocol := range []advertise.Protocol{advertise.HTTP1, advertise.H2C} {
		endpoint := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Ringway-Load"] = []string{"3", "4"}
		}))
		endpoint.Config.Protocols = new(http.Protocols)
		endpoint.Config.Protocols.SetHTTP1(true)
		endpoint.Config.Protocols.SetUnencryptedHTTP2(true)
		endpoint.Start()
		t.Cleanup(endpoint.Close)
		in := startIngress(t, newPool(t, upstream.Config{Address: endpoint.Listener.Addr().String(), Protocol: protocol}), nil)
		resp, err := in.client.Get(in.url)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if out := within(t, in.outcomes, "outcome"); out.err != nil || out.res.Load != -1 {
			t.Errorf("%s: load %d, %v", protocol, out.res.Load, out.err)
		}
	}
}
