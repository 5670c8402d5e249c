package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/process"
	"github.com/ringway/ringway/internal/proxy/ingress"
	"github.com/ringway/ringway/internal/relay/check"
	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/internal/strategy"
	"github.com/ringway/ringway/internal/wire"
	"github.com/ringway/ringway/membership"
)

const (
	// factsPath is the path of a relay's facts on its peer listener. The query ?back=ID also
	// asks how this relay reaches the relay of that ID. The query ?load=1 asks for the traffic
	// only, which costs no ping.
	factsPath = "/ringway/v1/facts"
	// factsAtOnce bounds the questions that are answered at a time: there are few, and each
	// may wait for a ping. loadsAtOnce does so for the traffic: every relay whose status page
	// is read asks for it.
	factsAtOnce, loadsAtOnce = 8, 32
	// probeBackTimeout bounds the connection attempt to the relay that asks.
	probeBackTimeout = time.Second
	// factsTimeout bounds one question. Pings need up to 1.5 s of it. Within it a relay that is
	// busy is asked again, after busyWait at most: relays that check at the same time would
	// otherwise ask all others in the same order, and fail together.
	factsTimeout = 4 * time.Second
	busyWait     = 200 * time.Millisecond
)

// withFacts answers questions for the facts of this relay. Like those for the shared key,
// they are not forwarded requests.
func (r *Relay) withFacts(next http.Handler) http.Handler {
	slots, loadSlots := make(chan struct{}, factsAtOnce), make(chan struct{}, loadsAtOnce)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path != factsPath || req.Header.Get(wire.HopHeader) != "" {
			next.ServeHTTP(w, req)
			return
		}
		if req.URL.Query().Has("load") {
			r.serveFacts(w, req, factsSource{loadSlots, func() check.Facts { return r.load() }})
			return
		}
		r.serveFacts(w, req, factsSource{slots, func() check.Facts {
			back := r.probeBack(req.Context(), req.URL.Query().Get("back"))
			facts := r.facts()
			facts.Back = back
			return facts
		}})
	})
}

// factsSource makes an answer while it holds a slot.
type factsSource struct {
	slots chan struct{}
	facts func() check.Facts
}

