package router_test

import (
	"os/exec"
	"strings"
	"testing"
)

// A program that embeds a router has its own way to trace and to listen: what only the relay's
// binary uses would be more to patch there.
func TestAProgramThatRoutesLinksNeitherTracingNorThePROXYProtocol(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	packages := strings.Fields(string(out))
	if len(packages) < 100 {
		t.Fatalf("only %d packages: %s", len(packages), out)
	}
	for _, p := range packages {
		for _, unwanted := range []string{"go.opentelemetry.io/", "github.com/pires/go-proxyproto", "github.com/ringway/ringway/internal/relay/"} {
			if strings.HasPrefix(p, unwanted) {
				t.Errorf("a program that routes links %s", p)
			}
		}
	}
}
