package membership

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A history is a text file: one statement a line, '#' begins a comment. Members
// of the cluster are called r1, r2, … (relays), g1, … (gates) and w1, … (workers)
// in the order in which they join; strangers, members of another cluster, are
// called x1, x2, …
//
// NAMES is a list such as "r1, w3..w7", or one of the words all (every member of
// ours), relays, workers. DURATION is 300ms, 10s, 15m, 1h30m.
//
//	secure with keys [and certificates] the fleet has the gossip key k1, and an authority
//	join COUNT relays, COUNT workers [through NAMES | by name] [in DURATION]
//	join stranger from CLUSTER/ENVIRONMENT through NAMES
//	join stranger with WHAT through NAMES
//	                                    configured as one of ours; WHAT is one of the
//	                                    lines of impostors in scenario_outsiders_test.go
//	join liar about role|datacenter through NAMES
//	                                    a worker, l1, l2, …, that gossips what its
//	                                    certificate denies
//	kill NAMES                          without a goodbye, all at once
//	leave NAMES                         with one, one after the other
//	restart NAMES [at new addresses] [with clock ±DURATION] [every DURATION]
//	                                    kill, and start at once under the same id
//	crash NAME COUNT times every DURATION [at new addresses]
//	                                    restart again and again
//	partition NAMES | NAMES …           neither hears the other
//	block NAMES -> NAMES                the left is not heard by the right
//	blackhole NAMES                     cut off from everybody, without a refusal
//	heal                                ends all three
//	loss PERCENT%                       of packets, from now on
//	latency DURATION [jitter DURATION]  one way, from now on
//	ignore NAME                         a consumer watches it and never reads
//	dns leads to NAMES                  what "by name" finds from now on: where they are now
//	dns fails | dns is silent           SERVFAIL; no answer at all
//	keys install|use|remove KEY at NAME [fails "TEXT"]
//	                                    through one member, for the whole fleet; keys
//	                                    are called k1, k2, …
//	install KEY on NAMES by hand        there alone, and use it
//	wait DURATION
//	expect no member sees NAMES for DURATION
//	expect WHAT [within DURATION]       without a duration: now
//
// WHAT is one of
//
//	converged                           each live member sees exactly the live ones,
//	                                    and still does after two quiet minutes, with
//	                                    equal checksums and no change in between
//	agreement                           the same, at one moment
//	NAMES see COUNT members
//	NAMES see NAMES                     NAMES do not see NAMES
//	NAMES left                          all live members saw them leave
//	NAMES failed                        all live members saw them fail
//	NAMES are degraded                  NAMES are not degraded
//	NAME is refused "TEXT"              why it is not joined contains TEXT
//	NAME logged "TEXT"                  {k1} in a text is the fingerprint of a key
//	NAMES refused a peer for "REASON" counted so, of those who came to it
//	NAMES have keys KEY, KEY            the one in use first
//	NAMES leave out NAMES               saw that nothing proves what they gossip
//	no false deaths                     not even such as a fault would excuse
//
// Whatever a history says, every snapshot of every member is checked: no
// stranger in it, no instance that never ran, no live member that vanishes
// (unless a fault, or one that ended less than three minutes ago, or a loss of
// more than 5 % explains it), no leave taken for a crash or the reverse.
var statements = []struct {
	form *regexp.Regexp
	make func(m []string) (step, error)
}{
	{form(`join stranger from (\S+)/(\S+) through NAMES`), makeStranger},
	{form(`secure with keys( and certificates)?`), makeSecure},
	{form(`join stranger with (.+) through NAMES`), makeImpostor},
	{form(`join liar about (role|datacenter) through NAMES`), makeLiar},
	{form(`join (\d+) (relay|worker|gate)s?(?:, (\d+) (relay|worker|gate)s?)?(?: through NAMES)?( by name)?(?: in DURATION)?`), makeJoin},
	{form(`kill NAMES`), makeKill},
	{form(`leave NAMES`), makeLeave},
	{form(`restart NAMES( at new addresses)?(?: with clock ([+-]\S+))?(?: every DURATION)?`), makeRestart},
	{form(`crash NAMES (\d+) times every DURATION( at new addresses)?`), makeCrash},
	{form(`partition (.+\|.+)`), makePartition},
	{form(`block NAMES -> NAMES`), makeBlock},
	{form(`blackhole NAMES`), makeBlackhole},
	{form(`heal`), makeHeal},
	{form(`loss (\d+)%`), makeLoss},
	{form(`latency DURATION(?: jitter DURATION)?`), makeLatency},
	{form(`ignore NAMES`), makeIgnore},
	{form(`dns leads to NAMES`), makeNames},
	{form(`dns (fails|is silent)`), makeNoNames},
	{form(`keys (install|use|remove) k(\d+) at NAMES(?: fails "(.*)")?`), makeKeys},
	{form(`install k(\d+) on NAMES by hand`), makeInstallByHand},
	{form(`wait DURATION`), makeWait},
	{form(`expect no member sees NAMES for DURATION`), makeUnseen},
	{form(`expect (.+?)(?: within DURATION)?`), makeExpect},
}

