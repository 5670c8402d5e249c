//go:build unix

package e2e

import (
	"fmt"
	"os/exec"
	"syscall"
	"testing"

	"github.com/ringway/ringway/internal/procs"
)

// testdata/worker.py knows the protocol from docs/reference/session-protocol.md, and nothing else.
func TestAWorkerInPythonsStandardLibraryTakesPart(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("needs python3")
	}
	f := startFleet(t, fleetConfig{Relays: 5})
	for _, r := range f.relays {
		procs.Await(t, r.ID+" sees the relays", func() bool { return len(f.IDs(r.Member)) == 5 })
	}
	w := start(t, processConfig{Name: "python", Under: []string{python}, Dir: "testdata", Binary: "worker.py", Args: []string{f.relays[0].Peer, cluster, environment, "p1", "snake"}})
	procs.Await(t, "it has three sessions", func() bool { return f.listing(t) == 3 && f.sees("p1", true) })
	for _, r := range f.relays {
		procs.Await(t, "it answers through "+r.ID, func() bool { return f.call(r, "snake").body == "python" })
	}

	// Of the relays one dies; a spare takes its place, and no relay loses the worker.
	for _, r := range f.relays {
		if f.metric(t, r, "ringway_session_held") == 1 {
			r.Kill()
			break
		}
	}
	procs.Await(t, "it has three sessions again", func() bool { return f.listing(t) == 3 })

	l := f.startLoad(t, loadConfig{Name: "python", Service: "snake", GETs: true, Relay: func(n int) *relay { running := f.running(); return running[n%len(running)] }})
	l.more(t, 50)
	noneFailed(t, l.stop())
	w.Signal(t, syscall.SIGTERM)
	if code := w.Exit(t); code != 0 {
		t.Errorf("it exited with %d: %s", code, w.Output())
	}
	procs.Await(t, "it is gone", func() bool { return f.sees("p1", false) })
	for _, r := range f.running() {
		if memberFailed(r, "p1") {
			t.Errorf("%s says that it failed, and it left: %s", r.ID, fmt.Sprint(f.IDs(r.Member)))
		}
	}
}
