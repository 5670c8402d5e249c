package command

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/procs"
)

// monitor, tap and rebalance read answers without an end, so only the head has a time.
func TestACommandDoesNotWaitWithoutEndForAProcessThatHangs(t *testing.T) {
	l := procs.Listen(t) // its kernel accepts, and nothing answers
	call := &adminCall{process: "relay", at: l.Addr().String(), adminAccess: adminAccess{patience: 50 * time.Millisecond}}
	resp, err := call.open(t.Context(), http.MethodGet, "log")
	if err == nil || !strings.Contains(err.Error(), "is it running") {
		t.Errorf("%v, %v", resp, err)
	}
}
