package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"time"

	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/process"
	"github.com/ringway/ringway/internal/statuspage"
	"github.com/ringway/ringway/membership/identity"
)

const (
	// maxDrainBody limits the request body in bytes: enough for the names of all services
	// of a worker.
	maxDrainBody = 128 << 10
	// announceTimeout limits the wait until a drain is passed to gossip, which takes a
	// second at most while the worker is a member.
	announceTimeout = 5 * time.Second
)

func (a *Agent) handle(mux *http.ServeMux) {
	a.handleStatusPage(mux)
	mux.HandleFunc("GET /api/v1/services", func(w http.ResponseWriter, _ *http.Request) {
		process.WriteJSON(w, http.StatusOK, a.servicesAnswer())
	})
	mux.HandleFunc("POST /api/v1/drain", a.handleDrain(true))
	mux.HandleFunc("POST /api/v1/undrain", a.handleDrain(false))
	mux.HandleFunc("POST /api/v1/reload", func(w http.ResponseWriter, _ *http.Request) {
		change, err := a.reload()
		if err != nil {
			process.WriteError(w, http.StatusUnprocessableEntity, err.Error())
			return
		}
		process.WriteJSON(w, http.StatusOK, change)
	})
}

func (a *Agent) servicesAnswer() api.WorkerServices {
	return api.WorkerServices{Worker: a.cfg.Membership.ID, Draining: a.stopping.Load(), Services: a.offering.status()}
}

func (a *Agent) handleDrain(drained bool) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		names, err := drainNames(req)
		if err != nil {
			process.WriteError(w, http.StatusBadRequest, err.Error())
			return
		}
		if a.stopping.Load() {
			process.WriteError(w, http.StatusConflict, "this worker stops: all its services are draining, and stay so")
			return
		}
		if err := a.offering.drain(drained, names); err != nil {
			process.WriteError(w, http.StatusNotFound, err.Error())
			return
		}
		ctx, cancel := context.WithTimeout(req.Context(), announceTimeout)
		defer cancel()
		announced := a.catalogue.Flush(ctx) == nil
		answer := a.servicesAnswer()
		answer.Announced = &announced
		process.WriteJSON(w, http.StatusOK, answer)
	}
}

// drainNames returns the services that the query and the body name together.
func drainNames(req *http.Request) ([]string, error) {
	var body api.WorkerDrainRequest
	d := json.NewDecoder(io.LimitReader(req.Body, maxDrainBody))
	d.DisallowUnknownFields()
	if err := d.Decode(&body); err != nil && !errors.Is(err, io.EOF) {
		return nil, errors.New(`the body is not {"services": ["NAME", …]}`)
	}
	return append(req.URL.Query()["service"], body.Services...), nil
}

func (a *Agent) handleStatusPage(mux *http.ServeMux) {
	statuspage.Handle(mux, statuspage.Config{Document: a.statusDocument, Registerer: a.cfg.Registry})
}

// statusDocument describes the worker for its status page. Its members are the relays and
// gates, without the other workers.
func (a *Agent) statusDocument(context.Context, string) statuspage.Document {
	now, m := time.Now(), a.cfg.Membership
	d := statuspage.Document{
		ID: m.ID, Role: string(identity.RoleWorker), Cluster: m.Cluster, Environment: m.Environment, Datacenter: m.Datacenter, Region: m.Region,
		Build: process.Version(), Now: now, Uptime: now.Sub(time.UnixMilli(int64(a.members.Epoch()))),
		ServicesChecksum: fmt.Sprintf("%016x", a.catalogue.View().Checksum()),
	}
	if s := a.members.Snapshot(); s != nil {
		d.MembersChecksum = fmt.Sprintf("%016x", s.Checksum())
		for _, member := range api.ListMembers(api.Members{Members: s.Members()}, s.Departures()) {
			if member.Role.Relays() {
				d.Members = append(d.Members, member)
			}
		}
		if s.Degraded() {
			d.Notices = append(d.Notices, statuspage.Notice{
				Severity: statuspage.Problem, Runbook: "view-degraded", Text: "This worker lost much of the cluster at the same time.",
				Remedy: "Check whether its network is cut off, UDP included. Nothing has to be restarted.",
			})
		}
	}
	d.Offers = a.offering.status()
	reasons := a.Reasons()
	d.Ready = len(reasons) == 0
	for _, reason := range reasons {
		d.Notices = append(d.Notices, statusNotice(reason))
	}
	return d
}

// statusNotice returns a notice with the remedy for a reason of Reasons.
func statusNotice(reason process.Reason) statuspage.Notice {
	n := statuspage.ReasonNotice(reason)
	switch reason.Code {
	case process.Stopping:
		n.Remedy = "It stops: relays send nothing new."
	case process.NotJoined:
		n.Remedy, n.Runbook = "Check the addresses of --join, and that their gossip port is reachable, over TCP and UDP; or those of --attach, and their peer port.", "alone"
	case process.NoRelay:
		n.Remedy, n.Runbook = "No request can come. It is ready as soon as it sees a relay.", "alone"
	case process.FewRelays:
		n.Remedy = "It is ready when relays have connected to its sidecar. A firewall or a network policy may be in the way, or relays that do not serve its services."
	case process.ServiceDrained:
		n.Remedy, n.Runbook = "`worker undrain` offers it again.", "drain-forgotten"
	case process.ServiceUnhealthy, process.NoService:
		n.Remedy, n.Runbook = "The check of the service reports the reason; see the table.", "service-unhealthy"
	}
	return n
}

// drains are the services that operators have drained. The zero value is none.
type drains struct {
	all    bool            // every service, including services added later …
	except map[string]bool // … but these; without all: only these
}

func (d drains) drained(name string) bool { return d.all != d.except[name] }

// with returns the drains after the named services, or all if names is empty, were drained
// or undrained.
func (d drains) with(drained bool, names []string) drains {
	if len(names) == 0 {
		return drains{all: drained}
	}
	except := maps.Clone(d.except)
	if except == nil {
		except = map[string]bool{}
	}
	for _, name := range names {
		if drained != d.all {
			except[name] = true
		} else {
			delete(except, name)
		}
	}
	return drains{all: d.all, except: except}
}

// forget removes the entry of a service: if a removed service is added again, it is not
// drained by its earlier name.
func (d drains) forget(name string) { delete(d.except, name) }
