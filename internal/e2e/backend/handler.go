package main

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coder/websocket"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

const (
	// maxBody and maxMessage limit the echoed bytes, maxDelay the requested delay.
	maxBody    = 64 << 20
	maxMessage = 1 << 20
	maxDelay   = 10 * time.Second
)

type handler struct {
	name    string
	journal journal
	gates   gates
	slots   *slots
	mux     *http.ServeMux
	rpc     *grpc.Server
	health  *health.Server
}

func newHandler(name string, slots int) *handler {
	h := &handler{name: name, slots: newSlots(slots), mux: http.NewServeMux(), rpc: grpc.NewServer(), health: health.NewServer()}
	healthpb.RegisterHealthServer(h.rpc, h.health)
	h.mux.HandleFunc("/", h.answer)
	h.mux.HandleFunc("/cached", h.cached)
	h.mux.HandleFunc("/echo", h.echo)
	h.mux.HandleFunc("/fields", h.fields)
	h.mux.HandleFunc("/delay", h.delay)
	h.mux.HandleFunc("/work", h.work)
	h.mux.HandleFunc("/slow", h.slow)
	h.mux.HandleFunc("/hold", h.hold)
	h.mux.HandleFunc("/release", h.release)
	h.mux.HandleFunc("/events", h.events)
	h.mux.HandleFunc("/websocket", h.websocket)
	h.mux.HandleFunc("/health", h.setHealth)
	return h
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if id := r.Header.Get("X-Request-Id"); id != "" {
		if err := h.journal.note(r.Method, id); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Seen-Request", r.Method+" "+id)
	}
	if r.ProtoMajor == 2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
		h.rpc.ServeHTTP(w, r)
		return
	}
	w.Header().Set("Worker", h.name)
	h.mux.ServeHTTP(w, r)
}

// An error of writing an answer concerns only the connection of the client, so these errors
// are dropped here and below.
func (h *handler) answer(w http.ResponseWriter, r *http.Request) {
	// The X-Forwarded-For header that arrived, for assertions of a test.
	w.Header().Set("Seen-Forwarded-For", r.Header.Get("X-Forwarded-For"))
	var ours []string
	for name := range maps.Keys(r.Header) {
		if strings.HasPrefix(name, "Ringway-") {
			ours = append(ours, name)
		}
	}
	slices.Sort(ours)
	w.Header().Set("Seen-Reserved", strings.Join(ours, ","))
	_, _ = io.WriteString(w, h.name)
}

func (h *handler) cached(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "must-revalidate")
	w.Header().Set("Expires", time.Now().Add(time.Hour).UTC().Format(http.TimeFormat))
	h.answer(w, r)
}

func (h *handler) echo(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Seen-Transfer-Encoding", strings.Join(r.TransferEncoding, ","))
	w.Header().Set("Content-Type", "application/octet-stream")
	if len(r.Trailer) == 0 {
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	}
	_, _ = w.Write(body)
	if len(r.Trailer) > 0 { // otherwise net/http declares a length and drops the trailers
		_ = http.NewResponseController(w).Flush()
	}
	for name, values := range r.Trailer {
		for _, value := range values {
			w.Header().Add(http.TrailerPrefix+name, value)
		}
	}
}

// fields answers with the fields of the request.
func (h *handler) fields(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain")
	_ = r.Header.Write(w)
}

func (h *handler) delay(w http.ResponseWriter, r *http.Request) {
	if d, ok := serviceTime(w, r); ok {
		w.Header().Set("Began-At", strconv.FormatInt(time.Now().UnixMicro(), 10))
		time.Sleep(d)
		w.Header().Set("Completed-At", strconv.FormatInt(time.Now().UnixMicro(), 10))
		h.answer(w, r)
	}
}

// work does not notice that a client has disconnected: its request still takes its turn, as
// in most services.
func (h *handler) work(w http.ResponseWriter, r *http.Request) {
	if d, ok := serviceTime(w, r); ok {
		done := h.slots.take(time.Now(), d)
		time.Sleep(time.Until(done))
		w.Header().Set("Completed-At", strconv.FormatInt(done.UnixMicro(), 10))
		h.answer(w, r)
	}
}

func (h *handler) slow(w http.ResponseWriter, r *http.Request) {
	by, err := strconv.ParseFloat(r.FormValue("by"), 64)
	if err != nil || by <= 0 {
		http.Error(w, "by: a factor", http.StatusBadRequest)
		return
	}
	h.slots.setSlow(by)
	h.answer(w, r)
}

// serviceTime returns the service time that r asks for.
func serviceTime(w http.ResponseWriter, r *http.Request) (d time.Duration, ok bool) {
	ms, err := strconv.Atoi(r.FormValue("ms"))
	if d = time.Duration(ms) * time.Millisecond; err != nil || d < 0 || d > maxDelay {
		http.Error(w, fmt.Sprintf("ms: 0 to %d", maxDelay.Milliseconds()), http.StatusBadRequest)
		return 0, false
	}
	return d, true
}

func (h *handler) hold(w http.ResponseWriter, r *http.Request) {
	if !h.gates.wait(r.Context(), r.URL.Query().Get("key")) {
		http.Error(w, "this request was not released", http.StatusGatewayTimeout)
		return
	}
	h.answer(w, r)
}

func (h *handler) release(w http.ResponseWriter, r *http.Request) {
	h.gates.open(r.URL.Query().Get("key"))
	h.answer(w, r)
}

func (h *handler) events(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.WriteString(w, "data: first\n\n")
	_ = http.NewResponseController(w).Flush()
	if h.gates.wait(r.Context(), r.URL.Query().Get("key")) {
		_, _ = io.WriteString(w, "data: last\n\n")
	}
}

func (h *handler) websocket(w http.ResponseWriter, r *http.Request) {
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		return // Accept has answered already
	}
	defer func() { _ = conn.CloseNow() }()
	conn.SetReadLimit(maxMessage)
	for {
		kind, message, err := conn.Read(r.Context())
		if err != nil || conn.Write(r.Context(), kind, message) != nil {
			return
		}
	}
}

func (h *handler) setHealth(w http.ResponseWriter, r *http.Request) {
	h.health.SetServingStatus(r.FormValue("service"), healthpb.HealthCheckResponse_SERVING)
	h.answer(w, r)
}
