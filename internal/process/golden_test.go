package process_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ringway/ringway/internal/process"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

// Scripts read these answers: a field that was there stays, by its name and place. An
// intended change is written with UPDATE_GOLDEN=1.
func TestTheCommonAnswersKeepTheirFields(t *testing.T) {
	cfg := config()
	snapshot := membership.NewSnapshot(7, "r1", []membership.Member{
		{ID: "r1", Epoch: 1, Role: identity.RoleRelay, Cluster: "shop", Environment: "prod", Datacenter: "dc1", Region: "eu",
			GossipAddr: "10.0.0.1:7400", ForwardAddr: "10.0.0.1:7420", AdminAddr: "127.0.0.1:7430", Version: "v1.2.3"},
		{ID: "w1", Epoch: 2, Role: identity.RoleWorker, Cluster: "shop", Environment: "prod", GossipAddr: "10.0.0.2:7401", Leaving: true},
	})
	cfg.Snapshot = func() *membership.Snapshot { return snapshot }
	cfg.Unproven = func() []membership.Unproven { return nil }
	cfg.Doubters = func() map[string]uint64 { return map[string]uint64{"w2": 12} }
	cfg.Reasons = func() []process.Reason { return []process.Reason{{Text: "draining"}, {Text: "not joined"}} }
	for _, path := range []string{"/api/v1/members", "/api/v1/checksum", "/readyz", "/healthz"} {
		got := get(cfg, "GET", path).Body.String()
		path = filepath.Base(path)
		file := filepath.Join("testdata", path+".json")
		if os.Getenv("UPDATE_GOLDEN") != "" {
			write(t, file, got)
		}
		want, err := os.ReadFile(file)
		if err != nil || string(want) != got {
			t.Errorf("%s: %v, the answer is now\n%s", file, err, strings.TrimSpace(got))
		}
	}
}
