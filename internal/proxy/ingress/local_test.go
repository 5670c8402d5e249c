package ingress_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
	"time"

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

func TestAProgramThatWaitsNoLongerBlamesNoWorkerAndIsNotTriedElsewhere(t *testing.T) {
	t.Parallel()
	superseded := errors.New("superseded")
	timeout := func(ctx context.Context, _ <-chan struct{}) (context.Context, context.CancelFunc) {
		return context.WithTimeout(ctx, 2*time.Second) // the answer begins before
	}
	for name, c := range map[string]struct {
		wait  func(ctx context.Context, asked <-chan struct{}) (context.Context, context.CancelFunc)
		begun bool // the answer has begun
	}{
		"its deadline":                      {timeout, false},
		"its deadline, while it reads":      {timeout, true},
		"a cause of its own":                {cancelledBy(superseded), false},
		"a cause of its own, while reading": {cancelledBy(superseded), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked := make(chan struct{}, 5)
			x := try(t, 5, func(_ int64, w http.ResponseWriter, r *http.Request) {
				if c.begun {
					_, _ = io.WriteString(w, "the first part")
					_ = http.NewResponseController(w).Flush()
				}
				asked <- struct{}{}
				<-r.Context().Done()
			}, func(cfg *ingress.Config) { cfg.Local = true })
			ctx, cancel := c.wait(t.Context(), asked)
			defer cancel()
			w, local := httptest.NewRecorder(), ingress.Local{Service: "echo"}
			answer, begun := x.served.Begin(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil), &local)
			if begun != c.begun {
				t.Fatalf("begun: %v, %+v", begun, local)
			}
			if begun {
				for err := error(nil); err == nil; {
					_, err = answer.Read(make([]byte, 100))
				}
				answer.End()
			}
			if picks, failures := x.blamed(); picks != 1 || failures != 0 {
				t.Errorf("%d picks, %d failures", picks, failures)
			}
		})
	}
}

// cancelledBy returns a context that ends with a cause once a worker is asked.
func cancelledBy(cause error) func(context.Context, <-chan struct{}) (context.Context, context.CancelFunc) {
	return func(ctx context.Context, asked <-chan struct{}) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancelCause(ctx)
		go func() {
			select {
			case <-asked:
				cancel(cause)
			case <-ctx.Done():
			}
		}()
		return ctx, func() { cancel(nil) }
	}
}

func TestARequestOfAProgramThatHasLeftIsNotSent(t *testing.T) {
	x := try(t, 1, func(int64, http.ResponseWriter, *http.Request) {}, func(cfg *ingress.Config) { cfg.Local = true })
	begin := func(ctx context.Context) (int, ingress.Local) {
		w, local := httptest.NewRecorder(), ingress.Local{Service: "echo"}
		answer, begun := x.served.Begin(w, httptest.NewRequestWithContext(ctx, http.MethodPost, "/", nil), &local)
		if begun {
			_, _ = answer.Read(nil)
			answer.End()
		}
		return w.Code, local
	}
	if code, local := begin(t.Context()); code != http.StatusOK || x.attempts.Load() != 1 {
		t.Fatal(code, local) // and the connection is kept
	}
	ctx, leave := context.WithCancel(t.Context())
	leave()
	if _, local := begin(ctx); local.Refused != "" || x.attempts.Load() != 1 {
		t.Errorf("%+v, and the worker has got %d requests", local, x.attempts.Load())
	}
}

func TestARefusalOfAProgramIsAValue(t *testing.T) {
	h := handlerFor(t, quickEndpoint(t), func(c *ingress.Config) { c.Local = true })
	w, local := httptest.NewRecorder(), ingress.Local{Service: "billing"}
	if _, begun := h.Begin(w, httptest.NewRequest(http.MethodGet, "/", nil), &local); begun || local.Refused != wire.CodeUnknownService || local.Text == "" || w.Body.Len() > 0 {
		t.Errorf("%v %+v %q", begun, local, w.Body)
	}
}
