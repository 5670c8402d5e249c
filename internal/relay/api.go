package relay

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/process"
	"github.com/ringway/ringway/internal/proxy/ingress"
	"github.com/ringway/ringway/internal/relaypool"
	"github.com/ringway/ringway/internal/requestlog"
	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/internal/settings"
	"github.com/ringway/ringway/selection"
)

func (r *Relay) adminMux() *http.ServeMux {
	mux := process.NewMux(process.Config{
		Snapshot: r.Fleet.Snapshot, Unproven: r.members.Unproven, Doubters: r.members.Doubters, Reasons: r.Reasons, Gatherer: r.cfg.Registry,
		Catalogue: func() uint64 { return r.Catalogue.View().Checksum() },
	})
	mux.HandleFunc("GET /api/v1/services", r.listServices)
	mux.HandleFunc("GET /api/v1/services/{name}", r.withService(func(w http.ResponseWriter, _ *http.Request, s *routing.Service) {
		process.WriteJSON(w, http.StatusOK, r.describe(s))
	}))
	mux.HandleFunc("GET /api/v1/services/{name}/plan", r.withService(r.showPlan))
	mux.HandleFunc("GET /api/v1/plan", func(w http.ResponseWriter, req *http.Request) {
		r.showPlanChange(w, req, r.Routes.Services())
	})
	mux.HandleFunc("GET /api/v1/services/{name}/explain", r.withService(r.explain))
	mux.HandleFunc("GET /api/v1/services/{name}/route", r.withService(r.showRoute))
	mux.HandleFunc("GET /api/v1/route", r.showRouteOf)
	mux.HandleFunc("GET /api/v1/services/{name}/tap", r.withService(func(w http.ResponseWriter, req *http.Request, s *routing.Service) {
		r.tap(w, req, s.Name)
	}))
	mux.HandleFunc("GET /api/v1/traffic", r.showTraffic)
	mux.HandleFunc("GET /api/v1/tap", func(w http.ResponseWriter, req *http.Request) { r.tap(w, req, requestlog.AllServices) })
	mux.HandleFunc("GET /api/v1/fleet", r.showFleet)
	mux.HandleFunc("GET /api/v1/services/{name}/rebalance", r.ifMeant(r.withService(r.showRebalance)))
	mux.HandleFunc("POST /api/v1/services/{name}/rebalance", r.ifMeant(r.withService(r.runRebalance)))
	mux.HandleFunc("GET /api/v1/requests/{id}/explain", r.explainRequest)
	mux.HandleFunc("GET /api/v1/shared-key", func(w http.ResponseWriter, _ *http.Request) {
		process.WriteJSON(w, http.StatusOK, r.Keeper.Status())
	})
	mux.HandleFunc("GET /api/v1/check", r.handleCheck)
	mux.HandleFunc("GET /api/v1/keys", r.listKeys)
	mux.HandleFunc("POST /api/v1/keys", r.changeKeys)
	mux.HandleFunc("GET /api/v1/blocks", r.ifMeant(r.listBlocks))
	mux.HandleFunc("POST /api/v1/blocks", r.ifMeant(r.changeBlocks))
	mux.HandleFunc("POST /api/v1/drain", r.handleDrain(true))
	mux.HandleFunc("POST /api/v1/undrain", r.handleDrain(false))
	mux.HandleFunc("POST /api/v1/reload", r.handleReload)
	r.handleStatusPage(mux)
	process.Handle(mux, process.APIConfig{ID: r.cfg.Membership.ID, Snapshot: r.Fleet.Snapshot, Running: r.cfg.Running, Monitor: r.cfg.Monitor})
	return mux
}

// ifMeant refuses a request that names another relay in ?relay=. Several relays may announce the same
// address of loopback, and a command for all of them would change this relay once for each.
func (r *Relay) ifMeant(serve http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		if id := req.URL.Query().Get("relay"); id != "" && id != r.cfg.Membership.ID {
			process.WriteError(w, http.StatusConflict, fmt.Sprintf("this relay is %s and not %.80q: an address of loopback reaches only relays of this host", r.cfg.Membership.ID, id))
			return
		}
		serve(w, req)
	}
}

