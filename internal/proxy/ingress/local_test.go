package ingress_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"

	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/proxy/ingress"
	"github.com/ringway/ringway/internal/wire"
)

func TestAnAnswerThatAProgramReadsHasNoGoroutine(t *testing.T) {
	h := handlerFor(t, quickEndpoint(t), func(c *ingress.Config) { c.Local = true })
	carry := func(begun func()) {
		w, local := httptest.NewRecorder(), ingress.Local{Service: "echo"}
		answer, ok := h.Begin(w, httptest.NewRequest(http.MethodGet, "/", nil), &local)
		if !ok || w.Code != http.StatusOK {
			t.Fatal(w.Code, local)
		}
		begun()
		if n, err := answer.Read(make([]byte, 1000)); n != 128 || err != io.EOF {
			t.Error(n, err)
		}
		answer.End()
	}
	for range 10 {
		carry(func() {}) // both workers are connected
	}
	procs.Await(t, "no goroutine more than before", func() (same bool) { // timers have some for a moment
		before := runtime.NumGoroutine()
		carry(func() { same = runtime.NumGoroutine() == before })
		return same
	})
}

func TestARefusalOfAProgramIsAValue(t *testing.T) {
	h := handlerFor(t, quickEndpoint(t), func(c *ingress.Config) { c.Local = true })
	w, local := httptest.NewRecorder(), ingress.Local{Service: "billing"}
	if _, begun := h.Begin(w, httptest.NewRequest(http.MethodGet, "/", nil), &local); begun || local.Refused != wire.CodeUnknownService || local.Text == "" || w.Body.Len() > 0 {
		t.Errorf("%v %+v %q", begun, local, w.Body)
	}
}
