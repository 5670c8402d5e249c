package daemon

import (
	"net/http"
	"runtime/pprof"

	"github.com/ringway/ringway/internal/admin"
	"github.com/ringway/ringway/internal/settings"
	"github.com/ringway/ringway/membership"
)

// ConfigAnswer is what GET /api/v1/config answers with.
type ConfigAnswer struct {
	ID string `json:"id"`
	// Settings are those in effect, secrets redacted, in the order of their declaration.
	Settings []settings.Value `json:"settings"`
}

// DeparturesAnswer is what GET /api/v1/departures answers with.
type DeparturesAnswer struct {
	// Degraded: this member may be cut off from the cluster.
	Degraded bool `json:"degraded"`
	// Departed went in the last hour and are not back, sorted by id.
	Departed []membership.Departure `json:"departed"`
}

// APIConfig says what the paths of every daemon answer from.
type APIConfig struct {
	ID string
	// Snapshot is the newest view of the members; it may be nil early on.
	Snapshot func() *membership.Snapshot
	// Running has the settings in effect; nil where the daemon was not started from
	// settings.
	Running *Running
	// Monitor streams the log; nil where there is none.
	Monitor *Monitor
}

// Handle adds the paths of the admin API that relay and worker have in common, on
// top of those of package admin.
func Handle(mux *http.ServeMux, cfg APIConfig) {
	mux.HandleFunc("GET /api/v1/config", func(w http.ResponseWriter, _ *http.Request) {
		if cfg.Running == nil {
			admin.WriteError(w, http.StatusConflict, "this process was not started from settings: there are none to show")
			return
		}
		admin.WriteJSON(w, http.StatusOK, ConfigAnswer{ID: cfg.ID, Settings: cfg.Running.Values()})
	})
	if cfg.Monitor != nil {
		mux.Handle("GET /api/v1/monitor", cfg.Monitor)
	}
	mux.HandleFunc("GET /api/v1/version", func(w http.ResponseWriter, _ *http.Request) {
		admin.WriteJSON(w, http.StatusOK, ReadBuild())
	})
	mux.HandleFunc("GET /api/v1/goroutines", writeGoroutines)
	mux.HandleFunc("GET /api/v1/departures", func(w http.ResponseWriter, _ *http.Request) {
		answer := DeparturesAnswer{Departed: []membership.Departure{}}
		if s := cfg.Snapshot(); s != nil {
			answer.Degraded = s.Degraded()
			answer.Departed = append(answer.Departed, s.Departures()...)
		}
		admin.WriteJSON(w, http.StatusOK, answer)
	})
}

// writeGoroutines writes where every goroutine is: functions and lines, no values. It
// stops the process for as long as it looks, milliseconds with thousands of them.
func writeGoroutines(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_ = pprof.Lookup("goroutine").WriteTo(w, 1) // the client's connection is its own affair
}
