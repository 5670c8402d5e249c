package workercmd_test

import (
	"os/exec"
	"strings"
	"testing"
)

// The agent runs next to every instance of a service: what only a relay needs would cost
// memory and disk there, and each module more would be one more to patch.
func TestTheWorkerLinksNothingOfARelay(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "github.com/ringway/ringway/cmd/worker").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	packages := strings.Fields(string(out))
	if len(packages) < 100 {
		t.Fatalf("only %d packages: %s", len(packages), out)
	}
	for _, unwanted := range []string{
		"go.opentelemetry.io/", "github.com/sony/gobreaker", "google.golang.org/grpc",
		"github.com/ringway/ringway/internal/relay", "github.com/ringway/ringway/internal/demo",
		"github.com/ringway/ringway/internal/proxy/ingress", "github.com/ringway/ringway/internal/circuit", "github.com/ringway/ringway/internal/relaypool",
		"github.com/ringway/ringway/internal/sharedkey",
	} {
		for _, p := range packages {
			if strings.HasPrefix(p, unwanted) {
				t.Errorf("the worker links %s", p)
			}
		}
	}
}