func (r *Relay) serveFacts(w http.ResponseWriter, req *http.Request, from factsSource) {
	if req.Method != http.MethodGet {
		w.Header().Set("Allow", http.MethodGet)
		process.WriteError(w, http.StatusMethodNotAllowed, "only GET is allowed")
		return
	}
	if source := r.cfg.Membership.Identity; source != nil {
		if req.TLS == nil {
			process.WriteError(w, http.StatusForbidden, "facts do not travel in clear text here: use TLS")
			return
		}
		if err := ingress.AuthorizePeer(source, req); err != nil {
			process.WriteError(w, http.StatusForbidden, "not authorised: "+err.Error())
			return
		}
	}
	select {
	case from.slots <- struct{}{}:
		defer func() { <-from.slots }()
	default:
		process.WriteError(w, http.StatusTooManyRequests, "too many ask for facts at a time")
		return
	}
	facts := from.facts()
	if !r.private() {
		facts = public(facts)
	}
	body, err := facts.Encode()
	if err != nil {
		process.WriteError(w, http.StatusInternalServerError, err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(body) // the relay that asked may be gone
}

// private reports whether only members can read the answers of the peer listener, because
// they have certificates or are on this host, or whether gossip is not encrypted either.
func (r *Relay) private() bool {
	m := r.cfg.Membership
	addr, err := netip.ParseAddrPort(r.peer.socket.Addr().String())
	return m.Identity != nil || m.Keyring == nil || err == nil && addr.Addr().IsLoopback()
}

// public returns the facts without those that encrypted gossip hides: IDs, reasons, and
// the fingerprint of a shared key, which may be a weak key.
func public(f check.Facts) check.Facts {
	f.Members, f.Unproven, f.Missing, f.SharedKey = nil, nil, nil, ""
	if f.Plan != nil {
		plan := *f.Plan
		plan.Author, f.Plan = "", &plan
	}
	if f.Load != nil {
		load := *f.Load
		load.Services, f.Load = nil, &load
	}
	if len(f.Reasons) > 0 {
		f.Reasons = []string{"its reasons do not travel in clear text"}
	}
	if len(f.Limits) > 0 {
		f.Limits = []string{"its limits do not travel in clear text"}
	}
	if f.Certificate != nil && f.Certificate.Problem != "" {
		f.Certificate.Problem = "the reason does not travel in clear text"
	}
	if f.Ingress != nil && f.Ingress.Problem != "" {
		f.Ingress.Problem = "the reason does not travel in clear text"
	}
	if f.Certificate != nil && f.Certificate.DenyProblem != "" {
		f.Certificate.DenyProblem = "the reason does not travel in clear text"
	}
	return f
}

// facts returns the current facts of this relay.
func (r *Relay) facts() check.Facts {
	m := r.cfg.Membership
	f := check.Facts{
		Relay: m.ID, Role: string(m.Role), Version: process.Version(), Settings: sharedSettings(r.cfg, r.Routes.Agreed(), r.tuned.Load().Keys), Plan: planFacts(r.Routes.Agreed()),
		ServicesSum: fmt.Sprintf("%016x", r.Catalogue.View().Checksum()),
		Reasons:     process.ReasonTexts(r.Reasons()), Limits: process.ReasonTexts(r.exceededLimits()), Descriptors: openFiles(), GossipAddr: r.members.Addr(), PeerAddr: r.cfg.Membership.ForwardAddr,
	}
	if s := r.Fleet.Snapshot(); s != nil {
		f.MembersSum, f.Members, f.MemberCount = fmt.Sprintf("%016x", s.Checksum()), membership.IDs(s.Members()), len(s.Members())
		f.Degraded = s.Degraded()
	}
	for _, u := range r.members.Unproven() {
		if len(f.Unproven) < check.MaxUnproven {
			f.Unproven = append(f.Unproven, check.Unproven{Member: u.ID, Reason: u.Reason})
		}
	}
	if m.Keyring != nil {
		f.GossipKeys = m.Keyring.Fingerprints()
	}
	if status := r.Keeper.Status(); !status.Key.IsZero() {
		f.SharedKey = status.Key.Fingerprint()
	}
	if source := m.Identity; source != nil {
		leaf, authority := source.Info(), source.Authority()
		f.Certificate = &check.Certificate{NotBefore: leaf.NotBefore, NotAfter: leaf.NotAfter, AuthorityBefore: authority.NotBefore, AuthorityAfter: authority.NotAfter}
		if err := source.Problem(); err != nil {
			f.Certificate.Problem = err.Error()
		}
		if err := source.DenyProblem(); err != nil {
			f.Certificate.DenyProblem = err.Error()
		}
	}
	if r.certificates != nil {
		first, problem := r.certificates.First()
		f.Ingress = &check.IngressCertificate{NotBefore: first.NotBefore, NotAfter: first.NotAfter}
		if problem != nil {
			f.Ingress.Problem = problem.Error()
		}
	}
	addresses := map[string]bool{}
	for _, s := range r.Routes.Services() {
		missing := missingLinks(s, addresses)
		f.MissingCount += len(missing)
		f.Missing = append(f.Missing, missing[:min(len(missing), check.MaxMissing-len(f.Missing))]...)
	}
	f.Descriptors.Links, f.Descriptors.Requests = len(addresses), r.tuned.Load().MaxInFlight
	f.Time = time.Now() // last, because it is compared
	return f
}

// missingLinks returns the workers that the plan connects this relay to and that it is not
// connected to. It adds the addresses of those in range to addresses.
func missingLinks(s *routing.Service, addresses map[string]bool) (missing []check.Missing) {
	route := s.Route()
	if !route.Affine() || route.Plan == nil {
		return nil
	}
	open := map[string]bool{}
	for _, t := range route.Range {
		addresses[t.Address] = true
		open[t.Node] = t.Pool.Stats().Open > 0
	}
	assignments, err := route.Plan.Assignments(route.Index)
	if err != nil {
		return nil // cannot fail: the index comes from the plan
	}
	for _, a := range assignments {
		if !open[a.Worker] && !route.WorkerAbsent(a.Worker) {
			missing = append(missing, check.Missing{Service: s.Name, Worker: a.Worker, Refused: route.Refused[a.Worker]})
		}
	}
	return missing
}

// planFacts describes the settings of the plan that a relay uses.
func planFacts(a *routing.AgreedPlans) *check.Plan {
	return &check.Plan{Version: a.Version, Author: a.Author, Hash: a.Hash, FileVersion: a.FileVersion, FileHash: a.FileHash, FromFleet: a.FromFleet}
}

// sharedSettings returns the settings that must be equal on all relays: of the plan those in use.
func sharedSettings(cfg Config, p *routing.AgreedPlans, keys ingress.Keys) []check.Setting {
	selection := itemsByService(cfg.Strategies.ByService)
	if _, ok := cfg.Strategies.ByService[""]; !ok {
		selection = append([]string{strategy.P2C}, selection...) // the strategy of services without a setting
	}
	sources := itemsByService(keys)
	if _, ok := keys[""]; !ok {
		sources = append([]string{keys.Of("").String()}, sources...)
	}
	rules := cfg.Rules
	var allowed []string
	for _, prefix := range rules.AllowedAddrs {
		allowed = append(allowed, prefix.String())
	}
	slices.Sort(allowed)
	return []check.Setting{
		{Name: "min-peers-per-worker", Value: fmt.Sprint(p.Minimums.PeersPerWorker)},
		{Name: "min-peers-per-relay", Value: fmt.Sprint(p.Minimums.PeersPerRelay)},
		{Name: "min-peers-per-tier", Value: fmt.Sprint(p.PeersPerTier)},
		{Name: "zone-slack", Value: fmt.Sprint(p.ZoneSlack)},
		{Name: "relays-per-service", Value: formatCount(p.RelaysPerService)},
		{Name: "max-relays-per-service", Value: fmt.Sprint(p.MaxRelaysPerService)},
		{Name: "index-source", Value: string(p.IndexSource)},
		{Name: "strategy", Value: string(p.Strategy)},
		{Name: "skip-relay", Value: strings.Join(p.SkipTexts(), ",")},
		{Name: "selection", Value: strings.Join(selection, ",")},
		{Name: "key-source", Value: strings.Join(sources, ",")},
		{Name: "session-cookie", Value: strings.Join(itemsByService(cfg.Strategies.SessionCookies), ",")},
		{Name: "endpoint-allowed-cidr", Value: strings.Join(allowed, ",")},
		{Name: "max-services", Value: fmt.Sprint(cmp.Or(rules.MaxServices, advertise.DefaultMaxServices))},
		{Name: "max-services-per-record", Value: fmt.Sprint(cmp.Or(rules.MaxServicesPerRecord, advertise.DefaultMaxServicesPerRecord))},
		{Name: "require-service-names", Value: fmt.Sprint(rules.RequireServiceNames)},
	}
}

// itemsByService returns the value for all services, then SERVICE=VALUE of each with its own.
func itemsByService[T any](values map[string]T) (items []string) {
	for _, service := range slices.Sorted(maps.Keys(values)) {
		items = append(items, strings.TrimPrefix(fmt.Sprintf("%s=%v", service, values[service]), "="))
	}
	return items
}

// probeBack tries to reach a relay of this relay's own view, and no other address. Nil
// means that there is no such relay.
func (r *Relay) probeBack(ctx context.Context, id string) *check.Back {
	snapshot := r.Fleet.Snapshot()
	if snapshot == nil || id == "" {
		return nil
	}
	m, known := snapshot.Get(id)
	if !known || !m.Role.Relays() || id == r.cfg.Membership.ID {
		return nil
	}
	back := &check.Back{}
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := r.members.Ping(ctx, id); err != nil {
			back.UDP = err.Error()
		}
	})
	wg.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, probeBackTimeout)
		defer cancel()
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", m.ForwardAddr)
		if err != nil {
			back.Peer = err.Error()
			return
		}
		_ = conn.Close()
	})
	wg.Wait()
	return back
}

