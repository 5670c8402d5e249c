package command_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/spf13/cobra"

	"github.com/ringway/ringway/internal/command"
)

// watching runs a verb with --watch until the test has read what it wants to.
type watching struct {
	t      *testing.T
	out    *bufio.Reader
	errs   *bufio.Reader
	cancel context.CancelFunc
	ended  chan error
}

func startWatch(t *testing.T, c *cobra.Command, args ...string) *watching {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	outR, outW := io.Pipe()
	errR, errW := io.Pipe()
	w := &watching{t: t, out: bufio.NewReader(outR), errs: bufio.NewReader(errR), cancel: cancel, ended: make(chan error, 1)}
	c.SetArgs(append(args, "--watch", "--interval", "50ms"))
	c.SetOut(outW)
	c.SetErr(errW)
	c.SilenceErrors, c.SilenceUsage = true, true
	go func() { w.ended <- c.ExecuteContext(ctx) }()
	t.Cleanup(func() {
		outR.Close()
		errR.Close()
		cancel()
	})
	return w
}

// end stops the watch as Ctrl-C does.
func (w *watching) end() {
	w.t.Helper()
	w.cancel()
	if err := <-w.ended; err != nil {
		w.t.Errorf("a watch that was ended failed: %v", err)
	}
}

// changingAPI is an admin API whose list of services changes.
type changingAPI struct {
	*httptest.Server
	requests atomic.Int64  // of the service
	arrived  chan struct{} // gets one for each request that the test waits for
	broken   atomic.Bool
	extra    atomic.Value // JSON text: more fields of the service
}

func newChangingAPI(t *testing.T) *changingAPI {
	a := &changingAPI{arrived: make(chan struct{})}
	a.extra.Store("")
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		select {
		case a.arrived <- struct{}{}:
		default:
		}
		if a.broken.Load() {
			panic(http.ErrAbortHandler)
		}
		fmt.Fprintf(w, `{"relay":"r1","services":[{"service":"echo","role":"affine","requests":%d%s}]}`+"\n", a.requests.Load(), a.extra.Load())
	}))
	t.Cleanup(a.Close)
	return a
}

// looks waits until the API was asked n times.
func (a *changingAPI) looks(n int) {
	for range n {
		<-a.arrived
	}
}

func (a *changingAPI) addr() string { return a.Listener.Addr().String() }

func TestAWatchInJSONWritesOneDocumentForEachChange(t *testing.T) {
	a := newChangingAPI(t)
	w := startWatch(t, command.ServicesCommand(), "-o", "json", "--admin-addr", a.addr())
	documents := json.NewDecoder(w.out)
	for i := range int64(3) {
		var doc struct {
			Services []struct{ Requests int64 }
		}
		if err := documents.Decode(&doc); err != nil || doc.Services[0].Requests != i {
			t.Fatalf("document %d: %+v, %v", i, doc, err)
		}
		a.looks(3) // without a change they write nothing
		a.requests.Add(1)
	}
	w.cancel() // the document of the last change may be under way, and has no reader
}

func TestAWatchOfATableRepeatsItAfterAnEmptyLine(t *testing.T) {
	a := newChangingAPI(t)
	w := startWatch(t, command.ServicesCommand(), "--admin-addr", a.addr())
	line := func() string {
		t.Helper()
		text, err := w.out.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	if head, row := line(), line(); !strings.HasPrefix(head, "SERVICE") || !strings.HasSuffix(row, " 0\n") {
		t.Errorf("%q %q", head, row)
	}
	a.requests.Add(7)
	if empty, head, row := line(), line(), line(); empty != "\n" || !strings.HasPrefix(head, "SERVICE") || !strings.HasSuffix(row, " 7\n") {
		t.Errorf("%q %q %q", empty, head, row)
	}
	w.end()
}

func TestAWatchForgetsWhatAnAnswerNoLongerContains(t *testing.T) {
	a := newChangingAPI(t)
	a.extra.Store(`,"range_text":"[0..3) of 9"`)
	w := startWatch(t, command.ServicesCommand(), "-o", "wide", "--admin-addr", a.addr())
	line := func() string {
		t.Helper()
		text, err := w.out.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	if _, row := line(), line(); !strings.HasSuffix(row, " [0..3) of 9\n") {
		t.Errorf("%q", row)
	}
	a.extra.Store("")
	if _, _, row := line(), line(), line(); !strings.HasSuffix(row, " -\n") {
		t.Errorf("%q", row)
	}
	w.end()
}

func TestAWatchOutlivesTheProcessAndReportsOnce(t *testing.T) {
	a := newChangingAPI(t)
	w := startWatch(t, command.ServicesCommand(), "-o", "json", "--admin-addr", a.addr())
	documents := json.NewDecoder(w.out)
	var doc struct{}
	if err := documents.Decode(&doc); err != nil {
		t.Fatal(err)
	}
	a.broken.Store(true)
	text, err := w.errs.ReadString('\n')
	if err != nil || !strings.Contains(text, "ask the relay at") || !strings.HasSuffix(text, "; still watching\n") {
		t.Errorf("%q, %v", text, err)
	}
	a.looks(3) // printed once, or the watch would hang in the pipe here
	a.broken.Store(false)
	if err := documents.Decode(&doc); err != nil { // the same document: its former content is stale
		t.Fatal(err)
	}
	w.end()
}

func TestAWatchOfAMissingNameEndsImmediately(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"absent", "--admin-addr", asked.relay}, "nothing matched"},
		{[]string{"--admin-addr", "127.0.0.1:1"}, "is it running"},
	} {
		_, _, err := execute(t, command.ServicesCommand(), append(c.args, "--watch")...)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v", c.args, err)
		}
	}
}

func TestCtrlCEndsAWatchWithExitCodeZero(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		cmd := exec.CommandContext(t.Context(), "relay", "members", "--watch", "-o", "json", "--admin-addr", asked.relay)
		var errs bytes.Buffer
		cmd.Stderr = &errs
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var doc struct{ Self string }
		if err := json.NewDecoder(out).Decode(&doc); err != nil || doc.Self != "r1" {
			t.Errorf("%+v, %v", doc, err)
		}
		if err := cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil || errs.Len() > 0 {
			t.Errorf("%v: %v\n%s", signal, err, errs.String())
		}
	}
}
