package upstream_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/proxy/downstream"
	"github.com/ringway/ringway/internal/proxy/http2"
	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/internal/wire"
)

type grpcService struct {
	testpb.UnimplementedTestServiceServer
}

func (grpcService) UnaryCall(ctx context.Context, in *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
	_ = grpc.SetTrailer(ctx, metadata.Pairs("x-trailer", "t"))
	_ = grpc.SetHeader(ctx, metadata.Pairs("x-header", "h"))
	if in.ResponseStatus != nil {
		return nil, status.Error(codes.Code(in.ResponseStatus.Code), in.ResponseStatus.Message)
	}
	return &testpb.SimpleResponse{Payload: in.Payload}, nil
}

func (grpcService) FullDuplexCall(s testpb.TestService_FullDuplexCallServer) error {
	for {
		in, err := s.Recv()
		if err == io.EOF {
			s.SetTrailer(metadata.Pairs("x-trailer", "stream"))
			return nil
		}
		if err != nil {
			return err
		}
		if err := s.Send(&testpb.StreamingOutputCallResponse{Payload: in.Payload}); err != nil {
			return err
		}
	}
}

func startGRPC(t *testing.T) (client testpb.TestServiceClient, in *ingress) {
	t.Helper()
	ln := procs.Listen(t)
	srv := grpc.NewServer()
	testpb.RegisterTestServiceServer(srv, grpcService{})
	var wg sync.WaitGroup
	wg.Go(func() { _ = srv.Serve(ln) })
	t.Cleanup(func() {
		srv.Stop()
		wg.Wait()
	})
	in = startIngress(t, newPool(t, upstream.Config{Address: ln.Addr().String(), Protocol: advertise.H2C}), nil)
	cc, err := grpc.NewClient("passthrough:///"+in.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cc.Close() })
	return testpb.NewTestServiceClient(cc), in
}

