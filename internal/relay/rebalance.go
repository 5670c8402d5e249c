package relay

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/metric"
	"github.com/ringway/ringway/internal/process"
	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/internal/wire"
	"github.com/ringway/ringway/selection"
)

const (
	// maxRebalanceRate bounds what a rebalance costs: before each session that it asks to go
	// it counts all.
	maxRebalanceRate = 100
	// rebalanceReport is how often a rebalance reports its progress.
	rebalanceReport = time.Second
	// joining bounds the wait for the slow start of workers, of 3 s: a worker that joins again
	// and again must not prevent a rebalance.
	joining = 6 * time.Second
	// comeBack is how long a rebalance waits at its end for the clients that it has asked to
	// go, and comeBackTick how often it counts them.
	comeBack     = 3 * time.Second
	comeBackTick = 50 * time.Millisecond
	// rebalanceWrite limits the write of one report: a rebalance that is not watched ends.
	rebalanceWrite = 10 * time.Second
	// away is how long a client that was asked to go counts as on its way. No more are on
	// their way than there are workers below their shares: with two handshakes of 100 ms at
	// each, these workers would look as if they hung, and the next clients would come back
	// to the worker that they left.
	away     = time.Second
	awayTick = 10 * time.Millisecond
)

// rebalances are the running rebalances, at most one per service.
type rebalances struct {
	mu      sync.Mutex
	running map[string]bool
	moved   *prometheus.CounterVec
}

func newRebalances(reg prometheus.Registerer) *rebalances {
	return &rebalances{running: map[string]bool{}, moved: metric.With(reg).CounterVec("ringway_relay_sessions_rebalanced_total", "Sessions that this relay asked to go because their worker had more than its share, by `relay rebalance`.", "service")}
}

// begin returns false if a rebalance of the service is running.
func (b *rebalances) begin(service string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.running[service] {
		return false
	}
	b.running[service] = true
	return true
}

func (b *rebalances) end(service string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.running, service)
}

// rebalance asks sessions of one service to go.
type rebalance struct {
	relay   *Relay
	service *routing.Service
	cut     bool    // also sessions without a close frame
	rate    float64 // sessions per second

	began   time.Time
	total   int            // sessions at the beginning
	asked   []time.Time    // when sessions were asked to go
	askedOf map[string]int // how many, by worker
	may     map[string]int // how many may be asked, by worker
	newer   int            // open sessions that have begun since the beginning
}

// newRebalance reads the parameters of a request.
func (r *Relay) newRebalance(req *http.Request, s *routing.Service) (*rebalance, error) {
	b := &rebalance{relay: r, service: s, rate: api.DefaultRebalanceRate, askedOf: map[string]int{}}
	q := req.URL.Query()
	var err error
	if text := q.Get("cut"); text != "" {
		if b.cut, err = strconv.ParseBool(text); err != nil {
			return nil, fmt.Errorf("cut=%.20q: allowed are true and false", text)
		}
	}
	if text := q.Get("rate"); text != "" {
		// Negated, so that NaN is refused too.
		if b.rate, err = strconv.ParseFloat(text, 64); err != nil || !(b.rate >= 0.01 && b.rate <= maxRebalanceRate) {
			return nil, fmt.Errorf("rate=%.20q: allowed are 0.01 to %d sessions per second", text, maxRebalanceRate)
		}
	}
	return b, nil
}

// rebalancedWorker is a worker in the plan of a rebalance.
type rebalancedWorker struct {
	api.RebalancedWorker
	youngest upstream.Tunnel // of those that can be asked
}

