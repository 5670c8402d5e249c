package admin

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/ringway/ringway/membership"
)

// Config says what the common paths answer from.
type Config struct {
	// Snapshot is the newest view of the members; it may be nil early on.
	Snapshot func() *membership.Snapshot
	// Unproven are the instances that gossip tells of and no snapshot shows; nil: none.
	Unproven func() []membership.Unproven
	// Catalogue is the checksum of the newest view of the services.
	Catalogue func() uint64
	// Reasons lists why this member should get no traffic; none means ready.
	Reasons func() []string
	// Gatherer has the metrics.
	Gatherer prometheus.Gatherer
}

// NewMux serves the common paths. The caller adds its own.
func NewMux(cfg Config) *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		WriteJSON(w, http.StatusOK, map[string]string{"status": "ok"})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if reasons := cfg.Reasons(); len(reasons) > 0 {
			WriteJSON(w, http.StatusServiceUnavailable, map[string]any{"status": "not_ready", "reasons": reasons})
			return
		}
		WriteJSON(w, http.StatusOK, map[string]string{"status": "ready"})
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(cfg.Gatherer, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /api/v1/members", func(w http.ResponseWriter, _ *http.Request) {
		s := cfg.Snapshot()
		if s == nil {
			WriteError(w, http.StatusServiceUnavailable, "gossip is not started yet")
			return
		}
		answer := map[string]any{"version": s.Version(), "self": s.Self().ID, "members": s.Members()}
		if cfg.Unproven != nil {
			answer["unproven"] = append([]membership.Unproven{}, cfg.Unproven()...)
		}
		WriteJSON(w, http.StatusOK, answer)
	})
	mux.HandleFunc("GET /api/v1/checksum", func(w http.ResponseWriter, _ *http.Request) {
		var members string
		if s := cfg.Snapshot(); s != nil {
			members = fmt.Sprintf("%016x", s.Checksum())
		}
		WriteJSON(w, http.StatusOK, map[string]string{"members": members, "services": fmt.Sprintf("%016x", cfg.Catalogue())})
	})
	return mux
}

// WriteJSON answers with v, indented: people read these with curl.
func WriteJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		WriteError(w, http.StatusInternalServerError, fmt.Sprintf("encode answer: %v", err))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // the client's connection is its own affair
}

// WriteError answers with {"error": text}.
func WriteError(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	body, _ := json.Marshal(map[string]string{"error": text}) // a map of strings always encodes
	_, _ = w.Write(append(body, '\n'))
}
