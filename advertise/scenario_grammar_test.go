package advertise

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ringway/ringway/membership"
)

// A history is a text file: one statement a line, '#' begins a comment. An N in it
// is the size, also in wN. It is played with its first size and every seed, and
// with every other size and the first seed. The same seed draws the same faults and
// events; the timers of one instant still fire in any order.
//
//	seeds SEED…                         of loss, jitter and all that is drawn
//	sizes NUMBER…
//	raced NUMBER…|none                  the sizes under the race detector, which costs
//	                                    five times as much; default: the first size
//
// Members of the cluster are called r1, r2, … (relays), g1, … (gates) and w1, …
// (workers) in the order in which they join; a stranger, x1, …, is a worker of
// another cluster. A worker offers two services of its own accord, and offers the
// same again in its next life. DURATION is 300ms, 10s, 15m, 1h30m. NAMES is a list
// of these:
//
//	w3   w3..w7   all   relays   workers
//	2 of workers   1/5 of workers       drawn from the live ones
//	others                              the live ones that the statement has not named
//	dead                                those that do not run
//
//	join COUNT relays|gates|workers[, COUNT …] [through NAMES] [in DURATION]
//	join stranger from CLUSTER/ENVIRONMENT [through NAMES]
//	kill NAMES                          without a goodbye, all at once
//	leave NAMES                         with one, one after the other
//	start NAMES
//	restart NAMES                       kill, and start at once under the same id
//	save a boot of NAMES           a process of theirs that is yet to start
//	restart NAMES as saved          in that process, with the clock of then
//	crash NAME COUNT times every DURATION
//	offer COUNT services at NAMES       instead of what they offered
//	change the offer of NAMES [every DURATION for DURATION]
//	withdraw the offer of NAMES
//	churn for DURATION                  something drawn happens to a worker every 200 ms
//	forge a record of WHOM at NAME      gossiped by that member. WHOM is NAME, NAME in
//	                                    its last life, NAME in ten years, or nobody
//	start the packet log, stop the packet log       records the packets that members receive
//	replay the packet log to NAMES            from a host that is no member's
//	partition NAMES | NAMES …           neither hears the other
//	heal
//	loss PERCENT%                       of packets, from now on
//	latency DURATION [jitter DURATION]  one way, from now on
//	wait DURATION
//	expect WHAT [within DURATION]       without a duration: now
//
// WHAT is one of
//
//	converged                           all live members see each other in their present
//	                                    lives and exactly what the live workers offer,
//	                                    with equal checksums
//	agreement of members                the first part of it
//	NAMES see everything                exactly what the live workers offer
//	NAMES see the offer of NAMES        NAMES do not see …
//	NAMES see nothing forged
//	one of NAMES counted "RESULT"       a record received, since its start
//	NAMES published COUNT times         in this life, or more often
//
// Whatever a history says, every view of every member is checked against what
// inspect lists, and no worker may publish twice within a second.
var statements = []struct {
	form *regexp.Regexp
	make func(m []string) (step, error)
}{
	{form(`join stranger from (\S+)/(\S+)(?: through NAMES)?`), makeStranger},
	{form(`join (\d+ (?:relay|gate|worker)s?(?:, \d+ (?:relay|gate|worker)s?)*)(?: through NAMES)?(?: in DURATION)?`), makeJoin},
	{form(`kill NAMES`), eachOf(func(f *cluster, p *process) error { f.kill(p); return nil })},
	{form(`leave NAMES`), eachOf((*cluster).leave)},
	{form(`start the packet log()`), makePacketLog(true)},
	{form(`stop the packet log()`), makePacketLog(false)},
	{form(`start NAMES`), eachOf((*cluster).start)},
	{form(`save a boot of NAMES`), eachOf((*cluster).saveBoot)},
	{form(`restart NAMES as saved`), eachOf((*cluster).restartSaved)},
	{form(`restart NAMES`), eachOf((*cluster).restart)},
	{form(`crash NAMES (\d+) times every DURATION`), makeCrash},
	{form(`offer (\d+) services at NAMES`), makeOffer},
	{form(`change the offer of NAMES(?: every DURATION for DURATION)?`), makeChange},
	{form(`withdraw the offer of NAMES`), eachOf((*cluster).withdraw)},
	{form(`churn for DURATION`), makeChurn},
	{form(`forge a record of (unknown|[a-z]\d+)( in its last life| in ten years)? at NAMES`), makeForge},
	{form(`replay the packet log to NAMES`), makeReplay},
	{form(`partition (.+\|.+)`), makePartition},
	{form(`heal()`), func([]string) (step, error) { return func(f *cluster) error { f.network.Heal(); return nil }, nil }},
	{form(`loss (\d+)%`), makeLoss},
	{form(`latency DURATION(?: jitter DURATION)?`), makeLatency},
	{form(`wait DURATION`), makeWait},
	{form(`expect (.+?)(?: within DURATION)?`), makeExpect},
}

