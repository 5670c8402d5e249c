package clusterscript

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ringway/ringway/membership/identity"
)

// Forms are the statements that every package shares. A nil cluster has them as well, to
// check what is never played.
func (c *Cluster[S]) Forms() []Form {
	each := c.ForEach
	return []Form{
		{"join JOINERS[ through NAMES][ in DURATION]", func(a Args) error { return c.JoinAll(a[0], a[1], a.Duration(2), nil) }},
		{`join stranger from (\w+)/(\w+)[ through NAMES]`, func(a Args) error {
			p := c.NewProcess("x", identity.RoleWorker)
			p.Cluster, p.Environment = a[0], a[1]
			return c.Join(p, a[2])
		}},
		{"kill NAMES", each(func(p *Process[S], _ Args) error { c.Kill(p); return nil })}, // without a goodbye, all together
		{"leave NAMES", each(func(p *Process[S], _ Args) error { return c.Leave(p) })},    // with one, one after the other
		{"start NAMES", each(func(p *Process[S], _ Args) error { return c.Start(p) })},
		{"restart NAMES[ at new addresses][ every DURATION]", each(func(p *Process[S], a Args) error {
			err := c.Restart(p, a[1] != "")
			time.Sleep(a.Duration(2))
			return err
		})},
		{"crash NAMES COUNT times every DURATION[ at new addresses]", each(func(p *Process[S], a Args) error {
			for range a.Int(1) {
				if err := c.Restart(p, a[3] != ""); err != nil {
					return err
				}
				time.Sleep(a.Duration(2))
			}
			return nil
		})},
		{"partition SIDES", c.partition},  // neither hears the other
		{"block NAMES -> NAMES", c.block}, // the left is not heard by the right
		{"blackhole NAMES", each(func(p *Process[S], a Args) error { // cut off from all, without a refusal
			c.faults(func() { c.fault = true })
			c.Network.Blackhole(p.Host.IP())
			return nil
		})},
		{"heal", func(Args) error { // ends all three
			c.Network.Heal()
			c.faults(func() { c.fault = false })
			return nil
		}},
		{"loss PERCENT", func(a Args) error { // of packets, from now on
			share := float64(a.Int(0)) / 100
			c.faults(func() { c.loss = share })
			c.Network.SetLoss(share)
			return nil
		}},
		{"latency DURATION[ jitter DURATION]", func(a Args) error { // one way, from now on
			c.Network.SetLatency(a.Duration(0), a.Duration(1))
			return nil
		}},
		{"wait DURATION", func(a Args) error { time.Sleep(a.Duration(0)); return nil }},
		Expect("agreement", func(Args) error { return c.Agreement() }),
	}
}

// ForEach plays a statement whose first argument is NAMES.
func (c *Cluster[S]) ForEach(do func(*Process[S], Args) error) func(Args) error {
	return func(a Args) error { return c.Each(a[0], func(p *Process[S]) error { return do(p, a) }) }
}

// Each does something for every process of a list, up to the first error.
func (c *Cluster[S]) Each(list string, do func(*Process[S]) error) error {
	all, err := c.Resolve(list)
	for _, p := range all {
		if err == nil {
			err = do(p)
		}
	}
	return err
}

// JoinAll starts new members one after the other, evenly over a span. The seed itself
// may be among them: it knows none.
func (c *Cluster[S]) JoinAll(joiners, through string, span time.Duration, prepare func(*Process[S])) error {
	var roles []identity.Role
	for batch := range strings.SplitSeq(joiners, ", ") {
		count, role, _ := strings.Cut(batch, " ")
		n, _ := strconv.Atoi(count)
		roles = append(roles, slices.Repeat([]identity.Role{identity.Role(strings.TrimSuffix(role, "s"))}, n)...)
	}
	for _, role := range roles {
		p := c.NewProcess(string(role[:1]), role)
		if prepare != nil {
			prepare(p)
		}
		seeds := through
		if seeds == p.Name {
			seeds = ""
		}
		if err := c.Join(p, seeds); err != nil {
			return err
		}
		time.Sleep(max(10*time.Millisecond, span/time.Duration(len(roles))))
	}
	return nil
}