// plan counts the sessions and computes the shares and what is above them.
func (b *rebalance) plan() ([]rebalancedWorker, error) {
	listed, err := b.service.Sessions(&b.relay.Sessions, selection.Instant(time.Since(b.relay.Epoch())))
	if err != nil {
		return nil, err
	}
	workers, holdings, counted := make([]rebalancedWorker, len(listed)), make([]routing.Holding, len(listed)), 0
	movable := make([]int, len(listed))
	b.newer = 0
	for i, l := range listed {
		w := &workers[i]
		w.RebalancedWorker = api.RebalancedWorker{Worker: l.Target.Node, Weight: l.Weight, Sessions: len(l.Open), Asked: b.askedOf[l.Target.Node], Out: l.Out, Joining: l.Joining}
		for j, one := range l.Open {
			if !b.began.IsZero() && one.Opened.After(b.began) {
				b.newer++
			}
			switch {
			case l.Bound[j]:
				w.Bound++
			case !one.WebSocket && !b.cut:
				w.NoClose++
			case b.began.IsZero() || one.Opened.Before(b.began): // none is asked twice
				if movable[i]++; one.Opened.After(w.youngest.Opened) {
					w.youngest = one
				}
			}
		}
		if l.Weight > 0 {
			holdings[i] = routing.Holding{Weight: l.Weight, Sessions: w.Sessions, Fixed: w.Bound + w.NoClose, Limit: l.Target.Limit}
			counted += w.Sessions
		}
	}
	if b.began.IsZero() {
		b.total = counted
	}
	// Clients that were asked to go come back: without them the shares would shrink while
	// they are away, and more would be asked than the surplus.
	total := max(counted, min(b.total, counted+len(b.asked)))
	for i, share := range routing.FairShares(holdings, total) {
		if w := &workers[i]; w.Weight > 0 {
			w.Share = share
			w.Surplus = min(max(w.Sessions-share, 0), movable[i])
		}
	}
	return workers, nil
}

// awaitJoiners waits for workers in their slow start: until then they get few of the
// sessions that come back.
func (b *rebalance) awaitJoiners(ctx context.Context) {
	for began := time.Now(); time.Since(began) < joining && ctx.Err() == nil; {
		workers, _ := b.plan()
		if !slices.ContainsFunc(workers, func(w rebalancedWorker) bool { return w.Joining }) {
			return
		}
		select {
		case <-time.After(comeBackTick):
		case <-ctx.Done():
		}
	}
}

// begin takes the surplus as the limit of what is asked: one more than that of each worker
// at the beginning, because a client may come back to the worker that it left.
func (b *rebalance) begin(workers []rebalancedWorker) {
	b.began, b.may = time.Now(), map[string]int{}
	for _, w := range workers {
		b.may[w.Worker] = w.Surplus + 1
	}
}

// onTheWay is how many of the clients that were asked to go have not come back, of those that
// were asked lately.
func (b *rebalance) onTheWay() int {
	lately := 0
	for lately < len(b.asked) && time.Since(b.asked[len(b.asked)-1-lately]) < away {
		lately++
	}
	return min(lately, max(len(b.asked)-b.newer, 0))
}

// step asks one session to go if there is a surplus, the youngest of the worker with the
// largest, once there is a worker below its share for each client on the way. It returns when
// to continue, 0 at the end.
func (b *rebalance) step() (wait time.Duration, err error) {
	workers, err := b.plan()
	if err != nil {
		return 0, err
	}
	var from *rebalancedWorker
	sessions, below := 0, 0
	for i := range workers {
		w := &workers[i]
		if w.Weight > 0 {
			sessions += w.Sessions
			if w.Sessions < w.Share {
				below++
			}
		}
		if w.Surplus > 0 && b.askedOf[w.Worker] < max(b.may[w.Worker], 1) && (from == nil || w.Surplus > from.Surplus) {
			from = w
		}
	}
	switch {
	case from != nil && b.onTheWay() >= max(below, 1):
		return awayTick, nil
	case from != nil:
		if b.relay.Sessions.EndTunnel(from.youngest) {
			b.asked = append(b.asked, time.Now())
			b.askedOf[from.Worker]++
			b.relay.rebalances.moved.WithLabelValues(b.service.Name).Inc()
		}
		return time.Duration(float64(time.Second) / b.rate), nil
	case len(b.asked) > 0 && sessions < b.total && time.Since(b.asked[len(b.asked)-1]) < comeBack:
		return comeBackTick, nil
	}
	return 0, nil
}

// describe is an answer of the admin API.
func (b *rebalance) describe(state string) (api.Rebalance, error) {
	s := b.service
	a := api.Rebalance{Relay: b.relay.cfg.Membership.ID, Service: s.Name, Role: role(s.Route()), State: state, Rate: b.rate, Asked: len(b.asked), Workers: []api.RebalancedWorker{}}
	if plan := s.Route().Plan; plan != nil && !s.Route().Affine() {
		a.AskInstead = plan.Affine()
	}
	workers, err := b.plan()
	for _, w := range workers {
		a.Workers = append(a.Workers, w.RebalancedWorker)
	}
	return a, err
}

