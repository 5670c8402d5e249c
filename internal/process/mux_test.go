package process_test

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/process"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

func config() process.Config {
	snapshot := membership.NewSnapshot(7, "r1", []membership.Member{{ID: "w1", Epoch: 2, Role: identity.RoleWorker}, {ID: "r1", Epoch: 1, Role: identity.RoleRelay}})
	return process.Config{
		Snapshot:  func() *membership.Snapshot { return snapshot },
		Catalogue: func() uint64 { return 0xabc },
		Reasons:   func() []process.Reason { return nil },
		Gatherer:  prometheus.NewRegistry(),
	}
}

func get(cfg process.Config, method, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	process.NewMux(cfg).ServeHTTP(w, httptest.NewRequest(method, path, nil))
	return w
}

// Probes and operators read what a member answers.
func ExampleNewMux() {
	cfg := config()
	fmt.Print(get(cfg, "GET", "/readyz").Body)
	cfg.Reasons = func() []process.Reason { return []process.Reason{process.WaitsToJoin(nil)} }
	w := get(cfg, "GET", "/readyz")
	fmt.Print(w.Code, " ", w.Body)
	// Output:
	// {
	//   "status": "ready"
	// }
	// 503 {
	//   "reasons": [
	//     "not joined yet: the first answer of another member is awaited"
	//   ],
	//   "status": "not_ready"
	// }
}

func TestMembersAreListedByIDWithTheSelf(t *testing.T) {
	var got struct {
		Version uint64
		Self    string
		Members []membership.Member
	}
	w := get(config(), "GET", "/api/v1/members")
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if got.Version != 7 || got.Self != "r1" || len(got.Members) != 2 || got.Members[0].ID != "r1" {
		t.Errorf("%+v", got)
	}
}

func TestTheChecksumCoversMembersAndServices(t *testing.T) {
	w := get(config(), "GET", "/api/v1/checksum")
	if !strings.Contains(w.Body.String(), `"services": "0000000000000abc"`) || strings.Contains(w.Body.String(), `"members": ""`) {
		t.Errorf("%s", w.Body)
	}
}

func TestBeforeGossipStartsTheAnswerReportsIt(t *testing.T) {
	cfg := config()
	cfg.Snapshot = func() *membership.Snapshot { return nil }
	if w := get(cfg, "GET", "/api/v1/members"); w.Code != 503 || !strings.Contains(w.Body.String(), "not started") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := get(cfg, "GET", "/healthz"); w.Code != 200 {
		t.Errorf("healthz %d: the process runs", w.Code)
	}
}

func TestNothingHereIsChangedByAPost(t *testing.T) {
	for _, path := range []string{"/healthz", "/readyz", "/metrics", "/api/v1/members", "/api/v1/checksum"} {
		if w := get(config(), "POST", path); w.Code != 405 {
			t.Errorf("POST %s: %d", path, w.Code)
		}
	}
}