var expectations = []struct {
	form *regexp.Regexp
	make func(m []string) step
}{
	{form(`converged`), func([]string) step { return (*cluster).converged }},
	{form(`agreement of members`), func([]string) step { return (*cluster).agreement }},
	{form(`NAMES sees? everything`), func(m []string) step { return ofEach(m[0], (*cluster).truth) }},
	{form(`NAMES (do not see|does not see|sees?) the offer of NAMES`), expectOffer},
	{form(`NAMES sees? nothing forged`), func(m []string) step { return ofEach(m[0], (*cluster).nothingForged) }},
	{form(`one of NAMES counted "(\w+)"`), expectCounted},
	{form(`NAMES published (\d+) times`), expectPublished},
}

type step func(*cluster) error

const (
	namePattern     = `(?:all|relays|workers|others|dead|\d+(?:/\d+)? of workers|[a-z]\d+(?:\.\.[a-z]\d+)?)`
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
}

// scenario is a history as written, before the size is put in.
type scenario struct {
	seeds      []uint64
	sizes      []int
	raced      []int
	statements []statement
}

func parseScenario(file string, r io.Reader) (*scenario, error) {
	s := &scenario{}
	var errs []error
	lines := bufio.NewScanner(r)
	for number := 1; lines.Scan(); number++ {
		text, _, _ := strings.Cut(lines.Text(), "#")
		words := strings.Fields(text)
		if len(words) == 0 {
			continue
		}
		st := statement{fmt.Sprintf("%s:%d", file, number), strings.Join(words, " ")}
		var err error
		switch words[0] {
		case "seeds":
			for _, w := range words[1:] {
				seed, bad := strconv.ParseUint(w, 10, 64)
				s.seeds, err = append(s.seeds, seed), errors.Join(err, bad)
			}
		case "sizes":
			s.sizes, err = sizes(words[1:])
			s.raced = s.sizes[:min(1, len(s.sizes))]
		case "raced":
			s.raced = nil
			if words[1] != "none" {
				s.raced, err = sizes(words[1:])
			}
		default:
			_, err = st.of(5)
			s.statements = append(s.statements, st)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %q: %w", st.where, st.text, err))
		}
	}
	if len(s.seeds) == 0 || len(s.sizes) == 0 {
		errs = append(errs, fmt.Errorf("%s: seeds or sizes are missing: begin with lines such as \"seeds 1 2\" and \"sizes 5\"", file))
	}
	return s, errors.Join(append(errs, lines.Err())...)
}

func sizes(words []string) (out []int, err error) {
	for _, w := range words {
		size, bad := strconv.Atoi(w)
		out, err = append(out, size), errors.Join(err, bad)
	}
	return out, err
}

var sizePattern = regexp.MustCompile(`\b(w?)N\b`)

// of makes the step of a statement for one size.
func (s statement) of(size int) (step, error) {
	text := sizePattern.ReplaceAllString(s.text, "${1}"+strconv.Itoa(size))
	for _, st := range statements {
		if m := st.form.FindStringSubmatch(text); m != nil {
			return st.make(m[1:])
		}
	}
	return nil, errors.New("unknown statement; the forms are listed in scenario_grammar_test.go")
}

