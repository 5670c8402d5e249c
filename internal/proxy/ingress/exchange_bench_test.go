package ingress_test

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/ringway/ringway/internal/wire"
)

// exchanges are how the requests of a client and their answers may differ. A # is a digit that
// changes with each request. allocs is the bound for one request.
var exchanges = []struct {
	name, path, field, answer string
	allocs                    float64
}{
	{"all the same", "/", "a", "a", 0},
	{"another answer each time", "/", "a", "#", 0},
	{"another path each time", "/#", "a", "#", 1},
	{"another field each time", "/", "#", "#", 1},
	{"another head each time", "/#", "#", "#", 1},
}

// numbered returns a text with each of the ten digits in the places for one.
func numbered(text string) (all [10][]byte) {
	for i := range all {
		all[i] = []byte(strings.ReplaceAll(text, "#", string(rune('0'+i))))
	}
	return all
}

// exchanging is a client with one connection to a relay's ingress in front of one endpoint.
// Client and endpoint allocate nothing for a request.
type exchanging struct {
	tb       testing.TB
	nc       net.Conn
	requests [10][]byte
	n        int
	in       []byte // for one answer
}

func newExchanging(tb testing.TB, path, field, answer string) *exchanging {
	tb.Helper()
	answers := numbered("HTTP/1.1 200 OK\r\nserver: test\r\nDate: Mon, 02 Jan 2006 15:04:05 GMT\r\nContent-Type: text/plain\r\n" +
		"X-Number-Of-The-Answer-Of-This-Endpoint: " + answer + "\r\nContent-Length: 128\r\n\r\n" + strings.Repeat("x", 128))
	x := &exchanging{tb: tb}
	x.requests = numbered("GET " + path + " HTTP/1.1\r\nHost: shop.example\r\nUser-Agent: test\r\nAccept: */*\r\nX-Field: " + field + "\r\n" + wire.ServiceHeader + ": echo\r\n\r\n")
	var err error
	if x.nc, err = net.Dial("tcp", served(tb, handlerFor(tb, repeating(tb, answers[:]...)))); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = x.nc.Close() })
	x.send()
	var seen bytes.Buffer
	resp, err := http.ReadResponse(bufio.NewReader(io.TeeReader(x.nc, &seen)), nil)
	if err != nil {
		tb.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, resp.Body); err != nil || n != 128 || resp.StatusCode != http.StatusOK {
		tb.Fatal(resp.Status, n, err)
	}
	x.in = seen.Bytes()
	return x
}

func (x *exchanging) send() {
	x.n++
	if _, err := x.nc.Write(x.requests[x.n%len(x.requests)]); err != nil {
		x.tb.Fatal(err)
	}
}

// once sends one request and reads its answer.
func (x *exchanging) once() {
	x.send()
	if _, err := io.ReadFull(x.nc, x.in); err != nil {
		x.tb.Fatal(err)
	}
}

// BenchmarkExchange is a request over a kept HTTP/1.1 connection and its answer, with the
// system calls of the client and of the endpoint.
func BenchmarkExchange(b *testing.B) {
	for _, e := range exchanges {
		b.Run(e.name, func(b *testing.B) {
			x := newExchanging(b, e.path, e.field, e.answer)
			b.ReportAllocs()
			for b.Loop() {
				x.once()
			}
		})
	}
}
