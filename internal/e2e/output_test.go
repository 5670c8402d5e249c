//go:build linux

package e2e

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringway/ringway/internal/procs"
)

// pipe returns a pipe that has room for one page.
func pipe(t *testing.T) (reader, writer *os.File) {
	t.Helper()
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = reader.Close(), writer.Close() })
	if _, err := unix.FcntlInt(writer.Fd(), unix.F_SETPIPE_SZ, os.Getpagesize()); err != nil {
		t.Fatal(err)
	}
	return reader, writer
}

// lostLines returns the lines that a member has lost for a reason.
func (f *fleet) lostLines(m *procs.Member, reason string) float64 {
	text, err := f.Ask(f.t.Context(), m, "/metrics")
	if err != nil {
		return 0
	}
	return procs.Metrics(string(text))[`ringway_log_lines_lost_total{reason="`+reason+`"}`]
}

// refused sends requests over one connection that a service over HTTP/2 cannot get: each is
// a line at debug.
func refused(t *testing.T, addr string, n int) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	sent := make(chan error, 1)
	go func() {
		_, err := io.WriteString(conn, strings.Repeat("GET / HTTP/1.1\r\nHost: relay\r\nRingway-Service: "+rpc+"\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n", n))
		sent <- err
	}()
	answers := bufio.NewReader(conn)
	for i := range n {
		resp, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatalf("answer %d: %v", i, err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusBadRequest {
			t.Fatalf("answer %d: %s", i, resp.Status)
		}
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
}

// stopInOrder sends SIGTERM to all members, which must end in order.
func (f *fleet) stopInOrder(t *testing.T) {
	t.Helper()
	members := []*procs.Member{f.relays[0].Member}
	for _, w := range f.workers {
		members = append(members, w.Member)
	}
	for _, m := range members {
		m.Signal(t, syscall.SIGTERM)
	}
	for _, m := range members {
		if code := m.Exit(t); code != 0 {
			t.Errorf("%s ended with %d", m.ID, code)
		}
	}
}

func TestMembersGoOnWhenTheReaderOfTheirOutputHasGone(t *testing.T) {
	t.Parallel()
	reader, writer := pipe(t)
	f := startFleet(t, fleetConfig{Relays: 1, Workers: 1, Stdio: writer,
		RelayArgs: []string{"--log-level", "debug", "--request-log", "-"}, WorkerArgs: []string{"--log-level", "debug"},
		Services: func(int) []string { return []string{echo} }})
	if _, err := bufio.NewReader(reader).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	_ = reader.Close()
	f.awaitRange(t, 1)
	r, w := f.relays[0], f.workers[0]
	for _, m := range []*procs.Member{r.Member, w.Member} {
		procs.Await(t, m.ID+" counts lost lines", func() bool {
			f.call(r, "unknown")
			return f.lostLines(m, "write_failed") > 0
		})
	}
	f.stopInOrder(t)
}

func TestAnOutputThatIsNotReadBlocksNothing(t *testing.T) {
	t.Parallel()
	reader, writer := pipe(t)
	f := startFleet(t, fleetConfig{Relays: 1, Workers: 1, Stdio: writer,
		RelayArgs: []string{"--log-level", "debug"},
		Services:  func(int) []string { return []string{echo, rpc + ";protocol=h2c"} }})
	r := f.relays[0]
	f.awaitRange(t, 1)
	f.serves(t, r, rpc)
	procs.Await(t, "lines are lost", func() bool {
		refused(t, r.Ingress, 1000)
		return f.lostLines(r.Member, "queue_full") > 0
	})
	f.startWorker("w2", echo)
	f.awaitRange(t, 2)

	lines := bufio.NewReader(reader)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(line, `"lost":`) {
			break
		}
	}
	refused(t, r.Ingress, 1000) // they fill the pipe again
	f.stopInOrder(t)
}

func TestTheDemoEndsInOrderWhenTheReaderOfItsTableHasGone(t *testing.T) {
	t.Parallel()
	reader, writer := pipe(t)
	// Few requests: on a busy machine a relay refuses some of many, which would end the demo with 1.
	demo := start(t, processConfig{Binary: "relay", Args: []string{"demo", "--relays", "1", "--workers", "1", "--rate", "20", "--for", "2s"}, Stdio: writer})
	if line, err := bufio.NewReader(reader).ReadString('\n'); err != nil || !strings.HasPrefix(line, "ready in ") {
		t.Fatalf("read %q: %v", line, err)
	}
	_ = reader.Close()
	if code := demo.Exit(t); code != 0 {
		t.Errorf("the demo ended with %d", code)
	}
}
