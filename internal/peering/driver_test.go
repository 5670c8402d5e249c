package peering_test

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/peering"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

// driver is one relay: it plans with what it knows, and does what its table asks for, as
// the router of a relay does.
type driver struct {
	*cluster
	*variant
	self   *process
	life   int
	random *rand.Rand
	views  *membership.Node

	table    *peering.Table[string] // far ends are workers by id
	relays   *peering.Grace[affinity.Relay]
	workers  *peering.Grace[affinity.Worker]
	linked   []string // in the range or within slack of it
	inRange  int
	epochs   map[string]uint64
	attempts map[string]int // numbers the last opening of each worker
	ended    chan attempt
}

// attempt is the end of an opening.
type attempt struct {
	worker string
	number int
}

func newDriver(c *cluster, v *variant, p *process) (*driver, error) {
	table, err := peering.NewTable[string](peering.Config{})
	return &driver{
		cluster: c, variant: v, self: p, life: p.State.life, views: p.Node, table: table,
		random:  rand.New(rand.NewPCG(c.Random.Uint64(), 0)),
		relays:  peering.NewGrace(v.grace, func(r affinity.Relay) string { return r.ID }),
		workers: peering.NewGrace(v.grace, func(w affinity.Worker) string { return w.ID }),
		epochs:  map[string]uint64{}, attempts: map[string]int{}, ended: make(chan attempt),
	}, err
}

func (d *driver) run(ctx context.Context) {
	views := d.views.Watch(ctx)
	audit := time.NewTicker(2 * time.Second)
	defer audit.Stop()
	var coalesced, due, graceOver <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-views:
			if coalesced == nil {
				coalesced = time.After(100 * time.Millisecond)
			}
			continue
		case <-coalesced:
			coalesced = nil
			graceOver = at(d.plan())
		case <-graceOver:
			graceOver = at(d.plan())
		case a := <-d.ended:
			d.finish(a)
		case <-due:
		case <-audit.C:
			d.audit()
		}
		due = at(d.act(ctx))
	}
}

func at(moment time.Time) <-chan time.Time {
	if moment.IsZero() {
		return nil
	}
	return time.After(time.Until(moment))
}

// plan asks for the connections of the newest snapshot. It returns when a vanished
// member loses its place.
func (d *driver) plan() (next time.Time) {
	now, snapshot := time.Now(), d.views.Snapshot()
	cfg := affinity.PlanConfig{Service: "s", RelaysPerService: serving, IndexSource: d.index}
	for _, m := range snapshot.Members() {
		switch {
		case m.Leaving:
		case m.Role == identity.RoleRelay:
			cfg.Relays = append(cfg.Relays, affinity.Relay{ID: m.ID})
		default:
			for _, w := range d.workersOf(m.ID) {
				cfg.Workers = append(cfg.Workers, affinity.Worker{ID: w})
			}
		}
	}
	var absent peering.Absent
	var over time.Time
	absent.Relays, next = d.relays.Update(cfg.Relays, now)
	absent.Workers, over = d.workers.Update(cfg.Workers, now)
	if !over.IsZero() && (next.IsZero() || over.Before(next)) {
		next = over
	}
	if len(cfg.Workers) == 0 || len(cfg.Relays) == 0 {
		return next
	}
	plan, err := peering.Plan(cfg, absent)
	if err != nil {
		d.fail("%s cannot plan: %v", d.self.Name, err)
		return next
	}
	there := map[string]bool{}
	for _, w := range cfg.Workers {
		there[w.ID] = true
		if m, _ := snapshot.Get(memberOf(w.ID)); d.epochs[w.ID] != m.Epoch {
			d.epochs[w.ID] = m.Epoch
			d.table.Renewed(w.ID)
		}
	}
	var in, near []string
	if i, serves := plan.Index(d.self.Name); serves {
		row, err := plan.Assignments(i)
		if err != nil {
			d.fail("%s cannot plan: %v", d.self.Name, err)
		}
		for _, a := range row {
			if there[a.Worker] {
				in = append(in, a.Worker)
			}
		}
		for _, w := range d.linked {
			if there[w] && plan.Keeps(i, w, slack) {
				near = append(near, w)
			}
		}
	}
	d.linked, d.inRange = append(in[:len(in):len(in)], near...), len(in)
	d.table.Want("s", in, near, now)
	return next
}

func (d *driver) fail(format string, args ...any) {
	d.Lock()
	defer d.Unlock()
	d.Breach(format, args...)
}

// act does what is due. An opening takes 1 to 20 ms.
func (d *driver) act(ctx context.Context) time.Time {
	actions := d.table.Step(time.Now())
	d.Lock()
	defer d.Unlock()
	for _, w := range actions.Close {
		d.attempts[w]++ // an opening under way is given up
		k := pair{d.self.Name, w}
		if ends, open := d.open[k]; open {
			d.remove(k)
			d.closed[k] = closing{time.Now(), ends}
		}
	}
	for _, w := range actions.Open {
		d.attempts[w]++
		a := attempt{w, d.attempts[w]}
		takes := time.Duration(1+d.random.IntN(20)) * time.Millisecond
		d.Tasks.Go(func() {
			time.Sleep(takes)
			select {
			case d.ended <- a:
			case <-ctx.Done():
			}
		})
	}
	if !d.alive() {
		return actions.Next
	}
	states, open := d.table.Count(), 0
	for k := range d.open {
		if k.relay == d.self.Name {
			open++
		}
	}
	if states[peering.Open] > d.inRange || states[peering.Spare] > 2*slack || open > states[peering.Open]+states[peering.Spare]+states[peering.Draining] {
		d.Breach("%s: %s has %d connections open for a range of %d: %v", d.name, d.self.Name, open, d.inRange, states)
	}
	return actions.Next
}

// alive reports whether this life of the relay goes on. The caller holds mu.
func (d *driver) alive() bool { return d.self.Running && d.self.State.life == d.life }

// finish takes the end of an opening.
func (d *driver) finish(a attempt) {
	worker, err := d.Find(memberOf(a.worker))
	d.Lock()
	defer d.Unlock()
	now := time.Now()
	switch {
	case !d.alive() || a.number != d.attempts[a.worker]:
	case err != nil || !worker.Running:
		d.table.Failed(a.worker, now)
	default:
		d.table.Opened(a.worker, now)
		k, ends := pair{d.self.Name, a.worker}, lives{d.life, worker.State.life}
		d.open[k] = ends
		d.degree[a.worker]++
		d.opened++
		was, before := d.closed[k]
		if !before || was.ends != ends {
			return
		}
		if d.unsettled.Before(was.at.Add(-d.grace - time.Second)) {
			d.Breach("%s: %v was closed %v ago and is open again, and nothing has changed", d.name, k, now.Sub(was.at))
		}
		if now.Sub(was.at) < flapWithin {
			d.flaps++
			d.Note("%s: %v was closed %v ago and is open again", d.name, k, now.Sub(was.at))
		}
	}
}

// audit notifies the table which connections have broken.
func (d *driver) audit() {
	d.Lock()
	defer d.Unlock()
	open := map[string]struct{}{}
	for k := range d.open {
		if k.relay == d.self.Name {
			open[k.worker] = struct{}{}
		}
	}
	if _, surplus := d.table.Audit(open, time.Now()); d.alive() && len(surplus) > 0 {
		d.Breach("%s: %s has connections that it knows nothing of: %v", d.name, d.self.Name, surplus)
	}
}