func TestGRPCCallsPass(t *testing.T) {
	client, in := startGRPC(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for _, size := range []int{0, 10, 1 << 20} {
		var header, trailer metadata.MD
		resp, err := client.UnaryCall(ctx, &testpb.SimpleRequest{Payload: &testpb.Payload{Body: make([]byte, size)}},
			grpc.Header(&header), grpc.Trailer(&trailer))
		if err != nil || len(resp.GetPayload().GetBody()) != size {
			t.Fatalf("%d bytes: %v", size, err)
		}
		if fmt.Sprint(header["x-header"], trailer["x-trailer"]) != "[h] [t]" {
			t.Errorf("header %v, trailer %v", header, trailer)
		}
	}
	// An error is a trailers-only answer.
	_, err := client.UnaryCall(ctx, &testpb.SimpleRequest{ResponseStatus: &testpb.EchoStatus{Code: int32(codes.FailedPrecondition), Message: "no, thanks"}})
	if status.Code(err) != codes.FailedPrecondition || status.Convert(err).Message() != "no, thanks" {
		t.Errorf("error %v", err)
	}
	if _, err := client.EmptyCall(ctx, &testpb.Empty{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("error %v", err)
	}
	if s := in.pool.Stats(); s.Dials != 1 {
		t.Errorf("stats %+v: want one connection", s)
	}
}

func TestGRPCStreamsAnswerBeforeTheyEnd(t *testing.T) {
	client, in := startGRPC(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	s, err := client.FullDuplexCall(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		body := fmt.Sprint("message ", i)
		if err := s.Send(&testpb.StreamingOutputCallRequest{Payload: &testpb.Payload{Body: []byte(body)}}); err != nil {
			t.Fatal(err)
		}
		m, err := s.Recv()
		if err != nil || string(m.Payload.Body) != body {
			t.Fatalf("%v %v", m, err)
		}
	}
	_ = s.CloseSend()
	if _, err := s.Recv(); err != io.EOF {
		t.Errorf("end: %v", err)
	}
	if v := s.Trailer()["x-trailer"]; len(v) != 1 || v[0] != "stream" {
		t.Errorf("trailer %v", s.Trailer())
	}
	if out := within(t, in.outcomes, "outcome"); out.err != nil {
		t.Error(out.err)
	}
}

func TestGRPCCancellationReachesTheEndpoint(t *testing.T) {
	client, in := startGRPC(t)
	ctx, cancel := context.WithCancel(t.Context())
	s, err := client.FullDuplexCall(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Send(&testpb.StreamingOutputCallRequest{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recv(); err != nil {
		t.Fatal(err)
	}
	cancel()
	if out := within(t, in.outcomes, "outcome"); out.err == nil || !out.err.Client() || !out.err.Committed() {
		t.Errorf("%v", out.err)
	}
}

func TestHTTP1ClientsReachH2CEndpoints(t *testing.T) {
	addr := httpEndpoint(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.ProtoMajor != 2 {
			t.Errorf("proto %s", r.Proto)
		}
		w.Header().Set("Ringway-Load", "3")
		w.Header().Set("X-Saw", fmt.Sprint(r.Header["X-Forwarded-For"], r.Header["User-Agent"], r.Header["Ringway-Hop"], r.Header["X-Set"], r.Host, r.URL))
		w.(http.Flusher).Flush() // no length: trailers need chunks in HTTP/1.1
		fmt.Fprintf(w, "%s", body)
		w.Header().Set(http.TrailerPrefix+"X-T", "end")
	})
	in := startIngress(t, newPool(t, upstream.Config{Address: addr, Protocol: advertise.H2C}), func(*http.Request) upstream.Options {
		return upstream.Options{ForwardedFor: "192.0.2.1", Drop: dropRingway, Header: []wire.Field{{Name: "X-Set", Value: "1"}}}
	})
	for _, size := range []int{0, 5, 1 << 20} {
		req, _ := http.NewRequest("POST", in.url+"/p?q=1", strings.NewReader(strings.Repeat("x", size)))
		req.Header.Set("User-Agent", "")
		req.Header.Set("Ringway-Hop", "9")
		req.Host = "svc.example"
		resp, err := in.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || len(body) != size {
			t.Errorf("%d bytes of %d: %v", len(body), size, err)
		}
		if got, want := resp.Header.Get("X-Saw"), "[192.0.2.1] [] [] [1]svc.example/p?q=1"; got != want {
			t.Errorf("the endpoint saw %q, want %q", got, want)
		}
		if resp.Trailer.Get("X-T") != "end" || resp.Header.Get("Ringway-Load") != "" {
			t.Errorf("trailer %v header %v", resp.Trailer, resp.Header)
		}
		if out := within(t, in.outcomes, "outcome"); out.err != nil || out.res.Load != 3 {
			t.Errorf("%+v %v", out.res, out.err)
		}
	}
}

func TestHTTP2ClientsCannotBreakTheRequestLine(t *testing.T) {
	addr := rawEndpoint(t, func(_ int, c *rawConn) {
		for r, _ := c.request(); r != nil; r, _ = c.request() {
			c.say(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(r.RequestURI), r.RequestURI))
		}
	})
	p := newPool(t, upstream.Config{Address: addr})
	defer p.Close()
	for _, tc := range []struct {
		method, uri, host string
		want              string // "" means refused
	}{
		{"GET", "/a b HTTP/1.1", "h", "/a%20b%20HTTP/1.1"},
		{"GET /x", "/", "h", ""},
		{"G\r\nET", "/", "h", ""},
		{"CONNECT", "/", "h", ""},
		{"GET", "/", "h\r\nX: y", ""},
		{"GET", "/", "h/evil", ""},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Method, r.RequestURI, r.Host = tc.method, tc.uri, tc.host
		r.URL.Path = strings.TrimSpace(tc.uri)
		w := httptest.NewRecorder()
		_, err := p.Carry(w, r, &upstream.Options{})
		if tc.want == "" {
			if err == nil || !err.Client() || err.Sent() {
				t.Errorf("%+v: %v", tc, err)
			}
			continue
		}
		if err != nil || w.Body.String() != tc.want {
			t.Errorf("%+v: %q %v", tc, w.Body, err)
		}
	}
}

// A service that joins head and trailers must not take a client's trailer for a word of
// the relay: announced, or not announced.
func TestWhatIsDroppedIsDroppedFromTrailersToo(t *testing.T) {
	for _, protocol := range []advertise.Protocol{advertise.HTTP1, advertise.H2C} {
		seen := make(chan http.Header, 1)
		addr := httpEndpoint(t, func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			seen <- r.Trailer
		})
		in := startIngress(t, newPool(t, upstream.Config{Address: addr, Protocol: protocol}), func(*http.Request) upstream.Options {
			return upstream.Options{Drop: dropRingway, Header: []wire.Field{{Name: "X-Set", Value: "1"}}}
		})
		c := procs.Dial(t, in.addr)
		fmt.Fprint(c, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum, Ringway-Caller, X-Set\r\n\r\n"+
			"1\r\na\r\n0\r\nX-Sum: 9\r\nRingway-Caller: forged\r\nRingway-Hop: forged\r\nX-Set: forged\r\nUpgrade: forged\r\n\r\n")
		if got, want := within(t, seen, "the trailers"), (http.Header{"X-Sum": {"9"}}); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: the endpoint saw the trailers %v, want %v", protocol, got, want)
		}
	}
}

// A body of declared length has its trailers behind its last byte, and they may come much later.
func TestTrailersPassBehindABodyOfDeclaredLengthHoweverLateTheyCome(t *testing.T) {
	for _, size := range []int{10, 64 << 10} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				whole, seen := make(chan error, 1), make(chan string, 1)
				service := &http.Server{Protocols: new(http.Protocols), Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					_, err := io.ReadFull(r.Body, make([]byte, size))
					whole <- err
					rest, err := io.ReadAll(r.Body)
					seen <- fmt.Sprint(r.ContentLength, len(rest), err, r.Trailer)
				})}
				service.Protocols.SetUnencryptedHTTP2(true)
				dial := serveInMemory(t, service)
				pool := newPool(t, upstream.Config{Address: "192.0.2.1:80", Protocol: advertise.H2C, Dial: func(context.Context, string, string) (net.Conn, error) { return dial(), nil }})
				defer pool.Close()
				client := http2.NewClient(serveInMemory(t, downstream.New(downstream.Config{Logger: slog.New(slog.DiscardHandler), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if _, err := pool.Carry(w, r, &upstream.Options{}); err != nil {
						t.Error(err)
					}
				})}))(), http2.Config{MaxHead: 64 << 10})
				go func() { _ = client.Run() }()
				defer client.Close()
				s := client.NewStream()
				defer s.Close()
				if err := s.Open([]http2.Field{
					{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":authority", Value: "a"}, {Name: ":path", Value: "/"},
					{Name: "content-length", Value: strconv.Itoa(size)}, {Name: "trailer", Value: "x-sum"},
				}, false, false); err != nil {
					t.Fatal(err)
				}
				if _, err := s.Write(make([]byte, size), false); err != nil {
					t.Fatal(err)
				}
				if err := <-whole; err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if err := s.Send([]http2.Field{{Name: "x-sum", Value: "9"}}, true); err != nil {
					t.Fatal(err)
				}
				if head, err := s.Answer(); err != nil || head.Status != http.StatusOK {
					t.Errorf("%+v, %v", head, err)
				}
				if got, want := <-seen, fmt.Sprint(size, 0, nil, http.Header{"X-Sum": {"9"}}); got != want {
					t.Errorf("the endpoint saw %s, want %s", got, want)
				}
			})
		})
	}
}

