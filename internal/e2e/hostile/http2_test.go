//go:build linux

package hostile

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/ringway/ringway/internal/procs"
	engine "github.com/ringway/ringway/internal/proxy/http2"
)

// listeners returns those of a relay and the first worker that speak HTTP/2. The attacker of
// the last two has the certificate of a relay.
func (f *fleet) listeners(r *relay) []target {
	secured := func(addr string) func() (net.Conn, error) {
		config := f.Security.TLSConfig(f.t, "r2", "h2")
		return func() (net.Conn, error) {
			dialer := tls.Dialer{NetDialer: &net.Dialer{Timeout: handshakeTime}, Config: config}
			return dialer.DialContext(context.Background(), "tcp", addr)
		}
	}
	return []target{
		{"ingress", func() (net.Conn, error) { return net.Dial("tcp", r.Ingress) }},
		{"peers", secured(r.Peer)},
		{"sidecar", secured(f.Workers[0].Sidecar)},
	}
}

// maxCost and maxPeak are the processor time, in plain requests that take as much, and the memory
// at its peak that one attack may cost a victim. Requests of another client are in both.
const (
	maxCost = 2500
	maxPeak = 32 << 20
)

// cost is what an attack has cost a process.
type cost struct {
	cpu    time.Duration
	growth int64
}

// measured starts to measure what a process spends, until the cost is asked for.
func measured(t *testing.T, pid int) func() cost {
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0); err != nil { // the peak begins here
		t.Fatal(err)
	}
	used, held := cpuTime(t, pid), memory(t, pid, "VmRSS:")
	return func() cost { return cost{cpuTime(t, pid) - used, memory(t, pid, "VmHWM:") - held} }
}

// handshakes returns the processor time of n handshakes with the sidecar, on the side that dials.
func (f *fleet) handshakes(n int) time.Duration {
	f.t.Helper()
	begin, all := cpuTime(f.t, os.Getpid()), f.listeners(f.Relays[0])
	sidecar := all[len(all)-1]
	for range n {
		nc, err := sidecar.dial()
		if err != nil {
			f.t.Error(err)
			continue
		}
		_ = nc.Close()
	}
	took := cpuTime(f.t, os.Getpid()) - begin
	f.t.Logf("%d handshakes with a sidecar take %v of processor time", n, took)
	return took
}

// asked sends requests over HTTP/1.1 until stop, and reports those that failed.
func (f *fleet) asked(r *relay) (stop func() (requests int, err error)) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	requests, failed := 0, map[string]int{}
	go func() {
		defer close(done)
		for ; ctx.Err() == nil; requests++ {
			if status, body := f.ask(r, echo, http.MethodPost, "/"); status != http.StatusOK {
				failed[fmt.Sprintf("%d %.100s", status, body)]++
			}
			time.Sleep(2 * time.Millisecond)
		}
	}()
	return func() (int, error) {
		cancel()
		<-done
		if len(failed) > 0 {
			return requests, fmt.Errorf("of %d requests some failed: %v", requests, failed)
		}
		return requests, nil
	}
}

// engineAlone are the settings of a relay whose engine alone must protect its clients. The
// limit for overload counts the requests of all clients of a service, attackers included, and
// has tests of its own.
var engineAlone = []string{"--progress-timeout", "2s", "--adaptive-in-flight=false"}