var expectations = []struct {
	form *regexp.Regexp
	make func(m []string) (check, error)
}{
	{form(`agreement`), func([]string) (check, error) { return (*cluster).agreement, nil }},
	{form(`no false deaths`), func([]string) (check, error) { return noFalseDeaths, nil }},
	{form(`NAMES sees? (\d+) members?`), expectCount},
	{form(`NAMES (do not see|does not see|sees?) NAMES`), expectSees},
	{form(`NAMES (left|failed)`), expectGone},
	{form(`NAMES (?:are|is) (not )?degraded`), expectDegraded},
	{form(`NAMES is refused "(.*)"`), expectRefused},
	{form(`NAMES logged "(.*)"`), expectLogged},
	{form(`NAMES refused a peer for "(.*)"`), expectCounted},
	{form(`NAMES (?:have|has) keys? (k\d+(?:, k\d+)*)`), expectKeys},
	{form(`NAMES leave out NAMES`), expectLeftOut},
}

type (
	step  func(*cluster) error
	check func(*cluster) error
)

const (
	namePattern     = `(?:all|relays|workers|[a-z]+\d+(?:\.\.[a-z]+\d+)?)`
	durationPattern = `((?:\d+(?:\.\d+)?(?:h|ms|m|s))+)`
)

func form(pattern string) *regexp.Regexp {
	names := `(` + namePattern + `(?:, ` + namePattern + `)*)`
	pattern = strings.NewReplacer("NAMES", names, "DURATION", durationPattern).Replace(pattern)
	return regexp.MustCompile(`^` + pattern + `$`)
}

// statement is one line of a history.
type statement struct {
	where string // file:line
	text  string
	do    step
}

// parseHistory reads a whole history and reports every line that is wrong.
func parseHistory(file string, r io.Reader) ([]statement, error) {
	var out []statement
	var errs []error
	lines := bufio.NewScanner(r)
	for number := 1; lines.Scan(); number++ {
		text, _, _ := strings.Cut(lines.Text(), "#")
		if text = strings.Join(strings.Fields(text), " "); text == "" {
			continue
		}
		where := fmt.Sprintf("%s:%d", file, number)
		do, err := parseStatement(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %q: %w", where, text, err))
			continue
		}
		out = append(out, statement{where, text, do})
	}
	return out, errors.Join(append(errs, lines.Err())...)
}

func parseStatement(text string) (step, error) {
	for _, s := range statements {
		if m := s.form.FindStringSubmatch(text); m != nil {
			return s.make(m[1:])
		}
	}
	verb, _, _ := strings.Cut(text, " ")
	for _, s := range statements {
		if strings.HasPrefix(s.form.String(), "^"+verb) {
			return nil, fmt.Errorf("not a form of %q; the forms are listed in scenario_grammar_test.go", verb)
		}
	}
	return nil, fmt.Errorf("unknown statement %q", verb)
}

