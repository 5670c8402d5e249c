package relay

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/process"
	"github.com/ringway/ringway/internal/relay/check"
	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

const (
	// checkRounds is how often the cluster is checked before a problem is reported that may
	// pass by itself; settle is the time between two rounds.
	checkRounds = 3
	settle      = time.Second
	// checkTimeout bounds a check: less than the command line waits.
	checkTimeout = 25 * time.Second
	// askedAtOnce bounds the concurrent questions, workersAsked how many workers are asked
	// over UDP and for their keys: a sample detects what affects many workers, and asking all of
	// thousands would be an overload. Each that does not answer costs its time limit, so as many
	// are asked at the same time as a sample has, and as many that vanished are asked over TCP.
	askedAtOnce  = 64
	workersAsked = 32
	// workerGoneFor is how long a worker that vanished is reported.
	workerGoneFor = 10 * time.Minute
)

// handleCheck checks the cluster as this relay sees it. A check sends questions and pings
// and changes nothing. One check runs at a time; another waits for it.
func (r *Relay) handleCheck(w http.ResponseWriter, req *http.Request) {
	ctx, cancel := context.WithTimeout(req.Context(), checkTimeout)
	defer cancel()
	select {
	case r.checking <- struct{}{}:
		defer func() { <-r.checking }()
	case <-ctx.Done():
		process.WriteError(w, http.StatusServiceUnavailable, "another check is running: try again later")
		return
	}
	report, err := r.Check(ctx)
	if err != nil {
		process.WriteError(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	process.WriteJSON(w, http.StatusOK, report)
}

// Check checks the cluster, and repeats the check before it reports a problem that may
// pass by itself. Each round takes as long as the slowest relay needs to answer, at most
// four seconds. When ctx ends, Check returns the report of the last complete round: another
// one would report relays that were not asked as silent. Check is safe for concurrent use while Run
// runs.
func (r *Relay) Check(ctx context.Context) (*api.Report, error) {
	var report *api.Report
	for round := 1; ; round++ {
		fleet, err := r.collectFleet(ctx)
		switch {
		case err != nil:
			return nil, err
		case ctx.Err() != nil && report != nil:
			return report, nil
		case ctx.Err() != nil:
			return nil, fmt.Errorf("the check did not finish, because relays answer slowly or another check ran before it: %w: try again later", ctx.Err())
		}
		report = check.Judge(fleet)
		if !report.Passing() || round == checkRounds {
			return report, nil
		}
		select {
		case <-time.After(settle):
		case <-ctx.Done():
			return report, nil
		}
	}
}

// collectFleet collects the facts for the check.
func (r *Relay) collectFleet(ctx context.Context) (*check.Fleet, error) {
	snapshot := r.Fleet.Snapshot()
	if snapshot == nil {
		return nil, errors.New("gossip is not started yet")
	}
	f := &check.Fleet{Now: time.Now(), Addresses: map[string]string{}, NamesRequired: r.cfg.Rules.RequireServiceNames}
	relays, vanished, workers := r.membersToCheck(snapshot, f)
	asked, pinged := slices.Clone(relays), slices.Concat(relays, workers)
	gone := map[string]time.Time{}
	for _, d := range vanished {
		gone[d.Member.ID] = d.At
		asked = append(asked, d.Member)
	}
	f.Peers, f.Pings = make([]check.Peer, len(asked)), make([]check.Ping, len(pinged))
	slots := make(chan struct{}, askedAtOnce)
	var wg sync.WaitGroup
	for i, m := range asked {
		slots <- struct{}{}
		wg.Go(func() {
			f.Peers[i] = r.askFacts(ctx, m, "back="+r.cfg.Membership.ID)
			f.Peers[i].Gone = gone[m.ID]
			<-slots
		})
	}
	for i, m := range pinged {
		slots <- struct{}{}
		wg.Go(func() {
			_, err := r.members.Ping(ctx, m.ID)
			f.Pings[i] = check.Ping{ID: m.ID, Role: string(m.Role), Addr: m.GossipAddr, Err: err}
			if err != nil {
				f.Pings[i].TCP = askTCP(ctx, m.GossipAddr)
			}
			<-slots
		})
	}
	taken := map[string]bool{}
	for _, addr := range f.Addresses {
		taken[addr] = true
	}
	for _, i := range rand.Perm(len(f.FailedWorkers))[:min(len(f.FailedWorkers), askedAtOnce)] {
		one := &f.FailedWorkers[i]
		if one.Member.GossipAddr == "" || taken[one.Member.GossipAddr] { // it was attached, or another has its address
			continue
		}
		one.Asked = true
		slots <- struct{}{}
		wg.Go(func() {
			one.TCP = askTCP(ctx, one.Member.GossipAddr)
			<-slots
		})
	}
	if r.cfg.Membership.Keyring != nil {
		wg.Go(func() {
			f.Keys, _ = r.members.KeyFingerprints(ctx, membership.IDs(workers)) // it fails only without a keyring
		})
	}
	wg.Go(func() { f.Duplicates = r.members.Duplicates(ctx) })
	wg.Wait()
	for _, s := range r.Routes.Services() {
		f.Services = append(f.Services, r.plannedService(s))
	}
	view := r.Catalogue.View()
	f.Refused, f.Strangers = view.Refused(), r.members.Refused()
	f.Idle = idleWorkers(snapshot, view, f.Refused)
	f.Self = r.facts()
	return f, nil
}

// membersToCheck returns the members to ask: relays and gates, those of them that vanished, and a sample
// of the workers in gossip. It notes in f what the snapshot has of all members.
func (r *Relay) membersToCheck(snapshot *membership.Snapshot, f *check.Fleet) (relays []membership.Member, vanished []membership.Departure, workers []membership.Member) {
	for _, m := range snapshot.Members() {
		f.Addresses[m.ID] = m.GossipAddr
		switch {
		case m.ID == r.cfg.Membership.ID:
		case m.Role == identity.RoleWorker:
			f.Workers++
			if !m.Attached { // it takes no packets, and has no gossip key
				workers = append(workers, m)
			}
			if m.ServiceNames == "" {
				f.Nameless = append(f.Nameless, m.ID)
			} else {
				f.Named++
			}
		case m.Role.Relays() && m.ForwardAddr != "": // a program without an address answers nothing
			relays = append(relays, m)
		}
	}
	for _, d := range snapshot.Departures() {
		switch {
		case d.Reason != membership.Failed:
		case d.Member.Role.Relays() && d.Member.ForwardAddr != "":
			vanished = append(vanished, d)
		case d.Member.Role == identity.RoleWorker && f.Now.Sub(d.At) < workerGoneFor:
			f.FailedWorkers = append(f.FailedWorkers, check.FailedWorker{Departure: d})
		}
	}
	rand.Shuffle(len(workers), func(i, j int) { workers[i], workers[j] = workers[j], workers[i] })
	workers = workers[:min(len(workers), workersAsked)]
	slices.SortFunc(workers, func(a, b membership.Member) int { return strings.Compare(a.ID, b.ID) })
	return relays, vanished, workers
}

// idleWorkers returns the workers that offer nothing. Those whose offer is refused are not among them.
func idleWorkers(snapshot *membership.Snapshot, view *advertise.View, refused []advertise.Refusal) (idle []string) {
	if !view.Settled() {
		return nil
	}
	offering := map[string]bool{}
	for name := range view.Services() {
		for e := range view.Endpoints(name).All() {
			offering[e.NodeID] = true
		}
	}
	for _, one := range refused { // the report has its reason
		offering[one.Worker] = true
	}
	for _, m := range snapshot.Members() {
		if m.Role == identity.RoleWorker && !offering[m.ID] {
			idle = append(idle, m.ID)
		}
	}
	return idle
}

// tcpTimeout limits askTCP, in addition to the ping that failed before it.
const tcpTimeout = time.Second

// askTCP reports whether a process runs behind a gossip address: it ends its side of a
// connection, and a process that runs ends the other side. The kernel of a process that hangs
// accepts the connection and keeps it.
func askTCP(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, tcpTimeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err := errors.Join(conn.SetDeadline(deadline), conn.(*net.TCPConn).CloseWrite()); err != nil {
		return err
	}
	if _, err := conn.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
		return check.ErrHangs
	}
	return nil // whatever it sent or not, it runs
}

func (r *Relay) plannedService(s *routing.Service) check.Service {
	out := check.Service{Name: s.Name, Wanted: r.Routes.Agreed().Minimums.PeersPerWorker}
	if route := s.Route(); route.Plan != nil && len(route.Plan.Zones()) > 1 {
		out.LoadWanted = max(affinity.PlanConfig{}.WithDefaults().ZoneSlack, r.Routes.Agreed().ZoneSlack)
	}
	route := s.Route()
	out.Refused = route.Refused
	for _, value := range routing.Ranked(route.Votes.Selections) {
		out.Selections = append(out.Selections, check.Vote{Value: value, Workers: route.Votes.Selections[value]})
	}
	for _, value := range routing.Ranked(route.Votes.Relays) {
		vote := check.Vote{Workers: route.Votes.Relays[value]}
		if value > 0 {
			vote.Value = fmt.Sprint(value)
		}
		out.RelayVotes = append(out.RelayVotes, vote)
	}
	for _, key := range advertise.PolicyKeys() {
		policy := check.PolicyVotes{Key: key}
		for _, value := range routing.RankedPolicies(route.Votes.Policies[key]) {
			policy.Votes = append(policy.Votes, check.Vote{Value: value, Workers: route.Votes.Policies[key][value]})
		}
		out.Policies = append(out.Policies, policy)
	}
	if route.Plan == nil {
		return out
	}
	out.Plan, _ = describePlan(route) // cannot fail: the plan contains its own indexes
	return out
}

// unwrapURL removes the wrapper that repeats the address.
func unwrapURL(err error) error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		return wrapped.Err
	}
	return err
}
