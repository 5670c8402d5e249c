package main

import (
	"context"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/loadgen"
	"github.com/ringway/ringway/internal/procs"
)

func TestEveryRequestIsAnsweredWithTheName(t *testing.T) {
	for _, delay := range []time.Duration{0, time.Millisecond} {
		w := httptest.NewRecorder()
		echo("echo-1", delay).ServeHTTP(w, httptest.NewRequest("GET", "/any/path", nil))
		if w.Code != 200 || w.Body.String() != "echo-1\n" {
			t.Errorf("%v: %d %q", delay, w.Code, w.Body)
		}
	}
}

func TestAServiceTimeEndsWithItsClient(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w := httptest.NewRecorder()
	echo("echo-1", time.Hour).ServeHTTP(w, httptest.NewRequest("GET", "/", nil).WithContext(ctx))
	if w.Body.Len() > 0 {
		t.Errorf("answered %q", w.Body)
	}
}

func TestServingEndsInOrderAndAPortThatIsTakenIsAnError(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := loadgen.Run(ctx, "127.0.0.1:0", echo("echo-1", 0)); err != nil {
		t.Error(err)
	}
	taken := procs.Listen(t)
	if err := loadgen.Run(t.Context(), taken.Addr().String(), echo("echo-1", 0)); err == nil {
		t.Error("two servers on one port")
	}
}
