//go:build unix

package e2e

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/procs"
)

const db = "db"

// session is a TCP session with a backend. It carries HTTP, which no relay reads.
type session struct {
	net.Conn
	in     *bufio.Reader
	over   *relay
	worker string
}

// ask returns the name of the worker at the other end.
func (s *session) ask() (string, error) {
	_ = s.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(s, "GET / HTTP/1.1\r\nHost: "+db+"\r\n\r\n"); err != nil {
		return "", err
	}
	resp, err := http.ReadResponse(s.in, nil)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

// openSession opens a session over a relay.
func openSession(t *testing.T, r *relay) (*session, error) {
	t.Helper()
	conn, err := net.Dial("tcp", r.tcp)
	if err != nil {
		return nil, err
	}
	s := &session{Conn: conn, in: bufio.NewReader(conn), over: r}
	if s.worker, err = s.ask(); err != nil {
		_ = conn.Close()
		return nil, err
	}
	t.Cleanup(func() { _ = conn.Close() })
	return s, nil
}

// sessionsWithAll opens sessions over the relay until each of the workers has one.
func sessionsWithAll(t *testing.T, r *relay, workers int) (all []*session) {
	t.Helper()
	with := map[string]bool{}
	procs.Await(t, "sessions over "+r.ID+" with all workers", func() bool {
		s, err := openSession(t, r)
		if err != nil {
			return false
		}
		all, with[s.worker] = append(all, s), true
		return len(with) == workers
	})
	return all
}

// live checks which of the sessions still answer: all but those with the worker.
func live(t *testing.T, when string, all []*session, except string) (left []*session) {
	t.Helper()
	for _, s := range all {
		switch got, err := s.ask(); {
		case s.worker == except && err == nil:
			t.Errorf("%s: a session with %s still answers", when, except)
		case s.worker == except:
		case err != nil || got != s.worker:
			t.Errorf("%s: a session with %s: %q, %v", when, s.worker, got, err)
		default:
			left = append(left, s)
		}
	}
	return left
}

// sessionDrain is the drain of the sessions of a process that stops.
type sessionDrain struct {
	from   time.Time // not later than its begin
	window time.Duration
}

// drainSessions stops a process with these time limits and waits until it drains its sessions.
func drainSessions(t *testing.T, p *process, requests, sessions time.Duration) sessionDrain {
	t.Helper()
	before := time.Now()
	p.Signal(t, syscall.SIGTERM)
	procs.Await(t, p.Name()+" drains its requests", func() bool {
		now := time.Now()
		if p.Logged("draining requests", "") {
			return true
		}
		before = now
		return false
	})
	procs.Await(t, p.Name()+" drains its sessions", func() bool { return p.Logged("draining sessions", "") })
	return sessionDrain{from: before.Add(requests), window: sessions - requests}
}

// live checks which of the sessions still answer. The drain ends those that are carried by its process
// evenly over its window: no more than are due have ended. It ends no other session.
func (d sessionDrain) live(t *testing.T, when string, all []*session, carried func(*session) bool) {
	t.Helper()
	n, ended := 0, 0
	for _, s := range all {
		got, err := s.ask()
		if carried(s) {
			n++
			if err != nil {
				ended++
				continue
			}
		}
		if err != nil || got != s.worker {
			t.Errorf("%s: a session with %s: %q, %v", when, s.worker, got, err)
		}
	}
	if due := int(float64(n) * float64(time.Since(d.from)) / float64(d.window)); ended > due {
		t.Errorf("%s: %d of its %d sessions have ended, %d were due", when, ended, n, due)
	}
}

func TestATCPSessionEndsWithItsWorkerAndWithNothingElse(t *testing.T) {
	t.Parallel()
	const requests, sessions = time.Second, 4 * time.Second
	limits := []string{"--drain-timeout", requests.String(), "--session-drain-timeout", sessions.String()}
	for name, secure := range map[string]bool{"in clear text": false, "through sidecars": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := startFleet(t, fleetConfig{Relays: 2, Workers: 3, Secure: secure, TCP: db,
				RelayArgs:  append(servedBy("r2", 2, db), limits...),
				WorkerArgs: limits,
				Services:   func(int) []string { return []string{db + ";protocol=tcp;check=tcp;interval=200ms"} }})
			affine, forwarding := f.roles(t, db, 3)
			var all []*session
			for _, r := range []*relay{affine, forwarding[0]} {
				all = append(all, sessionsWithAll(t, r, 3)...)
			}

			w1 := f.worker("w1")
			w1.Signal(t, syscall.SIGKILL)
			w1.backend.Signal(t, syscall.SIGKILL)
			<-w1.Done
			<-w1.backend.Done
			all = live(t, "after w1 was killed", all, "w1")
			for range 10 { // those that fail are tried elsewhere
				s, err := openSession(t, forwarding[0])
				if err != nil || s.worker == "w1" {
					t.Fatalf("a session after w1 was killed: %+v, %v", s, err)
				}
				_ = s.Close()
			}

			w2 := f.worker("w2")
			if a := f.client.send(request{method: http.MethodPost, addr: w2.Admin, path: "/api/v1/drain"}); a.status != 200 {
				t.Fatal(a)
			}
			procs.Await(t, "new sessions are with w3", func() bool {
				var v serviceView
				return f.api(affine.Admin, "/api/v1/services/"+db, &v) == 200 && v.Range == 1
			})
			all = live(t, "while w2 is drained", all, "")
			if s, err := openSession(t, affine); err != nil || s.worker != "w3" {
				t.Errorf("a session while w2 is drained: %+v, %v", s, err)
			}

			drain := drainSessions(t, forwarding[0].Process, requests, sessions)
			drain.live(t, "while a relay drains", all, func(s *session) bool { return s.over == forwarding[0] })
			if code := forwarding[0].Exit(t); code != 0 {
				t.Errorf("%s exited with %d", forwarding[0].ID, code)
			}
			var left []*session
			for _, s := range all {
				switch _, err := s.ask(); {
				case s.over == affine && err != nil:
					t.Errorf("after another relay stopped: a session with %s: %v", s.worker, err)
				case s.over == affine:
					left = append(left, s)
				case err == nil:
					t.Errorf("a session with %s still answers after its relay stopped", s.worker)
				}
			}

			if secure {
				drain := drainSessions(t, w2.Process, requests, sessions)
				drain.live(t, "while w2 stops", left, func(s *session) bool { return s.worker == w2.ID })
			} else {
				w2.Signal(t, syscall.SIGTERM)
			}
			if code := w2.Exit(t); code != 0 {
				t.Errorf("w2 exited with %d", code)
			}
			dead := "" // without a sidecar the service goes on
			if secure {
				dead = "w2"
			}
			live(t, "after w2 stopped", left, dead)
			if n := f.metric(t, affine, `ringway_relay_tcp_sessions_ended_total{end="closed",service="db"}`); n < 1 {
				t.Errorf("%v closed sessions are counted", n)
			}
		})
	}
}
