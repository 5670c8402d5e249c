package upstream_test

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/proxy/downstream"
	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/internal/wire"
)

// plain hides that a writer copies fields, so that it gets strings.
type plain struct{ http.ResponseWriter }

func (w plain) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func TestAnAnswerIsTheSameWhetherItsFieldsAreCopiedOrNot(t *testing.T) {
	const date = "Date: Mon, 02 Jan 2006 15:04:05 GMT\r\n"
	for _, c := range []struct{ name, method, answer string }{
		{"length", "GET", "HTTP/1.1 200 OK\r\n" + date + "Content-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello"},
		{"no type", "GET", "HTTP/1.1 200 OK\r\n" + date + "Content-Length: 5\r\n\r\n<html"},
		{"lower case", "GET", "HTTP/1.1 200 OK\r\ndate: Mon, 02 Jan 2006 15:04:05 GMT\r\netag: \"x\"\r\nwww-AUTHENTICATE: a\r\nx-1a-bC: d\r\ncontent-length: 5\r\n\r\nhello"},
		{"several values", "GET", "HTTP/1.1 200 OK\r\n" + date + "Set-Cookie: a=1\r\nX: 1\r\nset-cookie: b=2\r\nX: 2\r\nContent-Length: 0\r\n\r\n"},
		{"length twice", "GET", "HTTP/1.1 200 OK\r\n" + date + "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello"},
		{"chunks", "GET", "HTTP/1.1 200 OK\r\n" + date + "Transfer-Encoding: chunked\r\nX: 1\r\n\r\n5\r\nhello\r\n0\r\n\r\n"},
		{"trailers", "GET", "HTTP/1.1 200 OK\r\n" + date + "Trailer: X-T, X\r\nX: 1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-T: 1\r\n\r\n"},
		{"fields of the connection", "GET", "HTTP/1.1 200 OK\r\n" + date + "Connection: keep-alive, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: 5\r\nContent-Length: 0\r\n\r\n"},
		{"fields of relays and replaced ones", "GET", "HTTP/1.1 200 OK\r\n" + date + "Ringway-Relay: evil\r\nringway-load: 3\r\nx-SET: evil\r\nX-Preset: endpoint\r\nContent-Length: 0\r\n\r\n"},
		{"HEAD", "HEAD", "HTTP/1.1 200 OK\r\n" + date + "Content-Length: 500\r\n\r\n"},
		{"HEAD without a length", "HEAD", "HTTP/1.1 200 OK\r\n" + date + "X: 1\r\n\r\n"},
		{"204", "GET", "HTTP/1.1 204 No Content\r\n" + date + "Content-Length: 0\r\nX: 1\r\n\r\n"},
		{"304", "GET", "HTTP/1.1 304 Not Modified\r\n" + date + "Content-Length: 7\r\nEtag: x\r\n\r\n"},
		{"426", "GET", "HTTP/1.1 426 Upgrade Required\r\n" + date + "Connection: Upgrade\r\nUpgrade: websocket\r\nX: 1\r\nContent-Length: 0\r\n\r\n"},
		{"407", "GET", "HTTP/1.1 407 Proxy Authentication Required\r\n" + date + "Proxy-Authenticate: a\r\nContent-Length: 0\r\n\r\n"},
		{"103 first", "GET", "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nContent-Length: 9\r\n\r\nHTTP/1.1 200 OK\r\n" + date + "Link: </b>\r\nContent-Length: 5\r\n\r\nhello"},
		{"for caches", "GET", "HTTP/1.1 200 OK\r\n" + date + "cache-CONTROL: max-age=60\r\nContent-Length: 0\r\n\r\n"},
		{"for caches until a time", "GET", "HTTP/1.1 200 OK\r\n" + date + "Expires: Fri, 01 Jan 2100 00:00:00 GMT\r\nContent-Length: 0\r\n\r\n"},
		{"for the cache of its client", "GET", "HTTP/1.1 200 OK\r\n" + date + "Cache-Control: max-age=60\r\nCache-Control: private\r\nContent-Length: 0\r\n\r\n"},
		{"empty value", "GET", "HTTP/1.1 200 OK\r\n" + date + "X:\r\nY: \t a \t\r\nContent-Length: 0\r\n\r\n"},
		{"to the end", "GET", "HTTP/1.1 200 OK\r\n" + date + "Connection: close\r\nX: 1\r\n\r\nhello"},
	} {
		t.Run(c.name, func(t *testing.T) {
			pool := newPool(t, upstream.Config{Address: rawEndpoint(t, func(_ int, conn *rawConn) {
				for r, _ := conn.request(); r != nil; r, _ = conn.request() {
					conn.say(c.answer)
					if c.name == "to the end" {
						return
					}
				}
			})})
			var exchanges sync.WaitGroup
			x := upstream.Options{ResponseHeader: []wire.Field{{Name: "X-Set", Value: "1"}}, SetCookie: "last=1"}
			serve := func(writer func(http.ResponseWriter) http.ResponseWriter) string {
				return procs.Serve(t, downstream.New(downstream.Config{Logger: slog.New(slog.DiscardHandler), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					exchanges.Add(1)
					defer exchanges.Done()
					w.Header()["X-Preset"] = []string{"handler"}
					if _, err := pool.Carry(writer(w), r, &x); err != nil {
						t.Error(err)
					}
				})}))
			}
			want := described(t, serve(func(w http.ResponseWriter) http.ResponseWriter { return plain{w} }), c.method)
			got := described(t, serve(func(w http.ResponseWriter) http.ResponseWriter { return w }), c.method)
			if !reflect.DeepEqual(got, want) {
				t.Errorf("copied\n%q\nas strings\n%q", got, want)
			}
			exchanges.Wait()
			pool.Close()
		})
	}
}

