package containers

import (
	"net/http"
	"strings"
	"testing"
)

// The fleet starts once. The failures come one after the other, because each begins and
// ends with a whole fleet.
func TestTheFleet(t *testing.T) {
	f := startFleet(t)
	t.Run("answers requests through every relay and the gate", f.everyEntryAnswers)
	for _, lost := range []string{"relay-2", "gate-1", "worker-4", "echo-6"} {
		t.Run("loses no request when "+lost+" is killed, and has it back afterwards", func(t *testing.T) { f.on(t).survivesKill(lost) })
	}
	t.Run("loses no request when relay-1 is cut off, and has it back afterwards", func(t *testing.T) { f.on(t).survivesCut("relay-1") })
}

// on returns the fleet with failures reported to t.
func (f *fleet) on(t *testing.T) *fleet {
	other := *f
	other.t = t
	return &other
}

func (f *fleet) everyEntryAnswers(t *testing.T) {
	for _, e := range f.entries {
		status, body, err := f.get("http://"+e.ingress+"/", service)
		if err != nil || status != http.StatusOK || !strings.HasPrefix(string(body), service+"-") {
			t.Errorf("%s: %d %s %v", e.name, status, body, err)
		}
	}
	// The images have no shell: an operator runs the binary itself.
	if out := must(t, "docker", "exec", f.container("relay-1"), "/relay", "plan", service); !strings.Contains(out, "each connected to 9 workers") {
		t.Errorf("relay plan: %s", out)
	}
	for name, binary := range map[string]string{"relay-1": "/relay", "gate-1": "/relay", "worker-1": "/worker"} {
		if out := must(t, "docker", "exec", f.container(name), binary, "health", "--ready"); out != "ready" {
			t.Errorf("health of %s: %q", name, out)
		}
	}
}

// survivesKill kills one container with requests in flight. Requests through the other
// entries must not fail.
func (f *fleet) survivesKill(lost string) {
	t, others := f.t, f.except(lost)
	id := f.container(lost)
	load := f.startLoad(t, others)
	load.more(t, 50)

	must(t, "docker", "kill", "--signal", "KILL", id)
	load.more(t, 50) // before the others notice
	for _, e := range others {
		if backend, ok := strings.CutPrefix(lost, service+"-"); ok {
			// The worker runs on and withdraws the service that it checks.
			await(t, e.name+" knows that the service is gone", func() bool { there, known := f.offered(e, "worker-"+backend); return known && !there })
		} else {
			await(t, e.name+" knows that it is gone", func() bool { there, n := f.sees(e, lost); return n > 0 && !there })
		}
	}
	load.more(t, 50)

	must(t, "docker", "start", id)
	f.awaitWhole()
	load.more(t, 50)
	load.noneFailed(t)
	f.everyEntryAnswers(t)
}

// survivesCut disconnects a relay from the network: packets vanish, no connection closes.
func (f *fleet) survivesCut(lost string) {
	t, others := f.t, f.except(lost)
	id := f.container(lost)
	load := f.startLoad(t, others)
	load.more(t, 50)

	must(t, "docker", "network", "disconnect", project+"_"+network, id)
	for _, e := range others {
		await(t, e.name+" knows that it is gone", func() bool { there, n := f.sees(e, lost); return n > 0 && !there })
	}
	load.more(t, 50)
	if out := must(t, "docker", "exec", id, "/relay", "health"); out != "ok" {
		t.Errorf("what is cut off must live, or it would be restarted: %q", out)
	}
	await(t, lost+" understands that it may be cut off itself, and keeps its peers", func() bool {
		logs, err := command("docker", "logs", id)
		return err == nil && strings.Contains(logs, "this node may be cut off and keeps its peers")
	})

	must(t, "docker", "network", "connect", "--ip", f.prefix+".11", "--alias", lost, "--alias", "relays", project+"_"+network, id)
	f.awaitWhole()
	load.more(t, 50)
	load.noneFailed(t)
	f.everyEntryAnswers(t)
}
