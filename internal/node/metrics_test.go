package node_test

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ringway/ringway/internal/node"
)

func TestReadyIsOneWhileThereIsNoReasonAgainstIt(t *testing.T) {
	reg := prometheus.NewRegistry()
	var reasons []node.Reason
	node.RegisterReady(reg, func() []node.Reason { return reasons })
	for _, c := range []struct {
		reasons []node.Reason
		want    string
	}{{nil, "1"}, {[]node.Reason{{Code: node.Stopping, Text: "stopping"}}, "0"}, {[]node.Reason{{Code: node.Stopping, Text: "stopping"}, node.WaitsToJoin(nil)}, "0"}, {nil, "1"}} {
		reasons = c.reasons
		want := "# HELP ringway_ready 1 while this process should get traffic, as /readyz reports; 0 while it should not.\n# TYPE ringway_ready gauge\nringway_ready " + c.want + "\n"
		if err := testutil.GatherAndCompare(reg, strings.NewReader(want)); err != nil {
			t.Errorf("%v: %v", c.reasons, err)
		}
	}
}

func TestBuildInfoIsOneWithTheVersion(t *testing.T) {
	b := node.ReadBuild()
	want := `# HELP ringway_build_info 1, with the version of the running build in its labels.
# TYPE ringway_build_info gauge
ringway_build_info{go_version="` + b.Go + `",revision="` + b.Revision + `",version="` + b.Version + `"} 1
`
	if err := testutil.CollectAndCompare(node.BuildInfo(), strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
