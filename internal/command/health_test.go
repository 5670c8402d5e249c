package command_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ringway/ringway/internal/command"
	"github.com/ringway/ringway/internal/process"
)

// admin answers as a process that lives and is not ready.
func admin(t *testing.T) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"status": "ok"}`) })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprint(w, `{"status": "not_ready", "reasons": ["not joined yet", "no key"]}`)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

func TestHealthDistinguishesALivingProcessFromAReadyOne(t *testing.T) {
	addr := admin(t)
	c := command.HealthCommand("relay", process.RelayAdminPort)
	if out, _, err := execute(t, c, "--admin-addr", addr); err != nil || out != "ok\n" {
		t.Errorf("alive: %q, %v", out, err)
	}
	out, _, err := execute(t, command.HealthCommand("relay", process.RelayAdminPort), "--ready", "--admin-addr", addr)
	if err == nil || err.Error() != "not_ready: not joined yet; no key" || out != "" {
		t.Errorf("not ready: %q, %v", out, err)
	}
}

func TestHealthAsksARealWorker(t *testing.T) {
	addr, _ := startWorker(t)
	if out, _, err := execute(t, command.HealthCommand("worker", process.WorkerAdminPort), "--admin-addr", addr); err != nil || out != "ok\n" {
		t.Errorf("%q, %v", out, err)
	}
}

func TestHealthReachesAProcessThatListensOnEveryInterface(t *testing.T) {
	_, port, err := net.SplitHostPort(admin(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"", "0.0.0.0", "[::]"} {
		t.Setenv("RINGWAY_ADMIN_ADDR", host+":"+port)
		if out, _, err := execute(t, command.HealthCommand("relay", process.RelayAdminPort)); err != nil || out != "ok\n" {
			t.Errorf("%q: %q, %v", host, out, err)
		}
	}
}

func TestHealthFailsWhereNothingAnswersAsAnAdminAPI(t *testing.T) {
	stranger := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }))
	defer stranger.Close()
	for want, addr := range map[string]string{
		"nothing that an admin API answers": stranger.Listener.Addr().String(),
		"is it running":                     "127.0.0.1:1",
	} {
		if _, _, err := execute(t, command.HealthCommand("relay", process.RelayAdminPort), "--admin-addr", addr); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
