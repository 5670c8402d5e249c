package worker_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/ringway/ringway/internal/fleet"
	"github.com/ringway/ringway/internal/worker"
)

// An agent that still looks for its cluster is the hard case: it must not wait
// until it has found it.
func TestAKilledAgentEndsEvenBeforeItHasJoined(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreAnyFunction("github.com/hashicorp/memberlist.(*Memberlist).probeNode")) // ends by itself
	f := fleetOf("127.0.0.1:1")                                                                                     // nothing listens there
	if err := f.StartWorker(fleet.WorkerConfig{ID: "w1", Change: func(s *worker.Settings) { s.Services = []string{"demo=127.0.0.1:2"} }}); err != nil {
		t.Fatal(err)
	}
	f.Worker("w1").Kill()
	if err := f.Kill("w1"); err != nil { // a second time
		t.Error(err)
	}
}
