package advertise

import (
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ringway/ringway/internal/clusterscript"
	"github.com/ringway/ringway/membership/identity"
)

// forms are the statements of the catalogue's histories, in addition to those of every history.
// A worker offers two services of its own accord, and offers the same again in its next
// life. With every history, every view of every member is checked against what
// inspect lists, and no worker may publish twice within a second.
func (f *cluster) forms() []clusterscript.Form {
	each, expect := f.ForEach, clusterscript.Expect
	logPackets := func(on bool) func(clusterscript.Args) error {
		return func(clusterscript.Args) error { f.packetLog.run(on); return nil }
	}
	return append([]clusterscript.Form{
		// the packets that members receive; replayed from a host that is no member's
		{Form: "start the packet log", Do: logPackets(true)},
		{Form: "stop the packet log", Do: logPackets(false)},
		{Form: "replay the packet log to NAMES", Do: f.replay},
		// a process of theirs that is yet to start; later, in it, with the clock of then
		{Form: "save a boot of NAMES", Do: each(f.saveBoot)},
		{Form: "restart NAMES as saved", Do: each(f.restartSaved)},
		{Form: "offer COUNT services at NAMES", Do: func(a clusterscript.Args) error { // instead of what they offered
			return f.Each(a[1], func(p *process) error {
				p.State.services = nil
				for i := range a.Int(0) {
					p.State.services = append(p.State.services, fmt.Sprintf("service-%d", i))
				}
				return f.offer(p)
			})
		}},
		{Form: "change the offer of NAMES[ every DURATION for DURATION]", Do: func(a clusterscript.Args) error {
			for end := time.Now().Add(a.Duration(2)); ; time.Sleep(a.Duration(1)) {
				if a[1] != "" && !time.Now().Before(end) {
					return nil
				}
				if err := f.Each(a[0], f.offer); err != nil || a[1] == "" {
					return err
				}
			}
		}},
		{Form: "withdraw the offer of NAMES", Do: each(f.withdraw)},
		// something drawn happens to a worker every 200 ms
		{Form: "churn for DURATION", Do: f.churn},
		// gossiped by that member
		{Form: `forge a record of (\w+)( in its last life| in ten years)? at NAMES`, Do: f.forge},
		// all live members see each other in their present lives and exactly what the live
		// workers offer, with equal checksums
		expect("converged", f.converged),
		// exactly what the live workers offer
		expect("NAMES sees? everything", each(func(p *process, _ clusterscript.Args) error { return f.truth(p) })),
		expect("NAMES (do not see|does not see|sees?) the offer of NAMES", f.expectOffer),
		expect("NAMES sees? nothing forged", each(func(p *process, _ clusterscript.Args) error {
			if _, forged := generations(p.State.catalogue.View()); len(forged) > 0 {
				return fmt.Errorf("%s sees forged offers of %v", p.Name, forged)
			}
			return nil
		})),
		// a record received, since its start
		expect("one of NAMES counted TEXT", func(a clusterscript.Args) error {
			all, err := f.Resolve(a[0])
			for _, p := range all {
				if testutil.ToFloat64(p.State.catalogue.metrics.received.WithLabelValues(a[1])) > 0 {
					return nil
				}
			}
			return fmt.Errorf("none of %v counted a record as %s: %w", clusterscript.Names(all), a[1], err)
		}),
		// in this life, or more often
		expect("NAMES published COUNT times", each(func(p *process, a clusterscript.Args) error {
			f.Lock()
			defer f.Unlock()
			if count := p.State.publisher.count; count < a.Int(1) {
				return fmt.Errorf("%s published %d times", p.Name, count)
			}
			return nil
		})),
	}, f.Forms()...)
}

// churn lets half of what happens be changes of offers, and keeps two thirds of the
// workers running.
func (f *cluster) churn(a clusterscript.Args) error {
	for end := time.Now().Add(a.Duration(0)); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		workers := f.List(func(p *process) bool { return p.Role == identity.RoleWorker && p.Home() })
		p := workers[f.Random.IntN(len(workers))]
		dead := f.List(func(p *process) bool { return !p.Running })
		happens := f.Random.IntN(10)
		f.Logf("churn: %s, %d", p.Name, happens)
		var err error
		switch {
		case !p.Running:
			err = f.Start(p)
		case happens < 5:
			if len(p.State.services) == 0 {
				p.State.services = []string{"echo"}
			}
			err = f.offer(p)
		case happens < 7:
			err = f.withdraw(p, nil)
		case happens < 8 && len(dead) < len(workers)/3:
			f.Kill(p)
		case happens < 9:
			err = f.Restart(p, false)
		default:
			f.Kill(p)
			p.Host = f.FreshHost()
			err = f.Start(p)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (f *cluster) forge(a clusterscript.Args) error {
	record := Record{NodeID: a[0], Epoch: uint64(time.Now().UnixMilli()), Sequence: 1000, Services: []Service{{Name: "echo", Address: forgedAddress}}}
	if a[0] != "unknown" {
		p, err := f.Find(a[0])
		if err != nil {
			return err
		}
		record.Epoch = p.Node.Epoch()
		if a[1] == "" && p.Role == identity.RoleWorker {
			f.Lock()
			f.forged[instanceOf(p)] = true
			f.Unlock()
		}
	}
	switch a[1] {
	case " in its last life":
		last := uint64(0)
		f.Lock()
		for key := range f.offersLog {
			if key.id == a[0] && key.epoch < record.Epoch {
				last = max(last, key.epoch)
			}
		}
		f.Unlock()
		if last == 0 {
			return fmt.Errorf("%s is in its first life", a[0])
		}
		record.Epoch = last
	case " in ten years":
		record.Epoch = uint64(time.Now().AddDate(10, 0, 0).UnixMilli())
	}
	raw, err := record.Encode()
	if err != nil {
		return err
	}
	return f.Each(a[2], func(forger *process) error {
		return forger.Node.Broadcast(gossipTopic, "forged "+a[0]+a[1], append([]byte{kindRecord}, raw...))
	})
}

func (f *cluster) expectOffer(a clusterscript.Args) error {
	want := !strings.Contains(a[1], "not")
	targets, err := f.Resolve(a[2])
	if err != nil {
		return err
	}
	return f.Each(a[0], func(p *process) error {
		shown, _ := generations(p.State.catalogue.View())
		for _, w := range targets {
			seen := false
			for key, generation := range shown {
				seen = seen || key.id == w.Name && (!want || key == instanceOf(w) && generation == w.State.generation)
			}
			if seen != want {
				m, alive := p.Node.Snapshot().Get(w.Name)
				return fmt.Errorf("%s sees the offer of %s: %v; it sees it alive: %v, in its present life: %v", p.Name, w.Name, seen, alive, m.Epoch == w.Node.Epoch())
			}
		}
		return nil
	})
}