// errRefuses is wrapped by the error of a relay that knows the question and does not answer.
var errRefuses = errors.New("it answers")

// askFacts asks another relay with a query of factsPath. It records when the question was
// sent and how long the answer took, for the comparison of clocks.
func (r *Relay) askFacts(ctx context.Context, m membership.Member, query string) check.Peer {
	p := check.Peer{ID: m.ID, Addr: m.ForwardAddr}
	p.Facts, p.Err = r.fetchFacts(ctx, factsQuestion{m, query}, &p)
	if p.Facts != nil && p.Facts.Relay != m.ID {
		p.Facts, p.Err = nil, fmt.Errorf("%.80q answers there: the address has a new owner", p.Facts.Relay)
	}
	return p
}

// factsQuestion is a relay and what it is asked.
type factsQuestion struct {
	membership.Member
	query string
}

func (r *Relay) fetchFacts(ctx context.Context, m factsQuestion, p *check.Peer) (*check.Facts, error) {
	ctx, cancel := context.WithTimeout(ctx, factsTimeout)
	defer cancel()
	var busy error
	for {
		facts, err := r.fetchFactsOnce(ctx, m, p)
		switch {
		case err != nil && ctx.Err() != nil && busy != nil:
			return nil, busy
		case !errors.Is(err, check.ErrBusy):
			return facts, err
		}
		busy = err
		select {
		case <-time.After(busyWait/4 + rand.N(busyWait*3/4)):
		case <-ctx.Done():
			return nil, busy
		}
	}
}

func (r *Relay) fetchFactsOnce(ctx context.Context, m factsQuestion, p *check.Peer) (*check.Facts, error) {
	if m.ForwardAddr == "" {
		return nil, errors.New("it gossips no peer address")
	}
	scheme, client := "http", &http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // without a proxy
	if source := r.cfg.Membership.Identity; source != nil {
		scheme, client = "https", ingress.PeerClient(source, m.Member, nil)
	}
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	p.Asked = time.Now()
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { p.Asked = time.Now() }})
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+m.ForwardAddr+factsPath+"?"+m.query, nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	p.Took = time.Since(p.Asked)
	if err != nil {
		return nil, unwrapURL(err)
	}
	defer func() { _ = resp.Body.Close() }()
	switch resp.StatusCode {
	case http.StatusOK:
		return check.DecodeFacts(resp.Body)
	case http.StatusTooManyRequests:
		return nil, fmt.Errorf("%w %s: it %w", errRefuses, resp.Status, check.ErrBusy)
	case http.StatusForbidden, http.StatusInternalServerError:
		return nil, fmt.Errorf("%w %s", errRefuses, resp.Status)
	}
	return nil, fmt.Errorf("%w: it answers %s", check.ErrNoFacts, resp.Status)
}
