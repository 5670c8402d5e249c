package upstream_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/proxy/upstream"
)

// answersFirst is an endpoint that answers before it asks for the body, and does
// not end its answer before it has it.
func answersFirst(t *testing.T) string {
	return rawEndpoint(t, func(_ int, c *rawConn) {
		r, err := http.ReadRequest(c.br)
		if err != nil {
			return
		}
		c.say("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nyou ")
		body := make([]byte, r.ContentLength)
		if _, err := io.ReadFull(r.Body, body); err == nil {
			c.say(string(body))
		}
		c.untilClosed()
	})
}

func expectContinue(t *testing.T, addr string) (*net.TCPConn, *http.Response) {
	t.Helper()
	conn := procs.Dial(t, addr)
	_, _ = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%v %v", resp, err)
	}
	return conn.(*net.TCPConn), resp
}

func TestAnUnrequestedBodyReachesAnEndpointThatWaitsForIt(t *testing.T) {
	in := startIngress(t, newPool(t, upstream.Config{Address: answersFirst(t)}), nil)
	conn, resp := expectContinue(t, in.addr)
	_, _ = io.WriteString(conn, "hello")
	if got, err := io.ReadAll(resp.Body); err != nil || string(got) != "you hello" {
		t.Errorf("%q %v", got, err)
	}
	if out := within(t, in.outcomes, "the end of the exchange"); out.err != nil {
		t.Errorf("%v", out.err)
	}
}

func TestAClientThatLeavesIsNoticedAlthoughItsBodyWasNotAskedFor(t *testing.T) {
	in := startIngress(t, newPool(t, upstream.Config{Address: answersFirst(t)}), nil)
	conn, _ := expectContinue(t, in.addr)
	_ = conn.Close()
	if out := within(t, in.outcomes, "the end of the exchange"); out.err == nil || !out.err.Client() {
		t.Errorf("%+v %v", out.res, out.err)
	}
	if s := in.pool.Stats(); s.Open != 0 {
		t.Errorf("the connection to the endpoint is still there: %+v", s)
	}
}
