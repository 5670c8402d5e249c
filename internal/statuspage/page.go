package statuspage

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/metric"
	"github.com/ringway/ringway/internal/process"
)

// Config defines the content and the cost limits of a page.
type Config struct {
	// Document describes the process now, with the named service in detail; for the empty
	// name it chooses a service. If the service does not exist, Focus is nil. Document is
	// called concurrently. Required.
	Document func(ctx context.Context, service string) Document
	// Interval is the minimum time between two events to one listener. Default 500 ms:
	// changes are visible soon, and numbers can still be read.
	Interval time.Duration
	// Heartbeat is the maximum time between two events. Default 15 s: a listener that
	// receives nothing for three heartbeats opens a new connection.
	Heartbeat time.Duration
	// Listeners is the maximum number of concurrent listeners. Default 16: more than the
	// people who watch one relay.
	Listeners int
	// Rows is how many rows of a table are shown unless the reader asks for all. Default
	// 200.
	Rows int
	// Registerer registers the metrics. Required.
	Registerer prometheus.Registerer
}

const (
	defaultInterval  = 500 * time.Millisecond
	defaultHeartbeat = 15 * time.Second
	defaultListeners = 16
	defaultRows      = 200
	// writeTimeout limits the write to a listener that does not read, of 64 KiB each. So an event
	// of any size passes a link of 50 kbit/s.
	writeTimeout = 10 * time.Second
	// restFactor limits the CPU time: what was drawn is used for restFactor times the time of
	// drawing, so a page costs a fifth of a core at most, whatever the size of the fleet and
	// the number of its listeners.
	restFactor = 4
)

// policy allows the page to load from this process only, and to run no inline script.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

type handler struct {
	cfg       Config
	drawings  shared
	listeners atomic.Int64
	listening prometheus.Gauge
	refused   *prometheus.CounterVec
}

// refusedFull is why a listener is refused. [process.Access] refuses those of other sites.
const refusedFull = "too_many"

// Handle adds the page to a mux: GET /, /events and /assets/. It starts no goroutine. It
// panics if the metrics are registered already, like promauto.
func Handle(mux *http.ServeMux, cfg Config) {
	if cfg.Interval == 0 {
		cfg.Interval = defaultInterval
	}
	if cfg.Heartbeat == 0 {
		cfg.Heartbeat = defaultHeartbeat
	}
	if cfg.Listeners == 0 {
		cfg.Listeners = defaultListeners
	}
	if cfg.Rows == 0 {
		cfg.Rows = defaultRows
	}
	f := metric.With(cfg.Registerer)
	h := &handler{
		cfg:       cfg,
		drawings:  shared{drawings: map[query]*drawings{}},
		listening: f.Gauge("ringway_status_page_listeners", "Browsers that the status page is kept up to date for."),
		refused:   f.CounterVec("ringway_status_page_refused_total", "Listeners of the status page refused, by reason: too_many.", "reason"),
	}
	metric.StartAtZero(h.refused, refusedFull)
	mux.HandleFunc("GET /{$}", h.page)
	mux.HandleFunc("GET /events", h.events)
	for _, name := range assetNames() {
		mux.HandleFunc("GET /assets/"+name, asset(name))
	}
}

func secure(header http.Header) {
	header.Set("Content-Security-Policy", policy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
}

func asset(name string) http.HandlerFunc {
	text, err := assets.ReadFile("assets/" + name)
	if err != nil {
		panic(err) // the compiler has embedded the file
	}
	return func(w http.ResponseWriter, req *http.Request) {
		secure(w.Header())
		w.Header().Set("Content-Type", assetTypes[name])
		w.Header().Set("Cache-Control", "no-cache")
		w.Header().Set("ETag", `"`+version+`"`)
		http.ServeContent(w, req, name, time.Time{}, bytes.NewReader(text))
	}
}

func (h *handler) render(ctx context.Context, q query) *view {
	d := h.cfg.Document(ctx, q.Service)
	if q.Service != "" && d.Focus == nil && !d.worker() {
		d.Notices = append(d.Notices, Notice{Severity: Note, Text: fmt.Sprintf("No worker offers, or recently offered, the service %q.", q.Service)})
	}
	return newView(&d, q, h.cfg.Rows)
}

func (h *handler) page(w http.ResponseWriter, req *http.Request) {
	q := readQuery(req.URL.Query())
	v := h.render(req.Context(), q)
	text, err := v.drawPage()
	if err != nil {
		process.WriteError(w, http.StatusInternalServerError, err.Error())
		return
	}
	secure(w.Header())
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	if q.Service != "" && v.Document.Focus == nil && !v.Document.worker() {
		w.WriteHeader(http.StatusNotFound)
	}
	whole := process.NewStream(w, writeTimeout)
	defer whole.Close()
	_, _ = whole.Write(text) // an error concerns only the connection of the client
}

// events sends the changed sections until the client disconnects or the server ends.
func (h *handler) events(w http.ResponseWriter, req *http.Request) {
	secure(w.Header())
	if h.listeners.Add(1) > int64(h.cfg.Listeners) {
		h.listeners.Add(-1)
		h.refused.WithLabelValues(refusedFull).Inc()
		w.Header().Set("Retry-After", "10")
		process.WriteError(w, http.StatusServiceUnavailable, fmt.Sprintf("%d browsers listen already, which is the most: close one of them", h.cfg.Listeners))
		return
	}
	h.listening.Inc()
	defer func() { h.listening.Dec(); h.listeners.Add(-1) }()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no")
	s := stream{process.NewStream(w, writeTimeout)}
	defer s.Close()
	_ = h.send(req.Context(), s, readQuery(req.URL.Query())) // the error is that of the connection, or the end of the request
}

// send sends events until ctx ends or an event cannot be sent.
func (h *handler) send(ctx context.Context, s stream, q query) error {
	own, leave := h.drawings.join(q)
	defer leave()
	var last map[string]string
	var lastSent time.Time
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		}
		now, err := h.sections(ctx, own, q)
		if err != nil {
			return err
		}
		if last == nil { // before the sections, for which the page may be too old
			if err := s.event("process", struct {
				Identity string `json:"identity"`
			}{now.identity}); err != nil {
				return err
			}
		}
		switch news := changed(last, now.sections); {
		case len(news) > 0:
			if err := s.event("sections", news); err != nil {
				return err
			}
			last, lastSent = now.sections, time.Now()
		case time.Since(lastSent) >= h.cfg.Heartbeat:
			if err := s.event("beat", struct{}{}); err != nil {
				return err
			}
			lastSent = time.Now()
		}
		timer.Reset(max(h.cfg.Interval, time.Until(now.due)))
	}
}

// stream writes one answer of server-sent events:
// https://html.spec.whatwg.org/multipage/server-sent-events.html
type stream struct{ *process.Stream }

// event sends one event. JSON has no line breaks, so the data is one line.
func (s stream) event(name string, v any) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "event: %s\ndata: ", name)
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // the script decodes the JSON before it uses the HTML
	if err := e.Encode(v); err != nil {
		return err
	}
	b.WriteByte('\n') // the second line break: Encode wrote one
	if _, err := s.Write(b.Bytes()); err != nil {
		return err
	}
	return s.Flush()
}