// TestAttacksOverHTTP2AreBounded has a stranger attack the ingress, and one with the
// certificate of a relay the listeners for relays: one attack after the other, so that each has
// its own bound. Those that a limit of time must end have another relay.
//
// It runs alone, before the tests that run in parallel: it measures processor time.
func TestAttacksOverHTTP2AreBounded(t *testing.T) {
	f := startFleet(t, fleetConfig{Relays: 2, Workers: 1, RelayArgs: engineAlone})
	victim, worker := f.Relays[0], f.Workers[0]
	f.serves(20)
	stop := f.asked(victim)
	plain := measured(t, victim.PID())
	const rounds = 3 // one varies by a quarter, with the other work of both processors
	f.serves(rounds * maxCost)
	maxCPU := plain().cpu / rounds
	before := f.size(victim)
	malformed := func() float64 {
		return f.metrics(victim.Admin, "ringway_relay_connections_dropped_total", func(s string) bool {
			return strings.Contains(s, `"ingress"`) && strings.Contains(s, `"malformed"`)
		})
	}
	malformedBefore := malformed()
	var all sync.WaitGroup
	for _, slow := range []bool{false, true} {
		r, watched := victim, map[string]int{"relay": victim.PID(), "worker": worker.PID()}
		if slow {
			r = f.Relays[1]
			watched = map[string]int{"relay": r.PID()}
		}
		all.Go(func() {
			rest := 0.0 // the processors that the process takes without an attack: these attacks wait for seconds
			handshakes := time.Duration(0)
			if slow {
				idle := measured(t, r.PID())
				<-time.After(5 * time.Second)
				rest = idle().cpu.Seconds() / 5
				handshakes = f.handshakes(carriedRequests)
			}
			begun, most := time.Now(), map[string]cost{}
			for _, attack := range attacks {
				if slow != (attack.want.closed || attack.want.ended > 0) {
					continue
				}
				for _, to := range f.listeners(r) {
					if attack.edge && to.name != "ingress" {
						continue
					}
					run := func() map[string]cost {
						begin, costs := map[string]func() cost{}, map[string]cost{}
						for who, pid := range watched {
							begin[who] = measured(t, pid)
						}
						began := time.Now()
						if err := attack.run(to); err != nil {
							t.Errorf("%s of the %s: %v", attack.name, to.name, err)
						}
						without := time.Duration(rest * float64(time.Since(began)))
						for who, of := range begin {
							c := of()
							costs[who] = cost{c.cpu - without, c.growth}
						}
						return costs
					}
					costs, maxCPU := run(), maxCPU
					if attack.want.ended > 0 { // each of its requests has a connection of its own to the sidecar, as any other
						maxCPU += handshakes
					}
					for who, c := range costs {
						// The cost of an attack recurs each time. Both processors may have other attacks.
						for n := 1; n < 4 && c.cpu > maxCPU; n++ {
							c.cpu = min(c.cpu, run()[who].cpu)
						}
						most[who] = cost{max(c.cpu, most[who].cpu), max(c.growth, most[who].growth)}
						if c.cpu > maxCPU || c.growth > maxPeak {
							t.Errorf("%s of the %s costs the %s %v of processor time and %d MiB, at most %v and %d MiB are allowed", attack.name, to.name, who, c.cpu, c.growth>>20, maxCPU, maxPeak>>20)
						}
					}
				}
			}
			for who, c := range most {
				t.Logf("limits of time %v: the most that one attack costs the %s are %v of processor time and %d MiB; all take %v", slow, who, c.cpu, c.growth>>20, time.Since(begun).Round(time.Millisecond))
			}
		})
	}
	all.Wait()
	requests, err := stop()
	if err != nil {
		t.Error("another client:", err)
	}
	if n := malformed() - malformedBefore; n < float64(len(smuggled)) {
		t.Errorf("%v malformed requests were counted", n)
	}
	f.within(victim, before)
	t.Logf("%d attacks, %d requests next to them; memory %d MiB, before %d MiB; %d plain requests take %v of processor time", len(attacks), requests, f.size(victim).memory>>20, before.memory>>20, maxCost, maxCPU)
	if err := f.Ended(); err != nil {
		t.Error(err)
	}
	f.serves(20)
}

// narrow dials with a small receive buffer, which a client that does not read fills immediately.
// Set later, the buffer would make an announced window shrink: the system then drops what the relay
// sends, with what it acknowledges, and neither side gets on.
var narrow = net.Dialer{Control: func(_, _ string, c syscall.RawConn) (err error) {
	return errors.Join(c.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4<<10) }), err)
}}

