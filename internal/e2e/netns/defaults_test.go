//go:build linux

package netns

import (
	"io"
	"net/http"
	"testing"

	"github.com/ringway/ringway/internal/procs"
)

// TestARelayAndAWorkerOnOneHostNeedNoSettings starts both at their default ports, which are free
// in the namespace of the tests.
func TestARelayAndAWorkerOnOneHostNeedNoSettings(t *testing.T) {
	if !enabled {
		t.Skip("needs network namespaces: make test-netns")
	}
	t.Parallel()
	procs.Start(t, procs.Config{Name: "backend", Binary: "backend", Dir: binaries, Args: []string{"-addr", "127.0.0.1:9001", "-name", "one", "-journal", t.TempDir() + "/journal"}})
	procs.Start(t, procs.Config{Name: "relay", Binary: "relay", Dir: binaries, Args: []string{"run"}})
	procs.Start(t, procs.Config{Name: "worker", Binary: "worker", Dir: binaries, Args: []string{"run", "--service", "hello=:9001"}})
	client := &http.Client{Timeout: procs.Patience, Transport: &http.Transport{DisableKeepAlives: true}}
	last := ""
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(last)
		}
	})
	procs.Await(t, "the service answers through the relay", func() bool {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:7410/", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Ringway-Service", "hello")
		resp, err := client.Do(req)
		if err != nil {
			last = err.Error()
			return false
		}
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		last = resp.Status + " " + string(body)
		return err == nil && resp.StatusCode == http.StatusOK
	})
}