// The bytes of small bodies are kept for the next request, whose client may be another one.
func TestARequestWithoutABodySendsNoneAlsoIfItAnnouncesTrailers(t *testing.T) {
	seen := make(chan string, 1)
	addr := httpEndpoint(t, func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		seen <- fmt.Sprint(r.Method, " ", string(body), err)
	})
	pool := newPool(t, upstream.Config{Address: addr, Protocol: advertise.H2C})
	defer pool.Close()
	for range 20 { // a pool of exchanges need not give the last one
		secret := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("a secret of another client"))
		if _, fault := pool.Carry(httptest.NewRecorder(), secret, &upstream.Options{}); fault != nil {
			t.Fatal(fault)
		}
		if got := within(t, seen, "the first request"); got != "POST a secret of another client<nil>" {
			t.Fatal(got)
		}
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			announces := httptest.NewRequest(method, "/", nil)
			announces.Trailer = http.Header{"X": nil}
			if _, fault := pool.Carry(httptest.NewRecorder(), announces, &upstream.Options{}); fault != nil {
				t.Fatal(fault)
			}
			if got := within(t, seen, "the second request"); got != method+" <nil>" {
				t.Fatalf("the endpoint got %q", got)
			}
		}
	}
}

func TestALongConnectionNamesFieldsAsAShortOneDoes(t *testing.T) {
	for _, line := range []int{1 << 20, 200} { // in one line, or in many
		t.Run(fmt.Sprint(line), func(t *testing.T) { longConnection(t, line) })
	}
}

func longConnection(t *testing.T, line int) {
	names, fields := strings.Repeat("a,", 16_000)+"x-1", "X-1: 1\r\nX-2: 2\r\n"
	for i := range 5_000 {
		fields += fmt.Sprintf("b%d:\r\n", i)
	}
	var lines []string
	for part := range slices.Chunk([]byte(names), line) {
		lines = append(lines, string(part))
	}
	seen := make(chan http.Header, 1)
	addr := rawEndpoint(t, func(_ int, c *rawConn) {
		r, err := http.ReadRequest(c.br)
		if err != nil {
			return
		}
		seen <- r.Header
		c.say("HTTP/1.1 200 OK\r\nConnection: " + strings.Join(lines, "\r\nConnection: ") + "\r\n" + fields + "Content-Length: 0\r\n\r\n")
		c.untilClosed()
	})
	pool := newPool(t, upstream.Config{Address: addr, MaxResponseHeaderBytes: 1 << 20})
	defer pool.Close()
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header = http.Header{"Connection": lines, "X-1": {"1"}, "X-2": {"2"}}
	for i := range 5_000 {
		r.Header[fmt.Sprint("B", i)] = []string{""}
	}
	w := httptest.NewRecorder()
	begun := time.Now()
	if _, fault := pool.Carry(w, r, &upstream.Options{}); fault != nil {
		t.Fatal(fault)
	}
	t.Logf("carried in %v", time.Since(begun)) // 80 million comparisons for each head, if each name were compared
	for _, head := range []http.Header{within(t, seen, "the request"), w.Header()} {
		if head.Get("X-1") != "" || head.Get("X-2") != "2" || len(head) < 5_000 {
			t.Errorf("%d fields, x-1 is %q, x-2 %q", len(head), head.Get("X-1"), head.Get("X-2"))
		}
	}
}