// names are resolved when a step runs, since "all" depends on who is there.
type names string

func (list names) resolve(c *cluster) ([]*process, error) {
	var out []*process
	for item := range strings.SplitSeq(string(list), ",") {
		item = strings.TrimSpace(item)
		if want, group := map[string]Role{"all": "", "relays": RoleRelay, "workers": RoleWorker}[item]; group {
			for _, p := range c.live() {
				if want == "" || p.role == want {
					out = append(out, p)
				}
			}
			continue
		}
		first, last, isRange := strings.Cut(item, "..")
		if !isRange {
			last = first
		}
		prefix := strings.TrimRight(first, "0123456789")
		from, _ := strconv.Atoi(strings.TrimPrefix(first, prefix))
		to, err := strconv.Atoi(strings.TrimPrefix(last, prefix))
		if err != nil || to < from {
			return nil, fmt.Errorf("%q is not a range", item)
		}
		for i := from; i <= to; i++ {
			p, err := c.find(prefix + strconv.Itoa(i))
			if err != nil {
				return nil, err
			}
			out = append(out, p)
		}
	}
	return out, nil
}

// each runs something for every one of the names.
func (list names) each(c *cluster, do func(*process) error) error {
	all, err := list.resolve(c)
	if err != nil {
		return err
	}
	for _, p := range all {
		if err := do(p); err != nil {
			return err
		}
	}
	return nil
}

func (list names) addrs(c *cluster) ([]netip.Addr, error) {
	var out []netip.Addr
	err := list.each(c, func(p *process) error {
		out = append(out, p.host.IP())
		return nil
	})
	return out, err
}

// duration parses an optional one; the pattern has checked its form.
func duration(text string) time.Duration {
	d, _ := time.ParseDuration(text)
	return d
}

func (c *cluster) join(p *process, list names) error {
	if list != "" {
		err := list.each(c, func(seed *process) error {
			p.seeds = append(p.seeds, seed.name)
			return nil
		})
		if err != nil {
			return err
		}
	}
	c.add(p)
	return c.start(p)
}

func (c *cluster) nextName(prefix string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 1
	for _, p := range c.processes {
		if strings.TrimRight(p.name, "0123456789") == prefix {
			n++
		}
	}
	return prefix + strconv.Itoa(n)
}

func makeJoin(m []string) (step, error) {
	type batch struct {
		count int
		role  Role
	}
	var batches []batch
	total := 0
	for i := 0; i < 4; i += 2 {
		if m[i] == "" {
			continue
		}
		n, err := strconv.Atoi(m[i])
		if err != nil || n < 1 || n > 1000 {
			return nil, fmt.Errorf("count %s: allowed are 1 to 1000", m[i])
		}
		batches = append(batches, batch{n, Role(m[i+1])})
		total += n
	}
	seeds, byName, span := names(m[4]), m[5] != "", duration(m[6])
	return func(c *cluster) error {
		pause := max(10*time.Millisecond, span/time.Duration(total))
		for _, b := range batches {
			for range b.count {
				p := &process{name: c.nextName(string(b.role[:1])), role: b.role, cluster: homeCluster, environment: homeEnvironment, byName: byName}
				own := seeds
				if seeds == names(p.name) {
					own = "" // the seed itself is among the first to join
				}
				if err := c.join(p, own); err != nil {
					return err
				}
				time.Sleep(pause)
			}
		}
		return nil
	}, nil
}

func makeStranger(m []string) (step, error) {
	return func(c *cluster) error {
		p := &process{name: c.nextName("x"), role: RoleWorker, cluster: m[0], environment: m[1]}
		return c.join(p, names(m[2]))
	}, nil
}

func makeKill(m []string) (step, error) {
	return func(c *cluster) error {
		return names(m[0]).each(c, func(p *process) error { c.kill(p); return nil })
	}, nil
}

func makeLeave(m []string) (step, error) {
	return func(c *cluster) error { return names(m[0]).each(c, c.leave) }, nil
}