func TestAnAnswerOverHTTP2IsTheSameWhetherItsFieldsArePassedOrNot(t *testing.T) {
	for _, c := range []struct {
		name, method string
		status       int
		fields       string // name=value, with a space between
		body         string
		trailers     string
	}{
		{"length", "GET", 200, "Content-Type=text/plain Content-Length=5", "hello", ""},
		{"no type and no length", "GET", 200, "", "<html", ""},
		{"several values", "GET", 200, "Set-Cookie=a=1 X=1 Set-Cookie=b=2 X=2", "", ""},
		{"for caches", "GET", 200, "Cache-Control=max-age=60", "", ""},
		{"for the cache of its client", "GET", 200, "Cache-Control=max-age=60 Cache-Control=private", "", ""},
		{"announced trailers", "GET", 200, "Trailer=X-T X=1", "hello", "X-T=1"},
		{"trailers", "GET", 200, "X=1", "hello", "Trailer:X-T=1 Trailer:X-T=2 Trailer:Ringway-Relay=evil"},
		{"trailers without a body", "GET", 200, "X=1", "", "Trailer:Grpc-Status=0"},
		{"fields of relays and replaced ones", "GET", 200, "Ringway-Relay=evil Ringway-Load=3 X-Set=evil X-Preset=endpoint Content-Length=0", "", ""},
		{"HEAD", "HEAD", 200, "Content-Length=500", "", ""},
		{"204", "GET", 204, "X=1", "", ""},
		{"304", "GET", 304, "Etag=x", "", ""},
		{"426", "GET", 426, "X=1 Content-Length=0", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			add := func(h http.Header, fields string) {
				for _, f := range strings.Fields(fields) {
					name, value, _ := strings.Cut(f, "=")
					h[name] = append(h[name], value)
				}
			}
			pool := newPool(t, upstream.Config{Protocol: advertise.H2C, Address: httpEndpoint(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Date", "Mon, 02 Jan 2006 15:04:05 GMT")
				add(w.Header(), c.fields)
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.body)
				add(w.Header(), c.trailers)
			})})
			var exchanges sync.WaitGroup
			defer func() {
				exchanges.Wait() // a client that has all of an answer may be ahead of the end of its stream
				pool.Close()
			}()
			x := upstream.Options{ResponseHeader: []wire.Field{{Name: "X-Set", Value: "1"}}, SetCookie: "last=1"}
			serve := func(writer func(http.ResponseWriter) http.ResponseWriter) string {
				return procs.Serve(t, downstream.New(downstream.Config{Logger: slog.New(slog.DiscardHandler), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					exchanges.Add(1)
					defer exchanges.Done()
					w.Header()["X-Preset"] = []string{"handler"}
					if _, err := pool.Carry(writer(w), r, &x); err != nil {
						t.Error(err)
					}
				})}))
			}
			for _, secondProtocol := range []bool{false, true} {
				want := describedBy(t, serve(func(w http.ResponseWriter) http.ResponseWriter { return plain{w} }), c.method, secondProtocol)
				got := describedBy(t, serve(func(w http.ResponseWriter) http.ResponseWriter { return w }), c.method, secondProtocol)
				if !reflect.DeepEqual(got, want) {
					t.Errorf("to a client of HTTP/2: %v: passed\n%q\nin a header\n%q", secondProtocol, got, want)
				}
			}
		})
	}
}