// showRebalance answers which sessions a rebalance would ask to go now.
func (r *Relay) showRebalance(w http.ResponseWriter, req *http.Request, s *routing.Service) {
	b, err := r.newRebalance(req, s)
	if err != nil {
		process.WriteError(w, http.StatusBadRequest, err.Error())
		return
	}
	answer, err := b.describe(api.RebalancePlanned)
	if err != nil {
		process.WriteError(w, http.StatusConflict, err.Error())
		return
	}
	process.WriteJSON(w, http.StatusOK, answer)
}

// runRebalance asks sessions above the shares of their workers to go, while the client
// reads the progress: it ends with the request.
func (r *Relay) runRebalance(w http.ResponseWriter, req *http.Request, s *routing.Service) {
	refuse := func(status int, format string, args ...any) {
		process.WriteError(w, status, fmt.Sprintf(format, args...))
	}
	b, err := r.newRebalance(req, s)
	switch {
	case err != nil:
		refuse(http.StatusBadRequest, "%v", err)
		return
	case r.stopping.Load():
		refuse(http.StatusConflict, "this relay stops, and ends its sessions")
		return
	case s.Route().TCP && !b.cut:
		refuse(http.StatusConflict, "the sessions of %s are TCP: no close frame asks their clients to go. --cut (cut=true) ends their connections", s.Name)
		return
	case !r.rebalances.begin(s.Name):
		refuse(http.StatusConflict, "a rebalance of %s is running at this relay: wait, or end it with Ctrl-C where it was started", s.Name)
		return
	}
	defer r.rebalances.end(s.Name)
	stream := process.NewStream(w, rebalanceWrite)
	defer stream.Close()
	b.awaitJoiners(req.Context())
	planned, err := b.describe(api.RebalancePlanned)
	if err != nil {
		refuse(http.StatusConflict, "%v", err)
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set(wire.RelayHeader, r.cfg.Membership.ID)
	send := func(a api.Rebalance) bool {
		line, _ := json.Marshal(a) // it has no value that cannot be encoded
		_, err := stream.Write(append(line, '\n'))
		return err == nil && stream.Flush() == nil
	}
	if len(planned.AskInstead) == 0 && !send(planned) {
		return
	}
	surplus := 0
	for _, one := range planned.Workers {
		surplus += one.Surplus
	}
	log := r.cfg.Logger.With("service", s.Name)
	log.Info("rebalance of sessions begins", "sessions", b.total, "surplus", surplus, "rate", b.rate, "cut", b.cut)
	ended := b.run(req, send)
	last, err := b.describe(api.RebalanceDone)
	if err != nil {
		ended = err.Error()
	} else if left := above(last.Workers); ended == "" && len(left) > 0 {
		ended = "above their shares are still " + strings.Join(left, ", ") + ": the rest cannot be asked, or came back"
	} else if ended == "" {
		ended = "no worker is above its share"
	}
	last.Reason = ended
	log.Info("rebalance of sessions ends", "asked", len(b.asked), "reason", ended)
	send(last)
}

// above lists the workers with more sessions than their shares.
func above(workers []api.RebalancedWorker) (names []string) {
	for _, w := range workers {
		if w.Weight > 0 && w.Sessions > w.Share {
			names = append(names, w.Worker)
		}
	}
	return names
}

// run returns why the rebalance has ended before its time, empty at its own end.
func (b *rebalance) run(req *http.Request, send func(api.Rebalance) bool) (ended string) {
	if workers, err := b.plan(); err == nil {
		b.begin(workers)
	}
	report, next := time.NewTicker(rebalanceReport), time.NewTimer(0)
	defer report.Stop()
	defer next.Stop()
	for {
		select {
		case <-req.Context().Done():
			return "the caller has ended it"
		case <-report.C:
			if now, err := b.describe(api.RebalanceRunning); err == nil && !send(now) {
				return "the caller has ended it"
			}
		case <-next.C:
			if b.relay.stopping.Load() {
				return "this relay stops"
			}
			wait, err := b.step()
			if err != nil {
				return err.Error()
			}
			if wait == 0 {
				return ""
			}
			next.Reset(wait)
		}
	}
}
