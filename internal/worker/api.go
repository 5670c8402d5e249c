package worker

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/ringway/ringway/internal/admin"
)

const (
	// maxDrainBody bounds the names of all services that a worker can have.
	maxDrainBody = 128 << 10
	// announceTimeout bounds the wait until a drain is handed to gossip; it takes
	// a second at most while the worker is a member.
	announceTimeout = 5 * time.Second
)

// DrainRequest is the body of POST /api/v1/drain and /api/v1/undrain. The query
// ?service=NAME, repeated, says the same.
type DrainRequest struct {
	// Services are meant; none: all, those that come later included.
	Services []string `json:"services"`
}

// ServicesAnswer is what GET /api/v1/services and both drains answer with.
type ServicesAnswer struct {
	Worker string `json:"worker"`
	// Draining: the worker stops.
	Draining bool            `json:"draining"`
	Services []ServiceStatus `json:"services"`
	// Announced: what was asked for is on its way to the relays. Absent where
	// nothing was asked for.
	Announced *bool `json:"announced,omitempty"`
}

func (a *Agent) handle(mux *http.ServeMux) {
	a.handleStatusPage(mux)
	mux.HandleFunc("GET /api/v1/services", func(w http.ResponseWriter, _ *http.Request) {
		admin.WriteJSON(w, http.StatusOK, a.servicesAnswer())
	})
	mux.HandleFunc("POST /api/v1/drain", a.handleDrain(true))
	mux.HandleFunc("POST /api/v1/undrain", a.handleDrain(false))
	mux.HandleFunc("POST /api/v1/reload", func(w http.ResponseWriter, _ *http.Request) {
		change, err := a.reload()
		if err != nil {
			admin.WriteError(w, http.StatusUnprocessableEntity, err.Error())
			return
		}
		admin.WriteJSON(w, http.StatusOK, change)
	})
}

func (a *Agent) servicesAnswer() ServicesAnswer {
	return ServicesAnswer{Worker: a.cfg.Membership.ID, Draining: a.stopping.Load(), Services: a.offering.status()}
}

func (a *Agent) handleDrain(drained bool) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		names, err := drainNames(req)
		if err != nil {
			admin.WriteError(w, http.StatusBadRequest, err.Error())
			return
		}
		if a.stopping.Load() {
			admin.WriteError(w, http.StatusConflict, "this worker stops: all its services are draining, and stay so")
			return
		}
		if err := a.offering.drain(drained, names); err != nil {
			admin.WriteError(w, http.StatusNotFound, err.Error())
			return
		}
		ctx, cancel := context.WithTimeout(req.Context(), announceTimeout)
		defer cancel()
		announced := a.catalogue.Flush(ctx) == nil
		answer := a.servicesAnswer()
		answer.Announced = &announced
		admin.WriteJSON(w, http.StatusOK, answer)
	}
}

// drainNames are the services that the query and the body name together.
func drainNames(req *http.Request) ([]string, error) {
	var body DrainRequest
	d := json.NewDecoder(io.LimitReader(req.Body, maxDrainBody))
	d.DisallowUnknownFields()
	if err := d.Decode(&body); err != nil && !errors.Is(err, io.EOF) {
		return nil, errors.New(`the body is not {"services": ["NAME", …]}`)
	}
	return append(req.URL.Query()["service"], body.Services...), nil
}
