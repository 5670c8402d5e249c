package upstream_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/proxy/upstream"
)

const askForTCP = "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: ringway-tcp\r\n\r\n"

// session opens a session over an ingress that switches protocols for it.
func session(t *testing.T, in *ingress, first string) (*net.TCPConn, *bufio.Reader) {
	t.Helper()
	nc := procs.Dial(t, in.addr)
	_ = nc.SetDeadline(time.Now().Add(10 * time.Second))
	_, _ = io.WriteString(nc, askForTCP+first)
	br := bufio.NewReader(nc)
	resp, err := http.ReadResponse(br, nil)
	if err != nil || resp.StatusCode != 101 || resp.Header.Get("Upgrade") != "ringway-tcp" {
		t.Fatalf("%v %v", resp, err)
	}
	return nc.(*net.TCPConn), br
}

func TestATCPSessionCarriesTheBytesAndCountsThem(t *testing.T) {
	addr := rawEndpoint(t, func(_ int, c *rawConn) {
		c.say("hello ")
		all, _ := io.ReadAll(c.br)
		c.say("you said " + string(all))
	})
	var moved upstream.Moved
	heads := make(chan upstream.Result, 1)
	in := startIngress(t, newPool(t, upstream.Config{Address: addr, Protocol: advertise.TCP}), func(*http.Request) upstream.Options {
		return upstream.Options{Moved: &moved, Deadline: time.Now().Add(time.Second), OnHead: func(r upstream.Result) bool { heads <- r; return true }}
	})
	nc, br := session(t, in, "early ")
	if r := within(t, heads, "head"); r.Status != 101 || r.Load != -1 {
		t.Errorf("the handler was told of %+v", r)
	}
	_, _ = io.WriteString(nc, "and late")
	_ = nc.CloseWrite()
	if got, err := io.ReadAll(br); err != nil || string(got) != "hello you said early and late" {
		t.Errorf("%q %v", got, err)
	}
	out := within(t, in.outcomes, "outcome")
	if out.err != nil || !out.res.Upgraded || out.res.Broke != upstream.BrokeNone {
		t.Errorf("%+v %v", out.res, out.err)
	}
	if a, b := moved.ToEndpoint.Load(), moved.ToClient.Load(); a != 14 || b != 29 {
		t.Errorf("%d bytes to the endpoint and %d to the client are counted", a, b)
	}
}

func TestARequestOfHTTPDoesNotReachATCPService(t *testing.T) {
	var reached atomic.Bool
	addr := rawEndpoint(t, func(int, *rawConn) { reached.Store(true) })
	in := startIngress(t, newPool(t, upstream.Config{Address: addr, Protocol: advertise.TCP}), nil)
	resp, err := http.Get(in.url)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if out := within(t, in.outcomes, "outcome"); out.err == nil || !out.err.Client() || out.err.Sent() || reached.Load() {
		t.Errorf("%+v, reached %v", out, reached.Load())
	}
}

func TestASessionThatCannotBeConnectedReportsThatNothingWasSent(t *testing.T) {
	addr := procs.Refusing(t)
	in := startIngress(t, newPool(t, upstream.Config{Address: addr, Protocol: advertise.TCP}), nil)
	nc := procs.Dial(t, in.addr)
	_, _ = io.WriteString(nc, askForTCP)
	if out := within(t, in.outcomes, "outcome"); out.err == nil || out.err.Stage != upstream.StageDial || out.err.Sent() || out.err.Committed() {
		t.Errorf("%+v", out)
	}
}

func TestAPoolForTCPKeepsNoConnectionAndKnowsWhetherItsEndpointIsReached(t *testing.T) {
	ln := procs.Listen(t)
	pool := newPool(t, upstream.Config{Address: ln.Addr().String(), Protocol: advertise.TCP})
	if s := pool.Stats(); s.Open != 0 {
		t.Errorf("%+v", s)
	}
	if err := pool.Warm(t.Context()); err != nil {
		t.Fatal(err)
	}
	conn, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("the probe stays or says something: %d %v", n, err)
	}
	_ = conn.Close()
	if s := pool.Stats(); s.Open != 1 || s.Idle != 0 || s.InFlight != 0 {
		t.Errorf("%+v", s)
	}
	_ = ln.Close()
	if err := pool.Warm(t.Context()); err == nil {
		t.Error("a closed port is reached")
	}
	if s := pool.Stats(); s.Open != 0 {
		t.Errorf("%+v", s)
	}
}