func (c *cluster) restart(p *process, move bool) error {
	c.kill(p)
	if move {
		p.host.Move(c.freshHost())
	}
	time.Sleep(5 * time.Millisecond) // no process starts in no time
	return c.start(p)
}

func makeRestart(m []string) (step, error) {
	skew, every := duration(strings.TrimPrefix(m[2], "+")), duration(m[3])
	if m[2] != "" && skew == 0 {
		return nil, fmt.Errorf("clock %q: give a duration such as -1h", m[2])
	}
	return func(c *cluster) error {
		return names(m[0]).each(c, func(p *process) error {
			p.skew = skew
			err := c.restart(p, m[1] != "")
			time.Sleep(every)
			return err
		})
	}, nil
}

func makeCrash(m []string) (step, error) {
	times, err := strconv.Atoi(m[1])
	if err != nil || times > 10_000 {
		return nil, fmt.Errorf("%s times: allowed are 1 to 10000", m[1])
	}
	return func(c *cluster) error {
		return names(m[0]).each(c, func(p *process) error {
			for range times {
				if err := c.restart(p, m[3] != ""); err != nil {
					return err
				}
				time.Sleep(duration(m[2]))
			}
			return nil
		})
	}, nil
}

func makePartition(m []string) (step, error) {
	var lists []names
	for part := range strings.SplitSeq(m[0], "|") {
		lists = append(lists, names(strings.TrimSpace(part)))
	}
	return func(c *cluster) error {
		var groups [][]netip.Addr
		for _, list := range lists {
			addrs, err := list.addrs(c)
			if err != nil {
				return err
			}
			groups = append(groups, addrs)
		}
		c.setFault(true)
		c.network.Partition(groups...)
		return nil
	}, nil
}

func makeBlock(m []string) (step, error) {
	return func(c *cluster) error {
		from, err := names(m[0]).addrs(c)
		if err != nil {
			return err
		}
		to, err := names(m[1]).addrs(c)
		if err != nil {
			return err
		}
		c.setFault(true)
		for _, a := range from {
			for _, b := range to {
				c.network.Block(a, b)
			}
		}
		return nil
	}, nil
}

func makeBlackhole(m []string) (step, error) {
	return func(c *cluster) error {
		c.setFault(true)
		return names(m[0]).each(c, func(p *process) error {
			c.network.Blackhole(p.host.IP())
			return nil
		})
	}, nil
}

func makeHeal([]string) (step, error) {
	return func(c *cluster) error {
		c.network.Heal()
		c.setFault(false)
		return nil
	}, nil
}

func makeLoss(m []string) (step, error) {
	percent, err := strconv.Atoi(m[0])
	if err != nil || percent > 100 {
		return nil, fmt.Errorf("loss %s%%: allowed are 0 to 100", m[0])
	}
	return func(c *cluster) error {
		c.mu.Lock()
		if c.loss > lossIsFault {
			c.healed = time.Now()
		}
		c.loss = float64(percent) / 100
		c.mu.Unlock()
		c.network.SetLoss(c.loss)
		return nil
	}, nil
}

func makeLatency(m []string) (step, error) {
	return func(c *cluster) error { c.network.SetLatency(duration(m[0]), duration(m[1])); return nil }, nil
}

func makeIgnore(m []string) (step, error) {
	return func(c *cluster) error {
		return names(m[0]).each(c, func(p *process) error {
			ctx, cancel := context.WithCancel(context.Background())
			_ = p.node.Watch(ctx)
			stop := p.cancel
			p.cancel = func() { cancel(); stop() }
			return nil
		})
	}, nil
}

func makeWait(m []string) (step, error) {
	return func(*cluster) error { time.Sleep(duration(m[0])); return nil }, nil
}