// resolve is done when a step runs, since "all" depends on who is there.
func (f *cluster) resolve(list string) ([]*process, error) {
	var out []*process
	for item := range strings.SplitSeq(list, ", ") {
		more, err := f.resolveItem(item, out)
		if err != nil {
			return nil, err
		}
		out = append(out, more...)
	}
	return out, nil
}

func (f *cluster) resolveItem(item string, named []*process) (out []*process, err error) {
	roles := map[string]membership.Role{"relays": membership.RoleRelay, "workers": membership.RoleWorker}
	live := f.live()
	switch share, ofWorkers := strings.CutSuffix(item, " of workers"); {
	case item == "all":
		return live, nil
	case item == "dead":
		return f.list(func(p *process) bool { return !p.running }), nil
	case item == "others":
		for _, p := range live {
			if !contains(named, p) {
				out = append(out, p)
			}
		}
		return out, nil
	case ofWorkers:
		of, _ := f.resolveItem("workers", nil)
		of = without(of, named)
		count, by, isShare := strings.Cut(share, "/")
		n, _ := strconv.Atoi(count)
		if isShare {
			d, _ := strconv.Atoi(by)
			n = max(1, n*len(of)/max(1, d))
		}
		f.random.Shuffle(len(of), func(i, j int) { of[i], of[j] = of[j], of[i] })
		return of[:min(n, len(of))], nil
	case roles[item] != "":
		for _, p := range live {
			if p.role == roles[item] {
				out = append(out, p)
			}
		}
		return out, nil
	}
	first, last, isRange := strings.Cut(item, "..")
	if !isRange {
		last = first
	}
	from, err := strconv.Atoi(first[1:])
	if err != nil {
		return nil, err
	}
	to, err := strconv.Atoi(last[1:])
	if err != nil || to < from || last[0] != first[0] {
		return nil, fmt.Errorf("%q is not a range", item)
	}
	for i := from; i <= to; i++ {
		p, err := f.find(first[:1] + strconv.Itoa(i))
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

func contains(list []*process, p *process) bool { return len(without([]*process{p}, list)) == 0 }

func without(list, named []*process) (out []*process) {
	skip := map[*process]bool{}
	for _, p := range named {
		skip[p] = true
	}
	for _, p := range list {
		if !skip[p] {
			out = append(out, p)
		}
	}
	return out
}

// duration parses an optional one; the pattern has checked its form.
func duration(text string) time.Duration {
	d, _ := time.ParseDuration(text)
	return d
}

func ofEach(list string, do func(*cluster, *process) error) step {
	return func(f *cluster) error {
		all, err := f.resolve(list)
		if err != nil {
			return err
		}
		return each(all, func(p *process) error { return do(f, p) })
	}
}

func eachOf(do func(*cluster, *process) error) func(m []string) (step, error) {
	return func(m []string) (step, error) { return ofEach(m[0], do), nil }
}

func (f *cluster) join(p *process, through string) error {
	if through != "" {
		seeds, err := f.resolve(through)
		if err != nil {
			return err
		}
		p.seeds = names(seeds)
	}
	return f.add(p)
}

// newProcess is of our cluster; a worker offers two services, so that an offer
// shown by halves is noticed.
func (f *cluster) newProcess(prefix string, role membership.Role) *process {
	n := 1 + len(f.list(func(p *process) bool { return p.name[:1] == prefix }))
	p := &process{name: prefix + strconv.Itoa(n), role: role, cluster: homeCluster, environment: homeEnvironment}
	if role == membership.RoleWorker {
		p.services = []string{"echo", fmt.Sprintf("shard-%d", n%5)}
	}
	return p
}

func makeStranger(m []string) (step, error) {
	return func(f *cluster) error {
		p := f.newProcess("x", membership.RoleWorker)
		p.cluster, p.environment = m[0], m[1]
		return f.join(p, m[2])
	}, nil
}

func makeJoin(m []string) (step, error) {
	span := duration(m[2])
	return func(f *cluster) error {
		var joining []*process
		for batch := range strings.SplitSeq(m[0], ", ") {
			count, role, _ := strings.Cut(batch, " ")
			n, _ := strconv.Atoi(count)
			for range n {
				joining = append(joining, &process{role: membership.Role(strings.TrimSuffix(role, "s"))})
			}
		}
		for _, j := range joining {
			p := f.newProcess(string(j.role[:1]), j.role)
			seeds := m[1]
			if seeds == p.name {
				seeds = "" // the seed itself is among the first to join
			}
			if err := f.join(p, seeds); err != nil {
				return err
			}
			time.Sleep(max(10*time.Millisecond, span/time.Duration(len(joining))))
		}
		return nil
	}, nil
}

func makePacketLog(on bool) func([]string) (step, error) {
	return func([]string) (step, error) {
		return func(f *cluster) error { f.packetLog.run(on); return nil }, nil
	}
}

func makeCrash(m []string) (step, error) {
	times, err := strconv.Atoi(m[1])
	return ofEach(m[0], func(f *cluster, p *process) error {
		for range times {
			if err := f.restart(p); err != nil {
				return err
			}
			time.Sleep(duration(m[2]))
		}
		return nil
	}), err
}

func makeOffer(m []string) (step, error) {
	count, err := strconv.Atoi(m[0])
	return ofEach(m[1], func(f *cluster, p *process) error {
		p.services = nil
		for i := range count {
			p.services = append(p.services, fmt.Sprintf("service-%d", i))
		}
		return f.offer(p)
	}), err
}

func makeChange(m []string) (step, error) {
	once := ofEach(m[0], (*cluster).offer)
	every, span := duration(m[1]), duration(m[2])
	if every == 0 {
		return once, nil
	}
	return func(f *cluster) error {
		for end := time.Now().Add(span); time.Now().Before(end); time.Sleep(every) {
			if err := once(f); err != nil {
				return err
			}
		}
		return nil
	}, nil
}

// makeChurn lets half of what happens be changes of offers, and keeps two thirds
// of the workers running.
func makeChurn(m []string) (step, error) {
	return func(f *cluster) error {
		for end := time.Now().Add(duration(m[0])); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
			workers := f.list(func(p *process) bool { return p.role == membership.RoleWorker && p.home() })
			p := workers[f.random.IntN(len(workers))]
			dead := f.list(func(p *process) bool { return !p.running })
			happens := f.random.IntN(10)
			f.logf("churn: %s, %d", p.name, happens)
			var err error
			switch {
			case !p.running:
				err = f.start(p)
			case happens < 5:
				if len(p.services) == 0 {
					p.services = []string{"echo"}
				}
				err = f.offer(p)
			case happens < 7:
				err = f.withdraw(p)
			case happens < 8 && len(dead) < len(workers)/3:
				f.kill(p)
			case happens < 9:
				err = f.restart(p)
			default:
				f.kill(p)
				p.host = f.freshHost()
				err = f.start(p)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}, nil
}

func makeForge(m []string) (step, error) {
	return ofEach(m[2], func(f *cluster, forger *process) error {
		record := Record{NodeID: m[0], Epoch: uint64(time.Now().UnixMilli()), Sequence: 1000, Services: []Service{{Name: "echo", Address: forgedAddress}}}
		if m[0] != "unknown" {
			p, err := f.find(m[0])
			if err != nil {
				return err
			}
			record.Epoch = p.node.Epoch()
			if m[1] == "" && p.role == membership.RoleWorker {
				f.mu.Lock()
				f.forged[p.self()] = true
				f.mu.Unlock()
			}
		}
		switch m[1] {
		case " in its last life":
			last := uint64(0)
			f.mu.Lock()
			for key := range f.offersLog {
				if key.id == m[0] && key.epoch < record.Epoch {
					last = max(last, key.epoch)
				}
			}
			f.mu.Unlock()
			if last == 0 {
				return fmt.Errorf("%s is in its first life", m[0])
			}
			record.Epoch = last
		case " in ten years":
			record.Epoch = uint64(time.Now().AddDate(10, 0, 0).UnixMilli())
		}
		raw, err := record.Encode()
		if err != nil {
			return err
		}
		return forger.node.Broadcast(GossipTopic, "forged "+m[0]+m[1], append([]byte{kindRecord}, raw...))
	}), nil
}

func makeReplay(m []string) (step, error) {
	return func(f *cluster) error {
		to, err := f.resolve(m[0])
		if err != nil {
			return err
		}
		if len(f.packetLog.packets) == 0 {
			return errors.New("the packet log is empty")
		}
		return f.replay(to)
	}, nil
}

func makePartition(m []string) (step, error) {
	return func(f *cluster) error {
		var named []*process
		var groups [][]netip.Addr
		for part := range strings.SplitSeq(m[0], "|") {
			var group []netip.Addr
			for item := range strings.SplitSeq(strings.TrimSpace(part), ", ") {
				found, err := f.resolveItem(item, named)
				if err != nil {
					return err
				}
				for _, p := range found {
					group = append(group, p.host.IP())
				}
				f.logf("one side: %v", names(found))
				named = append(named, found...)
			}
			groups = append(groups, group)
		}
		f.network.Partition(groups...)
		return nil
	}, nil
}

func makeLoss(m []string) (step, error) {
	percent, err := strconv.Atoi(m[0])
	if err != nil || percent > 100 {
		return nil, fmt.Errorf("loss %s%%: allowed are 0 to 100", m[0])
	}
	return func(f *cluster) error { f.network.SetLoss(float64(percent) / 100); return nil }, nil
}

func makeLatency(m []string) (step, error) {
	return func(f *cluster) error { f.network.SetLatency(duration(m[0]), duration(m[1])); return nil }, nil
}

func makeWait(m []string) (step, error) {
	return func(*cluster) error { time.Sleep(duration(m[0])); return nil }, nil
}

func makeExpect(m []string) (step, error) {
	within := duration(m[1])
	for _, e := range expectations {
		if args := e.form.FindStringSubmatch(m[0]); args != nil {
			ask := e.make(args[1:])
			return func(f *cluster) error {
				began := time.Now()
				err := eventually(within, func() error { return ask(f) })
				if within > 0 && err == nil {
					f.t.Logf("%s after %v of %v", m[0], time.Since(began), within)
				}
				return err
			}, nil
		}
	}
	return nil, fmt.Errorf("unknown expectation %q; they are listed in scenario_grammar_test.go", m[0])
}

func expectOffer(m []string) step {
	want := !strings.Contains(m[1], "not")
	return func(f *cluster) error {
		targets, err := f.resolve(m[2])
		if err != nil {
			return err
		}
		return ofEach(m[0], func(_ *cluster, p *process) error {
			shown, _ := generations(p.catalogue.View())
			for _, w := range targets {
				seen := false
				for key, generation := range shown {
					seen = seen || key.id == w.name && (!want || key == w.self() && generation == w.generation)
				}
				if seen != want {
					m, alive := p.node.Snapshot().Get(w.name)
					return fmt.Errorf("%s sees the offer of %s: %v; it sees it alive: %v, in its present life: %v", p.name, w.name, seen, alive, m.Epoch == w.node.Epoch())
				}
			}
			return nil
		})(f)
	}
}

func (f *cluster) nothingForged(p *process) error {
	if _, forged := generations(p.catalogue.View()); len(forged) > 0 {
		return fmt.Errorf("%s sees forged offers of %v", p.name, forged)
	}
	return nil
}

func expectCounted(m []string) step {
	return func(f *cluster) error {
		all, err := f.resolve(m[0])
		if err != nil {
			return err
		}
		for _, p := range all {
			if testutil.ToFloat64(p.catalogue.metrics.received.WithLabelValues(m[1])) > 0 {
				return nil
			}
		}
		return fmt.Errorf("none of %v counted a record as %s", names(all), m[1])
	}
}

func expectPublished(m []string) step {
	want, _ := strconv.Atoi(m[1])
	return ofEach(m[0], func(f *cluster, p *process) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		if p.publisher.count < want {
			return fmt.Errorf("%s published %d times", p.name, p.publisher.count)
		}
		return nil
	})
}
