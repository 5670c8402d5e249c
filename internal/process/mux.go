package process

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/pprof"
	"os"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/membership"
)

// Config is the data that the common paths serve.
type Config struct {
	// Snapshot returns the newest view of the members; it may return nil soon after the
	// start.
	Snapshot func() *membership.Snapshot
	// Unproven returns the instances that gossip reports and that no snapshot contains;
	// nil: none.
	Unproven func() []membership.Unproven
	// Doubters returns the members whose doubts about others were denied; it may be nil.
	Doubters func() map[string]uint64
	// Catalogue returns the checksum of the newest view of the services; nil: there is no
	// /api/v1/checksum.
	Catalogue func() uint64
	// Reasons lists why this member should get no traffic; empty means ready.
	Reasons func() []Reason
	// Gatherer gathers the metrics for /metrics.
	Gatherer prometheus.Gatherer
	// Brief leaves series out of /metrics that hardly ever change, unless the query has all.
	Brief bool
}

// Reason is why a member should get no traffic.
type Reason struct {
	Code ReasonCode
	Text string
}

// ReasonCode is the kind of a Reason, for the remedy that the status page gives.
type ReasonCode uint8

// The kinds of reasons.
const (
	Stopping         ReasonCode = iota + 1
	Draining                    // an operator drains the relay
	NotJoined                   // the cluster was not found yet
	NotSettled                  // the catalogue may lack records
	NothingReached              // no worker, or no relay to forward to, can be connected to
	Stalled                     // routes are not computed any more
	NoSharedKey                 // session cookies cannot be signed
	NotListening                // the ingress is not open yet
	NoService                   // a worker without a service
	ServiceUnhealthy            // the check of a worker's service has not passed
	ServiceDrained              // an operator drained a worker's service
	NoRelay                     // a worker that no relay, gate or observer can use
	FewRelays                   // fewer relays than --ready-relays have connected to a worker
	LimitReached                // --max-members or --max-services leaves out a part of the fleet
)

func (r Reason) String() string { return r.Text }

// ReasonTexts returns the texts of reasons.
func ReasonTexts(reasons []Reason) []string {
	texts := make([]string, len(reasons))
	for i, r := range reasons {
		texts[i] = r.Text
	}
	return texts
}

// WaitsToJoin returns the reason of a member that has not joined; err is why, or nil.
func WaitsToJoin(err error) Reason {
	if err != nil {
		return Reason{NotJoined, "not joined yet: " + err.Error()}
	}
	return Reason{NotJoined, "not joined yet: the first answer of another member is awaited"}
}

// Limits returns a reason for each limit of this member that leaves out a part of the fleet. A nil
// view has no limit.
func Limits(status membership.Status, view *advertise.View) (reasons []Reason) {
	if status.Full {
		reasons = append(reasons, Reason{LimitReached, "it sees only a part of the members, because --max-members is reached: raise it on all members"})
	}
	if view != nil && slices.ContainsFunc(view.Refused(), func(r advertise.Refusal) bool { return r.Reason == "services" }) {
		reasons = append(reasons, Reason{LimitReached, "it knows only a part of the services, because --max-services is reached: raise it on all relays"})
	}
	return reasons
}

// NewMux serves the common paths. The caller adds its own.
func NewMux(cfg Config) *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		WriteJSON(w, http.StatusOK, api.Health{Status: "ok"})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if reasons := cfg.Reasons(); len(reasons) > 0 {
			WriteJSON(w, http.StatusServiceUnavailable, api.Health{Status: "not_ready", Reasons: ReasonTexts(reasons)})
			return
		}
		WriteJSON(w, http.StatusOK, api.Health{Status: "ready"})
	})
	all := promhttp.HandlerFor(cfg.Gatherer, promhttp.HandlerOpts{})
	usual := all
	if cfg.Brief {
		usual = promhttp.HandlerFor(brief{cfg.Gatherer}, promhttp.HandlerOpts{})
	}
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		s := NewStream(w, ReaderPause)
		defer s.Close()
		if r.URL.Query().Has("all") {
			all.ServeHTTP(s, r)
			return
		}
		usual.ServeHTTP(s, r)
	})
	mux.HandleFunc("GET /api/v1/members", func(w http.ResponseWriter, _ *http.Request) {
		s := cfg.Snapshot()
		if s == nil {
			WriteError(w, http.StatusServiceUnavailable, "gossip is not started yet")
			return
		}
		answer := api.Members{Version: s.Version(), Self: s.Self().ID, Members: s.Members()}
		if cfg.Unproven != nil {
			answer.Unproven = append([]membership.Unproven{}, cfg.Unproven()...)
		}
		if cfg.Doubters != nil {
			answer.Doubters = cfg.Doubters()
		}
		WriteJSON(w, http.StatusOK, answer)
	})
	if cfg.Catalogue != nil {
		mux.HandleFunc("GET /api/v1/checksum", func(w http.ResponseWriter, _ *http.Request) {
			answer := api.Checksum{Services: fmt.Sprintf("%016x", cfg.Catalogue())}
			if s := cfg.Snapshot(); s != nil {
				answer.Members = fmt.Sprintf("%016x", s.Checksum())
			}
			WriteJSON(w, http.StatusOK, answer)
		})
	}
	return mux
}

// WriteJSON answers with v, indented, because people read the answers with curl.
func WriteJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		WriteError(w, http.StatusInternalServerError, fmt.Sprintf("encode answer: %v", err))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	s := NewStream(w, writeTimeout)
	if len(body) > pieceSize { // people page through it
		s.limit = ReaderPause
	}
	defer s.Close()
	s.WriteHeader(status)
	_, _ = s.Write(append(body, '\n')) // an error concerns only the connection of the client
}

// WriteError answers with {"error": text}.
func WriteError(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	body, _ := json.Marshal(api.Error{Error: text}) // a string always encodes
	_, _ = w.Write(append(body, '\n'))
}

// HandlePprof adds the profiles of the Go runtime. They reveal internals of the process and
// cost CPU time, so call HandlePprof only if the operator enabled them.
func HandlePprof(mux *http.ServeMux) {
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
}

// cmdline answers with the program name only, unlike pprof.Cmdline, because the arguments
// may be secrets. /api/v1/config has the settings without secrets.
func cmdline(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, os.Args[0]) // an error concerns only the connection of the client
}