func (r *Relay) withService(serve func(http.ResponseWriter, *http.Request, *routing.Service)) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		name := req.PathValue("name")
		s, ok := r.Routes.Service(name)
		if !ok {
			text := fmt.Sprintf("no worker offers or recently offered the service %.80q", name)
			if refused := r.refusedByRules()[name]; len(refused) > 0 {
				worker := slices.Min(slices.Collect(maps.Keys(refused)))
				text = fmt.Sprintf("the offers of the service %.80q are refused (%d), that of worker %s because of %s", name, len(refused), worker, refused[worker])
			} else if meant := r.nearestService(name); meant != "" {
				text += fmt.Sprintf("; did you mean %s?", meant)
			} else if worker := req.URL.Query().Get("worker"); worker != "" && r.Fleet.Snapshot() != nil {
				text += fmt.Sprintf(", worker %.80q neither: %s", worker, r.whyNoOffer(worker))
			} else {
				text += "; if a worker should, `worker services` on its host shows why it does not"
			}
			process.WriteError(w, http.StatusNotFound, text)
			return
		}
		serve(w, req, s)
	}
}

// nearestService returns the service that was probably meant by a name that is not known,
// "" if none is similar. Names differ by case: Hello is not hello.
func (r *Relay) nearestService(name string) string {
	services := r.Routes.Services()
	known := make([]string, len(services))
	for i, s := range services {
		known[i] = s.Name
	}
	return settings.Nearest(name, known)
}

func (r *Relay) listServices(w http.ResponseWriter, _ *http.Request) {
	answer := api.Services{Relay: r.cfg.Membership.ID, Services: []api.ListedService{}}
	byRules := r.refusedByRules()
	for _, s := range r.Routes.Services() {
		listed := list(s)
		listed.Refused = refused(s, byRules)
		listed.Requests = r.Metrics.Requests(s)
		answer.Services = append(answer.Services, listed)
	}
	process.WriteJSON(w, http.StatusOK, answer)
}

// refusedByRules returns, by service and worker, why offers are refused before they enter a
// route. The catalogue lists a bounded number of them.
func (r *Relay) refusedByRules() map[string]map[string]string {
	out := map[string]map[string]string{}
	for _, refusal := range r.Catalogue.View().Refused() {
		for _, service := range refusal.Services {
			if out[service] == nil {
				out[service] = map[string]string{}
			}
			out[service][refusal.Worker] = refusal.Text
		}
	}
	return out
}

// refused returns the workers whose offers of a service this relay does not use, with the
// reason; nil if there are none.
func refused(s *routing.Service, byRules map[string]map[string]string) map[string]string {
	inRoute := s.Route().Refused
	if len(byRules[s.Name]) == 0 {
		return inRoute
	}
	out := maps.Clone(byRules[s.Name])
	maps.Copy(out, inRoute)
	return out
}

func list(s *routing.Service) api.ListedService {
	route := s.Route()
	l := api.ListedService{ServiceSummary: summarize(s)}
	for _, e := range route.Endpoints {
		if e.State == advertise.Ready && !e.Unreachable {
			l.Ready++
		}
	}
	if route.Plan != nil {
		l.Relays = len(route.Plan.Affine())
		l.RangeText = rangeText(route.Plan, route.Index)
	}
	return l
}

func summarize(s *routing.Service) api.ServiceSummary {
	route := s.Route()
	return api.ServiceSummary{Service: s.Name, Role: role(route), Endpoints: len(route.Endpoints), Range: len(route.Range), InFlight: s.InFlight.Load()}
}

func role(route *routing.Route) string {
	switch {
	case route.Affine():
		return "affine"
	case route.Plan == nil:
		return "none" // no endpoint takes requests, so no relay could carry them
	}
	return "forwarding"
}

func (r *Relay) describe(s *routing.Service) api.Service {
	route := s.Route()
	d := api.Service{
		ServiceSummary: summarize(s), Relay: r.cfg.Membership.ID, Index: route.Index,
		Selection: describeSelection(s), Policy: r.describePolicy(s), Peers: []api.Peer{}, Catalogue: route.Endpoints,
	}
	if route.Plan != nil {
		d.AffineRelays = route.Plan.Affine()
		d.RangeText = rangeText(route.Plan, route.Index)
		d.RelaysRaised = route.Votes.RelaysRaised(r.Routes.Agreed().Minimums.PeersPerWorker)
	}
	d.Refused = refused(s, r.refusedByRules())
	if !route.Affine() {
		d.Forwarding, d.Peers = describeForwarding(s)
		return d
	}
	d.Peers = r.describeWorkers(s, route)
	return d
}

