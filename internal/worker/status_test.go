package worker_test

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/fleet"
	"github.com/ringway/ringway/internal/worker"
)

func TestThePageOfAWorkerShowsItsServicesAndTheRelays(t *testing.T) {
	t.Parallel()
	node, _ := observer(t, nil)
	f := fleetOf(node.Addr())
	if err := f.StartWorker(fleet.WorkerConfig{ID: "w1", Change: func(s *worker.Settings) {
		s.Services = []string{"echo=127.0.0.1:9000", "other=127.0.0.1:9001"}
	}}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
	}()
	agent := f.Worker("w1").Agent
	var drained api.WorkerServices
	if status := ask(t, agent, "POST", "/api/v1/drain?service=other", "", &drained); status != 200 {
		t.Fatalf("drain: %d", status)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	page, missing := "", []string(nil)
	for deadline := time.Now().Add(patience); ; {
		answer, err := client.Get("http://" + agent.AdminAddr() + "/")
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close() // read to its end
		page = string(text)
		missing = slices.DeleteFunc([]string{">echo<", ">other<", ">offered<", "draining by an operator", ">r1<", "</span> Ready<"}, func(want string) bool {
			return strings.Contains(page, want)
		})
		if len(missing) == 0 || time.Now().After(deadline) {
			break
		}
	}
	if len(missing) > 0 {
		t.Errorf("the page has no %q:\n%s", missing, page)
	}
}
