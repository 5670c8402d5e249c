package relay

import (
	"fmt"
	"net/http"

	"github.com/ringway/ringway/internal/admin"
	"github.com/ringway/ringway/internal/daemon"
	"github.com/ringway/ringway/internal/relay/routing"
)

func (r *Relay) adminMux() *http.ServeMux {
	mux := admin.NewMux(admin.Config{
		Snapshot: r.members.Snapshot, Unproven: r.members.Unproven, Reasons: r.Reasons, Gatherer: r.cfg.Registry,
		Catalogue: func() uint64 { return r.catalogue.View().Checksum() },
	})
	mux.HandleFunc("GET /api/v1/services", r.listServices)
	mux.HandleFunc("GET /api/v1/services/{name}", r.withService(func(w http.ResponseWriter, _ *http.Request, s *routing.Service) {
		admin.WriteJSON(w, http.StatusOK, r.describe(s))
	}))
	mux.HandleFunc("GET /api/v1/services/{name}/plan", r.withService(r.showPlan))
	mux.HandleFunc("GET /api/v1/services/{name}/explain", r.withService(r.explain))
	mux.HandleFunc("GET /api/v1/services/{name}/route", r.withService(r.showRoute))
	mux.HandleFunc("GET /api/v1/shared-key", func(w http.ResponseWriter, _ *http.Request) {
		admin.WriteJSON(w, http.StatusOK, r.keeper.Status())
	})
	mux.HandleFunc("GET /api/v1/check", r.handleCheck)
	mux.HandleFunc("GET /api/v1/keys", r.listKeys)
	mux.HandleFunc("POST /api/v1/keys", r.changeKeys)
	mux.HandleFunc("POST /api/v1/drain", r.handleDrain(true))
	mux.HandleFunc("POST /api/v1/undrain", r.handleDrain(false))
	mux.HandleFunc("POST /api/v1/reload", r.handleReload)
	r.handleStatusPage(mux)
	daemon.Handle(mux, daemon.APIConfig{ID: r.cfg.Membership.ID, Snapshot: r.members.Snapshot, Running: r.cfg.Running, Monitor: r.cfg.Monitor})
	return mux
}

func (r *Relay) withService(serve func(http.ResponseWriter, *http.Request, *routing.Service)) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		name := req.PathValue("name")
		s, ok := r.router.Service(name)
		if !ok {
			admin.WriteError(w, http.StatusNotFound, fmt.Sprintf("no worker offers or recently offered the service %.80q", name))
			return
		}
		serve(w, req, s)
	}
}
