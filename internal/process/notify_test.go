package process_test

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/logtest"
	"github.com/ringway/ringway/internal/process"
	"github.com/ringway/ringway/internal/procs"
)

// manager is the socket of a service manager.
type manager struct {
	t    *testing.T
	conn *net.UnixConn
}

func newManager(t *testing.T) *manager {
	t.Helper()
	dir, err := os.MkdirTemp("", "notify") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	name := filepath.Join(dir, "socket")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	t.Setenv(process.NotifySocket, name)
	return &manager{t, conn}
}

// hears waits for the next datagrams, which must be these.
func (m *manager) hears(want ...string) {
	m.t.Helper()
	for _, state := range want {
		if got := m.next(30 * time.Second); got != state {
			m.t.Fatalf("the manager heard %q, want %q", got, state)
		}
	}
}

// next is the next datagram, empty when there is none in time.
func (m *manager) next(patience time.Duration) string {
	m.t.Helper()
	if err := m.conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		m.t.Fatal(err)
	}
	buf := make([]byte, 4096)
	n, err := m.conn.Read(buf)
	if err != nil {
		return ""
	}
	return string(buf[:n])
}

// reasons are what a process reports at the moment.
type reasons struct {
	mu  sync.Mutex
	now []process.Reason
}

func (r *reasons) set(now ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now = nil
	for _, text := range now {
		r.now = append(r.now, process.Reason{Text: text})
	}
}

func (r *reasons) get() []process.Reason {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now
}

func TestTheServiceManagerHearsWhenTheDaemonIsReadyAndWhenItStops(t *testing.T) {
	m := newManager(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	why := &reasons{}
	why.set("not joined yet:\nno seed", "no key")
	var running sync.WaitGroup
	n := process.NewNotifier(slog.New(slog.DiscardHandler))
	running.Go(func() { n.Run(ctx, why.get) })

	m.hears("STATUS=not ready: not joined yet: no seed; no key") // and no READY=1
	why.set()
	m.hears("READY=1", "STATUS=ready")
	why.set("no key")
	m.hears("STATUS=not ready: no key")
	why.set()
	m.hears("STATUS=ready") // READY=1 is sent once
	cancel()
	m.hears("STOPPING=1\nSTATUS=stopping: requests in flight finish")
	running.Wait()
}

func TestTheServiceManagerHearsOfReloadsOnceTheDaemonIsReady(t *testing.T) {
	m := newManager(t)
	n := process.NewNotifier(slog.New(slog.DiscardHandler))
	reloads := 0
	reload := n.Reloading(func() { reloads++ })
	reload() // too early: its end would be taken for readiness
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { n.Run(ctx, func() []process.Reason { return nil }) })
	m.hears("READY=1", "STATUS=ready")
	reload()
	m.hears("RELOADING=1", "READY=1")
	cancel()
	running.Wait()
	if reloads != 2 {
		t.Errorf("%d reloads, want 2", reloads)
	}
	if n.Reloading(nil) != nil {
		t.Error("what cannot reload can now")
	}
}

func TestWithoutAServiceManagerNothingIsNotifiedAndReloadsStayAsTheyAre(t *testing.T) {
	t.Setenv(process.NotifySocket, "")
	n := process.NewNotifier(slog.New(slog.DiscardHandler))
	n.Run(t.Context(), func() []process.Reason { t.Error("asked"); return nil }) // returns immediately
	called := false
	n.Reloading(func() { called = true })()
	if !called {
		t.Error("not reloaded")
	}
}

func TestAServiceManagerThatIsGoneIsLoggedAndNothingElse(t *testing.T) {
	t.Setenv(process.NotifySocket, filepath.Join(t.TempDir(), "gone"))
	var log bytes.Buffer
	n := process.NewNotifier(slog.New(slog.NewTextHandler(&log, nil)))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	n.Run(ctx, func() []process.Reason { return nil })
	if got := bytes.Count(log.Bytes(), []byte("cannot notify the service manager")); got != 3 {
		t.Errorf("%d lines, want one for each of READY, STATUS and STOPPING:\n%s", got, log.String())
	}
}

// A queue that is full, or a socket that comes later.
func TestReadinessIsAnnouncedUntilTheServiceManagerHasGotIt(t *testing.T) {
	dir, err := os.MkdirTemp("", "notify")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	name := filepath.Join(dir, "socket")
	t.Setenv(process.NotifySocket, name)
	var log logtest.Log
	n := process.NewNotifier(slog.New(slog.NewTextHandler(&log, nil)))
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { n.Run(ctx, func() []process.Reason { return nil }) })
	procs.Await(t, "an attempt", func() bool { return log.Lines("trying again") == 1 })
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	(&manager{t, conn}).hears("READY=1")
	cancel()
	running.Wait()
	if log.Lines("trying again") != 1 {
		t.Errorf("logged again and again:\n%s", log.String())
	}
}
