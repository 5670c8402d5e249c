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
	s := &session{Conn: conn, in: bufio.NewReader(conn)}
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

func TestATCPSessionEndsWithItsWorkerAndWithNothingElse(t *testing.T) {
	t.Parallel()
	for name, secure := range map[string]bool{"in clear text": false, "through sidecars": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := startFleet(t, fleetConfig{Relays: 2, Workers: 3, Secure: secure, TCP: db,
				RelayArgs:  append(servedBy("r2", 2, db), "--drain-timeout", "1s", "--session-drain-timeout", "4s"),
				WorkerArgs: []string{"--drain-timeout", "1s", "--session-drain-timeout", "4s"},
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

			forwarding[0].Signal(t, syscall.SIGTERM)
			procs.Await(t, "the relay drains its sessions", func() bool { return forwarding[0].Logged("draining sessions", "") })
			all = live(t, "while a relay drains", all, "")
			if code := forwarding[0].Exit(t); code != 0 {
				t.Errorf("%s exited with %d", forwarding[0].ID, code)
			}
			var left []*session
			for _, s := range all {
				if _, err := s.ask(); err == nil {
					left = append(left, s)
				}
			}
			if len(left) == 0 || len(left) == len(all) {
				t.Errorf("%d of %d sessions are left after a relay stopped", len(left), len(all))
			}

			w2.Signal(t, syscall.SIGTERM)
			if secure {
				procs.Await(t, "the worker drains its sessions", func() bool { return w2.Logged("draining sessions", "") })
				live(t, "while w2 stops", left, "")
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