func makeUnseen(m []string) (step, error) {
	return func(c *cluster) error {
		mark := func(on bool) func(*process) error {
			return func(p *process) error {
				c.mu.Lock()
				p.unseen = on
				c.mu.Unlock()
				return nil
			}
		}
		if err := names(m[0]).each(c, mark(true)); err != nil {
			return err
		}
		// The monitor looks at new snapshots; here at those that stay as they are.
		for _, p := range c.live() {
			err := names(m[0]).each(c, func(unseen *process) error {
				if _, seen := p.node.Snapshot().Get(unseen.name); seen && p != unseen {
					return fmt.Errorf("%s sees %s", p.name, unseen.name)
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
		time.Sleep(duration(m[1]))
		return names(m[0]).each(c, mark(false))
	}, nil
}

func makeExpect(m []string) (step, error) {
	within := duration(m[1])
	if m[0] == "converged" {
		return func(c *cluster) error { return c.converged(within) }, nil
	}
	for _, e := range expectations {
		if args := e.form.FindStringSubmatch(m[0]); args != nil {
			ask, err := e.make(args[1:])
			if err != nil {
				return nil, err
			}
			return func(c *cluster) error {
				return eventually(within, func() error { return ask(c) })
			}, nil
		}
	}
	return nil, fmt.Errorf("unknown expectation %q; they are listed in scenario_grammar_test.go", m[0])
}

func noFalseDeaths(c *cluster) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.deaths) > 0 {
		return fmt.Errorf("%d false deaths, first %s", len(c.deaths), c.deaths[0])
	}
	return nil
}

func expectCount(m []string) (check, error) {
	want, err := strconv.Atoi(m[1])
	if err != nil {
		return nil, err
	}
	return func(c *cluster) error {
		return names(m[0]).each(c, func(p *process) error {
			if got := p.node.Snapshot().Members(); len(got) != want {
				return fmt.Errorf("%s sees %d members: %v", p.name, len(got), idsOf(got))
			}
			return nil
		})
	}, nil
}

func expectSees(m []string) (check, error) {
	want := !strings.Contains(m[1], "not")
	return func(c *cluster) error {
		targets, err := names(m[2]).resolve(c)
		if err != nil {
			return err
		}
		return names(m[0]).each(c, func(p *process) error {
			for _, target := range targets {
				got, seen := p.node.Snapshot().Get(target.name)
				if seen = seen && got.Epoch == target.node.Epoch(); seen != want {
					return fmt.Errorf("%s sees %s in its present life: %v", p.name, target.name, seen)
				}
			}
			return nil
		})
	}, nil
}

func expectGone(m []string) (check, error) {
	return func(c *cluster) error {
		return names(m[0]).each(c, func(gone *process) error {
			for _, p := range c.live() {
				d, known := p.node.Snapshot().Departed(gone.name)
				if p != gone && (!known || string(d.Reason) != m[1]) {
					return fmt.Errorf("%s says that %s %q", p.name, gone.name, d.Reason)
				}
			}
			return nil
		})
	}, nil
}

func expectDegraded(m []string) (check, error) {
	want := m[1] == ""
	return func(c *cluster) error {
		return names(m[0]).each(c, func(p *process) error {
			if s := p.node.Snapshot(); s.Degraded() != want {
				return fmt.Errorf("degraded is %v at %s, which sees %d members", s.Degraded(), p.name, len(s.Members()))
			}
			return nil
		})
	}, nil
}

func expectRefused(m []string) (check, error) {
	return func(c *cluster) error {
		return names(m[0]).each(c, func(p *process) error {
			if err := p.node.Status().Err; err == nil || !strings.Contains(err.Error(), withFingerprints(m[1])) {
				return fmt.Errorf("%s says %v", p.name, err)
			}
			return nil
		})
	}, nil
}

func expectLogged(m []string) (check, error) {
	return func(c *cluster) error {
		return names(m[0]).each(c, func(p *process) error {
			c.mu.Lock()
			defer c.mu.Unlock()
			said := slices.ContainsFunc(strings.Split(c.history.String(), "\n"), func(line string) bool {
				return strings.Contains(line, "  "+p.name+": ") && strings.Contains(strings.ReplaceAll(line, `\"`, `"`), withFingerprints(m[1]))
			})
			if !said {
				return fmt.Errorf("%s did not", p.name)
			}
			return nil
		})
	}, nil
}
