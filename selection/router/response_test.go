package router_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/fleet"
	"github.com/ringway/ringway/internal/worker"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
	"github.com/ringway/ringway/selection/router"
)

// late is a body of which nothing comes.
type late struct {
	once  sync.Once
	asked chan struct{} // closed when it is read
	never chan struct{}
}

func (l *late) Read([]byte) (int, error) {
	l.once.Do(func() { close(l.asked) })
	<-l.never
	return 0, io.EOF
}

// The service has one slot: each request ends before the next one begins.
func TestAResponseEndsWithItsBodyAndWhenItsProgramLeaves(t *testing.T) {
	t.Parallel()
	left := make(chan struct{}, 1)
	c := startCluster(t, fleet.Config{Insecure: true})
	c.relay("relay-1", nil)
	if err := c.StartWorker(fleet.WorkerConfig{ID: "echo-0", Services: []string{"echo"}, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/":
			w.WriteHeader(http.StatusNoContent)
		case "/empty":
			w.Header().Set("Content-Length", "0")
		case "/short":
			_, _ = io.WriteString(w, "hello")
		case "/endless":
			_, _ = io.WriteString(w, "x")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			left <- struct{}{}
		}
	}), Change: func(s *worker.Settings) { s.Services[0] += ";slots=1;retry=never" }}); err != nil {
		t.Fatal(err)
	}
	r := c.router("observer", func(m *membership.Config, _ *router.Config) { m.Role, m.ForwardAddr = identity.RoleObserver, "" })
	c.knows(r, "echo")
	begin := func(t *testing.T, method, path string) *http.Response {
		t.Helper()
		req, _ := http.NewRequestWithContext(t.Context(), method, "http://echo"+path, nil)
		resp, err := r.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	for range 3 {
		begin(t, http.MethodGet, "/") // neither read nor closed, because they have no body
		begin(t, http.MethodGet, "/empty")
		begin(t, http.MethodHead, "/short")
		resp := begin(t, http.MethodGet, "/short")
		if _, writes := resp.Body.(io.Writer); writes {
			t.Error("the body takes bytes")
		}
		if _, err := io.ReadFull(resp.Body, make([]byte, 5)); err != nil { // and not until io.EOF
			t.Fatal(err)
		}
	}
	t.Run("closed while it is read", func(t *testing.T) {
		resp := begin(t, http.MethodGet, "/endless")
		if _, err := resp.Body.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		failed := make(chan error, 1)
		go func() {
			_, err := resp.Body.Read(make([]byte, 1))
			failed <- err
		}()
		_ = resp.Body.Close()
		if err := <-failed; err == nil || err == io.EOF {
			t.Errorf("a read that was ended: %v", err)
		}
		if _, err := resp.Body.Read(make([]byte, 1)); err == nil || err == io.EOF {
			t.Errorf("a read after the end: %v", err)
		}
		if err := resp.Body.Close(); err != nil {
			t.Error(err)
		}
		select {
		case <-left:
		case <-time.After(waitTime):
			t.Error("the service still answers")
		}
	})
	t.Run("left while the body of the request does not come", func(t *testing.T) {
		ctx, leave := context.WithCancel(t.Context())
		body := &late{asked: make(chan struct{}), never: make(chan struct{})}
		defer close(body.never)
		req, _ := http.NewRequestWithContext(ctx, http.MethodPost, "http://echo/", body)
		req.ContentLength = 10
		failed := make(chan error, 1)
		go func() {
			_, err := r.RoundTrip(req)
			failed <- err
		}()
		<-body.asked
		leave()
		select {
		case err := <-failed:
			if !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		case <-time.After(waitTime):
			t.Error("the request has not ended")
		}
	})
}