// describeWorkers describes the workers of the range of a service.
func (r *Relay) describeWorkers(s *routing.Service, route *routing.Route) []api.Peer {
	stats := make(map[string]selection.EndpointStats)
	for _, st := range s.Endpoints.Stats(selection.Instant(time.Since(r.Epoch()))) {
		stats[st.ID] = st
	}
	peers := []api.Peer{}
	for _, t := range route.Range {
		st := stats[t.ID]
		peers = append(peers, api.Peer{
			Node: t.Node, Address: t.Address, Connected: t.Pool.Stats().Open > 0, Weight: t.Weight, State: string(st.State),
			EWMAms: float64(st.Latency) / float64(time.Millisecond), InFlight: st.InFlight, Limit: t.Limit, Requests: st.Picks,
			Failures: st.Failures, ErrorRate: st.ErrorRate, Score: st.Score / float64(time.Millisecond), LastReason: st.LastReason,
		})
	}
	return peers
}

// describePolicy returns the policy in effect for the requests to a service.
func (r *Relay) describePolicy(s *routing.Service) []api.PolicyField {
	requests, advertised := &r.tuned.Load().Requests, s.Route().Policy
	policy := requests.Policy(s.Name, advertised, r.cfg.ProgressTimeout)
	var fields []api.PolicyField
	add := func(key, value string, origin routing.Origin) {
		fields = append(fields, api.PolicyField{Key: key, Value: value, Origin: string(origin)})
	}
	cookie, origin := r.cfg.Strategies.SessionCookie(s.Name, advertised)
	policy.SessionCookie = cookie
	for _, key := range advertise.PolicyKeys() {
		if key == advertise.KeySessionCookie {
			if origin != routing.FromDefault {
				add(key, cookie, origin)
			}
			continue
		}
		add(key, policy.Get(key), requests.Policies.Origin(s.Name, advertised, key))
	}
	least, most, origin := requests.Policies.Slots.Effective(s.Name, s.Route().Endpoints)
	value := ""
	switch {
	case least == 0:
	case most == 0:
		value = fmt.Sprintf("%d or none", least)
	case least < most:
		value = fmt.Sprintf("%d to %d", least, most)
	default:
		value = strconv.Itoa(least)
	}
	add(routing.KeySlots, value, origin)
	for _, key := range ingress.CookieAttributeKeys() { // defaults are not listed: most services have no cookie
		note := ""
		if ingress.OnlyOfItsHost(cookie) && (key == ingress.KeyCookieDomain || key == ingress.KeyCookiePath) {
			note = ", without effect: the cookie's name begins with __Host-"
		}
		if own, all := requests.Policies.Cookies[s.Name].Get(key), requests.Policies.Cookies[""].Get(key); own != "" {
			add(key, own+note, routing.FromServiceSetting)
		} else if all != "" {
			add(key, all+note, routing.FromSetting)
		}
	}
	if canary := requests.Policies.Canaries[s.Name]; canary.Set() {
		text := canary.String()
		if _, workers := s.Route().Canary(); workers == 0 && s.Route().Affine() {
			text += ", without effect: all or none of the workers have the version"
		}
		add(routing.KeyCanary, text, routing.FromServiceSetting)
	}
	return fields
}

// describeForwarding returns the relays that serve a service, and to which of them this
// relay is connected.
func describeForwarding(s *routing.Service) (*api.Forwarding, []api.Peer) {
	peers := []api.Peer{}
	relays := s.Relays()
	if relays == nil {
		return nil, peers
	}
	status := relays.Status()
	for _, p := range status.Peers {
		d := api.Peer{
			Node: p.ID, Address: p.Address, Connected: p.Role != relaypool.NoRole, Weight: p.Weight, State: p.Role.String(),
			EWMAms: milliseconds(p.Latency), InFlight: p.InFlight, Requests: p.Requests, Failures: p.Failures,
			ErrorRate: p.ErrorRate, Score: milliseconds(p.Estimate), LastReason: p.Reason,
			PeerRelay: api.PeerRelay{
				Role: p.Role.String(), Tier: p.Tier.String(), Health: string(p.Health),
				P99ms: milliseconds(p.Percentile), Consecutive: p.Consecutive,
			},
		}
		if p.Health == relaypool.Out {
			d.State = string(relaypool.Out)
			d.OutForMs = max(0, time.Until(p.OutUntil).Milliseconds())
		}
		peers = append(peers, d)
	}
	list := func(ids []string) []string { return append([]string{}, ids...) } // [], not null
	return &api.Forwarding{
		Primaries: list(status.Primaries), Backups: list(status.Backups), Joining: list(status.Joining),
		Candidates: list(status.Candidates), Reach: status.Reach.String(), Bindings: status.Bindings,
	}, peers
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