func described(t *testing.T, addr, method string) []string {
	t.Helper()
	return describedBy(t, addr, method, false)
}

// describedBy returns what a client of HTTP/1.1 or HTTP/2 reads of an answer.
func describedBy(t *testing.T, addr, method string, http2 bool) []string {
	t.Helper()
	var protocols http.Protocols
	protocols.SetHTTP1(!http2)
	protocols.SetUnencryptedHTTP2(http2)
	transport := &http.Transport{DisableCompression: true, Protocols: &protocols}
	defer transport.CloseIdleConnections()
	r, err := http.NewRequest(method, "http://"+addr+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return []string{resp.Status, fmt.Sprint(resp.Header), fmt.Sprint(resp.ContentLength > 0), string(body), fmt.Sprint(resp.Trailer)}
}

// Some services and clients compare names with their case, although they must not (RFC 9110 §5.1).
func TestNamesOfFieldsKeepTheirCaseBetweenSidesOfHTTP1(t *testing.T) {
	many := ""
	for i := range 100 {
		many += fmt.Sprintf("x-MANY-%d: 1\r\n", i)
	}
	heads := make(chan string, 1)
	answer := "HTTP/1.1 200 OK\r\ndate: Mon, 02 Jan 2006 15:04:05 GMT\r\nETAG: x\r\nx-powered-BY: a\r\nX-powered-by: b\r\ncontent-length: 0\r\nconnection: x-hop\r\nx-hop: 1\r\nringway-LOAD: 1\r\n\r\n"
	pool := newPool(t, upstream.Config{Address: rawEndpoint(t, func(_ int, conn *rawConn) {
		for {
			head := ""
			for !strings.HasSuffix(head, "\r\n\r\n") {
				line, err := conn.br.ReadString('\n')
				if err != nil {
					return
				}
				head += line
			}
			heads <- head
			conn.say(answer)
		}
	})})
	x := upstream.Options{Header: []wire.Field{{Name: "X-Set", Value: "relay"}}, Drop: func(name string) bool { return name == "X-Secret" }}
	addr := procs.Serve(t, downstream.New(downstream.Config{Logger: slog.New(slog.DiscardHandler), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := pool.Carry(w, r, &x); err != nil {
			t.Error(err)
		}
	})}))
	client := procs.Dial(t, addr)
	br := bufio.NewReader(client)
	for _, c := range []struct {
		fields string
		want   []string // sent to the endpoint
		not    []string
	}{
		{"soapACTION: a\r\nx-b: 1\r\nX-B: 2\r\nX-Set: evil\r\nx-SET: evil\r\nx-secret: 1\r\nCONNECTION: x-hop\r\nX-hop: 1\r\n", []string{"soapACTION: a", "x-b: 1", "x-b: 2", "X-Set: relay"}, []string{"evil", "ecret", "hop"}},
		{"Soapaction: a\r\nX-B: 3\r\n", []string{"Soapaction: a", "X-B: 3"}, []string{"soapACTION", "x-b"}},
		{many, []string{"x-MANY-0: 1", "x-MANY-63: 1", "X-Many-64: 1", "X-Many-99: 1"}, nil},
	} {
		if _, err := io.WriteString(client, "GET / HTTP/1.1\r\nHost: a\r\n"+c.fields+"\r\n"); err != nil {
			t.Fatal(err)
		}
		head := within(t, heads, "request")
		for _, line := range c.want {
			if !strings.Contains(head, "\r\n"+line+"\r\n") {
				t.Errorf("the endpoint lacks %q in\n%s", line, head)
			}
		}
		for _, part := range c.not {
			if strings.Contains(head, part) {
				t.Errorf("the endpoint gets %q in\n%s", part, head)
			}
		}
		got := ""
		for !strings.HasSuffix(got, "\r\n\r\n") {
			line, err := br.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			got += line
		}
		if want := "HTTP/1.1 200 OK\r\ndate: Mon, 02 Jan 2006 15:04:05 GMT\r\nETAG: x\r\nx-powered-BY: a\r\nX-powered-by: b\r\nContent-Length: 0\r\n\r\n"; got != want {
			t.Errorf("the client gets\n%s\nwant\n%s", got, want)
		}
	}
}