func (c *Cluster[S]) partition(a Args) error {
	var named []*Process[S]
	var groups [][]netip.Addr
	for side := range strings.SplitSeq(a[0], " | ") {
		before := len(named)
		var err error
		if named, err = c.resolve(side, named); err != nil {
			return err
		}
		groups = append(groups, addrs(named[before:]))
		c.Logf("one side: %v", Names(named[before:]))
	}
	c.faults(func() { c.fault = true })
	c.Network.Partition(groups...)
	return nil
}

func (c *Cluster[S]) block(a Args) error {
	c.faults(func() { c.fault = true })
	return c.Each(a[0], func(from *Process[S]) error {
		return c.Each(a[1], func(to *Process[S]) error {
			c.Network.Block(from.Host.IP(), to.Host.IP())
			return nil
		})
	})
}

func addrs[S any](all []*Process[S]) (out []netip.Addr) {
	for _, p := range all {
		out = append(out, p.Host.IP())
	}
	return out
}

// Names lists the names of processes.
func Names[S any](all []*Process[S]) (out []string) {
	for _, p := range all {
		out = append(out, p.Name)
	}
	return out
}

func (c *Cluster[S]) freshIP() string {
	c.hosts++
	return fmt.Sprintf("10.0.%d.%d", c.hosts/250, 1+c.hosts%250)
}

func (c *Cluster[S]) Find(name string) (*Process[S], error) {
	if all := c.List(func(p *Process[S]) bool { return p.Name == name }); len(all) > 0 {
		return all[0], nil
	}
	return nil, fmt.Errorf("there is no %q", name)
}

func (c *Cluster[S]) List(which func(*Process[S]) bool) (out []*Process[S]) {
	c.Lock()
	defer c.Unlock()
	for _, p := range c.Processes {
		if which(p) {
			out = append(out, p)
		}
	}
	return out
}

// Live lists the members of the home cluster that run.
func (c *Cluster[S]) Live() []*Process[S] {
	return c.List(func(p *Process[S]) bool { return p.Running && p.Home() })
}

// Resolve lists the processes of a list of names, none of "". It is done when a statement
// is played, since "all" depends on who is there.
func (c *Cluster[S]) Resolve(list string) ([]*Process[S], error) {
	if list == "" {
		return nil, nil
	}
	return c.resolve(list, nil)
}

// resolve adds those of a list to those named already.
func (c *Cluster[S]) resolve(list string, named []*Process[S]) ([]*Process[S], error) {
	for item := range strings.SplitSeq(list, ", ") {
		found, err := c.resolveItem(item, named)
		if err != nil {
			return nil, err
		}
		named = append(named, found...)
	}
	return named, nil
}

func (c *Cluster[S]) resolveItem(item string, named []*Process[S]) ([]*Process[S], error) {
	live := func(role identity.Role) []*Process[S] {
		return slices.DeleteFunc(c.Live(), func(p *Process[S]) bool { return role != "" && p.Role != role })
	}
	isNamed := func(p *Process[S]) bool { return slices.Contains(named, p) }
	share, ofWorkers := strings.CutSuffix(item, " of workers")
	switch {
	case item == "all":
		return live(""), nil
	case item == "relays":
		return live(identity.RoleRelay), nil
	case item == "workers":
		return live(identity.RoleWorker), nil
	case item == "others":
		return slices.DeleteFunc(live(""), isNamed), nil
	case item == "dead":
		return c.List(func(p *Process[S]) bool { return !p.Running }), nil
	case ofWorkers:
		of := slices.DeleteFunc(live(identity.RoleWorker), isNamed)
		count, by, isShare := strings.Cut(share, "/")
		n, _ := strconv.Atoi(count)
		if isShare {
			d, _ := strconv.Atoi(by)
			n = max(1, n*len(of)/d)
		}
		c.Random.Shuffle(len(of), func(i, j int) { of[i], of[j] = of[j], of[i] })
		return of[:min(n, len(of))], nil
	}
	first, last, isRange := strings.Cut(item, "..")
	if !isRange {
		last = first
	}
	prefix := strings.TrimRight(first, "0123456789")
	from, _ := strconv.Atoi(first[len(prefix):])
	to, err := strconv.Atoi(strings.TrimPrefix(last, prefix))
	if err != nil || to < from {
		return nil, fmt.Errorf("%q is not a range", item)
	}
	var out []*Process[S]
	for i := from; i <= to; i++ {
		p, err := c.Find(prefix + strconv.Itoa(i))
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}