func TestSessionsThatAreIdleOrStoppedEndWithAReset(t *testing.T) {
	for _, c := range []struct {
		name     string
		progress time.Duration
		end      func(*upstream.Sessions)
		want     func(upstream.Result) bool
	}{
		{"idle", 50 * time.Millisecond, func(*upstream.Sessions) {}, func(r upstream.Result) bool { return r.Silent == upstream.SilentBoth && !r.Stopped }},
		{"stopped", 0, func(s *upstream.Sessions) { s.End(1) }, func(r upstream.Result) bool { return r.Stopped && r.Silent == upstream.SilentNone }},
	} {
		t.Run(c.name, func(t *testing.T) {
			ended := make(chan error, 1)
			addr := rawEndpoint(t, func(_ int, r *rawConn) {
				_, err := io.ReadAll(r.br)
				ended <- err
			})
			var sessions upstream.Sessions
			in := startIngress(t, newPool(t, upstream.Config{Address: addr, Protocol: advertise.TCP, Sessions: &sessions}), func(*http.Request) upstream.Options {
				return upstream.Options{Progress: c.progress}
			})
			_, br := session(t, in, "")
			c.end(&sessions)
			if _, err := io.ReadAll(br); err == nil {
				t.Error("the client takes the end for the end of the data")
			}
			if err := within(t, ended, "the end at the endpoint"); err == nil {
				t.Error("the endpoint takes the end for the end of the data")
			}
			if out := within(t, in.outcomes, "outcome"); out.err != nil || !c.want(out.res) || out.res.Broke != upstream.BrokeNone {
				t.Errorf("%+v %v", out.res, out.err)
			}
		})
	}
}

func TestTheSideThatBreaksASessionIsReported(t *testing.T) {
	for _, c := range []struct {
		name string
		want upstream.Broke
	}{{"client", upstream.BrokeClient}, {"endpoint", upstream.BrokeEndpoint}} {
		t.Run(c.name, func(t *testing.T) {
			broken := make(chan struct{})
			addr := rawEndpoint(t, func(_ int, r *rawConn) {
				if c.want == upstream.BrokeEndpoint {
					<-broken
					_ = r.Conn.(*net.TCPConn).SetLinger(0)
					return
				}
				_, _ = io.ReadAll(r.br)
			})
			in := startIngress(t, newPool(t, upstream.Config{Address: addr, Protocol: advertise.TCP}), nil)
			nc, br := session(t, in, "")
			if c.want == upstream.BrokeClient {
				_ = nc.SetLinger(0)
				_ = nc.Close()
			}
			close(broken)
			_, _ = io.ReadAll(br)
			if out := within(t, in.outcomes, "outcome"); out.err != nil || out.res.Broke != c.want {
				t.Errorf("%+v %v", out.res, out.err)
			}
		})
	}
}

func TestDrainCutsSessions(t *testing.T) {
	addr := rawEndpoint(t, func(_ int, r *rawConn) { _, _ = io.ReadAll(r.br) })
	pool := newPool(t, upstream.Config{Address: addr, Protocol: advertise.TCP})
	in := startIngress(t, pool, nil)
	session(t, in, "")
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := pool.Drain(over); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	within(t, in.outcomes, "outcome")
	if err := pool.Drain(t.Context()); err != nil {
		t.Error(err)
	}
}

// failing is a connection that takes no byte.
type failing struct{ net.Conn }

func (failing) Write([]byte) (int, error) { return 0, syscall.EPIPE }

func TestASessionWhoseFirstBytesAreLostEndsWithAReset(t *testing.T) {
	addr := rawEndpoint(t, func(_ int, r *rawConn) { _, _ = io.ReadAll(r.br) })
	in := startIngress(t, newPool(t, upstream.Config{Address: addr, Protocol: advertise.TCP, Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		return failing{conn}, err
	}}), nil)
	_, br := session(t, in, "first bytes")
	if _, err := io.ReadAll(br); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the client gets %v, want a reset", err)
	}
	if out := within(t, in.outcomes, "outcome"); out.err == nil {
		t.Errorf("%+v", out)
	}
}
