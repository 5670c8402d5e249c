package process_test

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ringway/ringway/internal/process"
)

func TestReadyIsOneWhileThereIsNoReasonAgainstIt(t *testing.T) {
	reg := prometheus.NewRegistry()
	var reasons []process.Reason
	process.RegisterReady(reg, func() []process.Reason { return reasons })
	for _, c := range []struct {
		reasons []process.Reason
		want    string
	}{{nil, "1"}, {[]process.Reason{{Code: process.Stopping, Text: "stopping"}}, "0"}, {[]process.Reason{{Code: process.Stopping, Text: "stopping"}, process.WaitsToJoin(nil)}, "0"}, {nil, "1"}} {
		reasons = c.reasons
		want := "# HELP ringway_ready 1 while this process should get traffic, as /readyz reports; 0 while it should not.\n# TYPE ringway_ready gauge\nringway_ready " + c.want + "\n"
		if err := testutil.GatherAndCompare(reg, strings.NewReader(want)); err != nil {
			t.Errorf("%v: %v", c.reasons, err)
		}
	}
}

func TestBuildInfoIsOneWithTheVersion(t *testing.T) {
	b := process.ReadBuild()
	want := `# HELP ringway_build_info 1, with the version of the running build in its labels.
# TYPE ringway_build_info gauge
ringway_build_info{go_version="` + b.Go + `",revision="` + b.Revision + `",version="` + b.Version + `"} 1
`
	if err := testutil.CollectAndCompare(process.BuildInfo(), strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