// TestAClientOverHTTP2ThatDoesNotReadIsEnded has clients that read one byte at a time, or nothing.
func TestAClientOverHTTP2ThatDoesNotReadIsEnded(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleetConfig{Relays: 1, Workers: 1, RelayArgs: engineAlone})
	victim := f.Relays[0]
	f.serves(2) // the series of the first requests are none of the flood
	before := f.size(victim)
	stop := f.asked(victim)
	var all sync.WaitGroup
	for name, act := range map[string]func(a *attacker){
		"one byte at a time": func(a *attacker) {
			_ = a.fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1<<31 - 1})
			_ = a.fr.WriteWindowUpdate(0, 1<<30)
			for i := range 20 {
				a.request(uint32(2*i+1), open, true)
			}
			for i := 0; ; i++ {
				if _, err := a.nc.Read(make([]byte, 1)); err != nil {
					return
				}
				time.Sleep(10 * time.Millisecond)
				if i%20 == 0 && a.fr.WriteWindowUpdate(0, 1) != nil {
					return // what has arrived can be read after the end
				}
			}
		},
		// The relay answers these itself, so that they soon fill what the system holds.
		"requests and nothing read": func(a *attacker) {
			_ = a.fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1<<31 - 1})
			_ = a.fr.WriteWindowUpdate(0, 1<<30)
			for i := 0; ; i++ {
				list := a.list(":method", "GET", ":scheme", "http", ":authority", "x", ":path", "/", "ringway-service", strings.Repeat("unknown-", 20))
				if a.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*i + 1), BlockFragment: list, EndStream: true, EndHeaders: true}) != nil {
					return
				}
			}
		},
	} {
		all.Go(func() {
			nc, err := narrow.Dial("tcp", victim.Ingress)
			if err != nil {
				t.Error(err)
				return
			}
			defer nc.Close()
			a := &attacker{nc: nc, fr: http2.NewFramer(nc, nc)}
			a.encoder = hpack.NewEncoder(&a.block)
			_, _ = io.WriteString(nc, http2.ClientPreface)
			_ = a.fr.WriteSettings()
			_ = nc.SetDeadline(time.Now().Add(procs.Patience))
			act(a)
			if _, err := nc.Write([]byte{0}); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%s: the connection was not ended", name)
				_ = syscall.Kill(victim.PID(), syscall.SIGQUIT) // its stacks show what it waits for
			}
		})
	}
	ended := make(chan struct{})
	go func() { all.Wait(); close(ended) }()
	for done := false; !done; {
		select {
		case <-ended:
			done = true
		case <-time.After(100 * time.Millisecond): // between two checks
			f.within(victim, before)
		}
	}
	if _, err := stop(); err != nil {
		t.Error("another client:", err)
	}
	f.serves(20)
}

// pinging is a connection of an HTTP/2 client that sends a PING every pingPeriod.
type pinging struct {
	net.Conn
	last  time.Time
	pings atomic.Int64
}

const pingPeriod = 100 * time.Millisecond

// Write adds the PING behind a write that ends with a frame: one that the client has not
// divided.
func (p *pinging) Write(b []byte) (int, error) {
	const divided = 32 << 10
	if len(b) >= divided || time.Since(p.last) < pingPeriod {
		return p.Conn.Write(b)
	}
	p.last = time.Now()
	p.pings.Add(1)
	if _, err := p.Conn.Write(append(slices.Clone(b), 0, 0, 8, byte(http2.FramePing), 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8)); err != nil {
		return 0, err
	}
	return len(b), nil
}

// TestABusyClientIsNoAttacker has an honest client with small windows keep its connection as
// busy as it can.
func TestABusyClientIsNoAttacker(t *testing.T) {
	t.Parallel()
	const concurrent, each = 200, 50
	// A busy machine completes fewer requests than the client sends: none is to be refused for that.
	f := startFleet(t, fleetConfig{Relays: 1, Workers: 1, RelayArgs: []string{"--adaptive-in-flight=false", "--expose-route-headers"}})
	nc, err := net.Dial("tcp", f.Relays[0].Ingress)
	if err != nil {
		t.Fatal(err)
	}
	below := &pinging{Conn: nc}
	client := engine.NewClient(below, engine.Config{MaxHead: 64 << 10, Window: 8 << 10, MaxWindow: 64 << 10})
	ran := make(chan struct{})
	go func() { defer close(ran); _ = client.Run() }()
	t.Cleanup(func() { _ = client.Close(); <-ran })
	fields := []hpack.HeaderField{{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "http"}, {Name: ":authority", Value: "x"}, {Name: ":path", Value: "/"}, {Name: "ringway-service", Value: echo}}
	exchange := func(giveUp bool) error {
		s := client.NewStream()
		defer s.Close()
		if err := s.Open(fields, true, false); err != nil || giveUp {
			return err // Close cancels it
		}
		head, err := s.Answer()
		if err != nil {
			return err
		}
		body, err := io.ReadAll(s)
		if err == nil && (head.Status != http.StatusOK || string(body) != f.Workers[0].ID) {
			err = fmt.Errorf("%d %q", head.Status, body)
		}
		return err
	}
	var all sync.WaitGroup
	for n := range concurrent {
		all.Go(func() {
			for i := range each {
				if err := exchange((n+i)%10 == 0); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	if err := client.Err(); err != nil {
		t.Error("the connection has ended:", err)
	}
	t.Logf("%d requests, one in ten of them cancelled, and %d pings", concurrent*each, below.pings.Load())
}