// A service that joins its own address and such a target would be led elsewhere.
func TestOnlyAPathIsSentAsATarget(t *testing.T) {
	for _, protocol := range []advertise.Protocol{advertise.HTTP1, advertise.H2C} {
		addr := httpEndpoint(t, func(_ http.ResponseWriter, r *http.Request) { t.Errorf("%s %q was sent", r.Method, r.RequestURI) })
		in := startIngress(t, newPool(t, upstream.Config{Address: addr, Protocol: protocol}), nil)
		for _, line := range []string{"GET x:@evil.test/p", "GET a:80", "GET *", "POST mailto:a@b"} {
			c, err := net.Dial("tcp", in.addr)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprint(c, line+" HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
			if out := within(t, in.outcomes, "the outcome"); out.err == nil || !out.err.Client() || out.err.Sent() {
				t.Errorf("%s over %s: %v", line, protocol, out.err)
			}
			c.Close()
		}
	}
}

// RFC 9110 §6.4.1 and §8.6: these have no body whatever length they declare.
func TestAnswersWithoutABodyPassWithTheLengthThatTheyDeclare(t *testing.T) {
	addr := httpEndpoint(t, func(w http.ResponseWriter, r *http.Request) {
		status := 200
		switch r.URL.Path {
		case "/early":
			w.Header().Set("Link", "</a>")
			w.Header().Set("Content-Length", "45")
			w.WriteHeader(http.StatusEarlyHints)
		case "/204":
			status = http.StatusNoContent
		case "/304":
			status = http.StatusNotModified
		}
		w.Header().Set("Etag", `"z"`)
		w.Header().Set("Content-Length", "45")
		w.WriteHeader(status)
		if r.URL.Path == "/early" {
			_, _ = io.WriteString(w, strings.Repeat("x", 45))
		}
	})
	for _, protocol := range []advertise.Protocol{advertise.HTTP1, advertise.H2C} {
		in := startIngress(t, newPool(t, upstream.Config{Address: addr, Protocol: protocol}), nil)
		// A second hop of ours before the first: what it gets must be as good.
		far := startIngress(t, newPool(t, upstream.Config{Address: in.addr, Protocol: advertise.H2C}), nil)
		for _, c := range []struct {
			method, path, length string
			status, body         int
		}{
			{"GET", "/204", "", 204, 0}, {"POST", "/204", "", 204, 0}, {"GET", "/304", "45", 304, 0},
			{"HEAD", "/304", "45", 304, 0}, {"HEAD", "/", "45", 200, 0}, {"GET", "/early", "45", 200, 45},
		} {
			for name, from := range map[string]*ingress{"one hop": in, "two hops": far} {
				for _, h2 := range []bool{false, true} {
					resp, body := call(t, from, h2, c.method, c.path)
					want := c.length
					if c.status == http.StatusNotModified && (!h2 || protocol == advertise.HTTP1) {
						want = "" // net/http's HTTP/1.1 server leaves it out
					}
					if resp.StatusCode != c.status || body != c.body || resp.Header.Get("Etag") == "" || resp.Header.Get("Content-Length") != want {
						t.Errorf("%s, %s, h2 %v: %s %s: %s, %d bytes, %v", protocol, name, h2, c.method, c.path, resp.Status, body, resp.Header)
					}
				}
			}
		}
		if s := in.pool.Stats(); protocol == advertise.H2C && s.Dials != 1 {
			t.Errorf("%s: stats %+v: an answer without a body cost its connection", protocol, s)
		}
	}
}

// call sends a request over HTTP/1.1 or HTTP/2 and counts the bytes of its body.
func call(t *testing.T, in *ingress, h2 bool, method, path string) (*http.Response, int) {
	t.Helper()
	tr := &http.Transport{DisableCompression: true, Protocols: new(http.Protocols)}
	tr.Protocols.SetHTTP1(!h2)
	tr.Protocols.SetUnencryptedHTTP2(h2)
	defer tr.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), method, in.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(method, path, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNotModified { // net/http's HTTP/2 client takes the length for a body's
		return resp, 0
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(method, path, err)
	}
	return resp, len(body)
}
