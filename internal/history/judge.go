package history

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// Limits are the times that the rules allow.
type Limits struct {
	// Down is how long after its end an endpoint may still get a request: the time in which relays
	// learn of it. Zero: none.
	Down time.Duration
	// Fork is how long relays may use different shared keys. Zero: the last entries of all must agree.
	Fork time.Duration
}

// Judge returns a line for each violation.
func (h *History) Judge(limits Limits) (violations []string) {
	h.mu.Lock()
	j := judge{limits: limits, entries: slices.Clone(h.entries)}
	h.mu.Unlock()
	for i := range j.entries {
		j.lines = append(j.lines, i)
	}
	slices.SortStableFunc(j.lines, func(a, b int) int { return j.entries[a].At.Compare(j.entries[b].At) })
	j.answers()
	j.outages()
	j.slots()
	j.shares()
	j.keys()
	return j.found
}

// Expect fails a test for each violation of the rules, the first few in full, and then writes the
// history next to the other artifacts of the test.
func (h *History) Expect(t testing.TB, limits Limits) {
	t.Helper()
	violations := h.Judge(limits)
	if len(violations) == 0 {
		return
	}
	for _, v := range violations[:min(5, len(violations))] {
		t.Error(v)
	}
	file, err := os.Create(filepath.Join(t.ArtifactDir(), "history.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(h.Write(file), file.Close()); err != nil {
		t.Fatal(err)
	}
	t.Errorf("%d violations, in %s", len(violations), file.Name())
}

// judge applies the rules. lines are the indexes of the entries in the order of their times.
type judge struct {
	limits  Limits
	entries []Entry
	lines   []int
	found   []string
}

func (j *judge) report(line int, format string, args ...any) {
	j.found = append(j.found, fmt.Sprintf("line %d: ", line+1)+fmt.Sprintf(format, args...))
}

// each calls f for the entries of one kind in the order of their times.
func (j *judge) each(kind string, f func(line int, e Entry)) {
	for _, line := range j.lines {
		if e := j.entries[line]; e.Kind == kind {
			f(line, e)
		}
	}
}

// answers: each client gets the answer to its own request, what must not repeat was executed once, and
// what was answered was executed. Without journals nothing is known of executions.
func (j *judge) answers() {
	executed, journals := map[string]int{}, false
	j.each(Executed, func(_ int, e Entry) { executed[e.ID]++; journals = true })
	j.each(Request, func(line int, e Entry) {
		if e.Echo != "" && e.Echo != e.ID {
			j.report(line, "%s got the answer to %s", e.ID, e.Echo)
		}
		n := executed[e.ID]
		if e.Once && n > 1 {
			j.report(line, "%s was executed %d times and must not repeat", e.ID, n)
		}
		if journals && e.Status == http.StatusOK && n == 0 {
			j.report(line, "%s was answered and never executed", e.ID)
		}
	})
}

// outages: no request that began when its endpoint had been down for longer than the limit was
// answered or executed by it.
func (j *judge) outages() {
	down := map[string]time.Time{}
	for _, line := range j.lines {
		e := j.entries[line]
		switch e.Kind {
		case Down:
			if _, already := down[e.Endpoint]; !already {
				down[e.Endpoint] = e.At
			}
		case Up:
			delete(down, e.Endpoint)
		case Request, Executed:
			if since, is := down[e.Endpoint]; is && e.At.Sub(since) > j.limits.Down {
				j.report(line, "%s went to %s, which has been down for %v, more than %v", e.ID, e.Endpoint, e.At.Sub(since), j.limits.Down)
			}
		}
	}
}

// slots: an endpoint never executes more at a time than it has slots.
func (j *judge) slots() {
	limit := map[string]int{}
	j.each(Slots, func(_ int, e Entry) { limit[e.Endpoint] = e.Count })
	type change struct {
		at   time.Time
		line int
		by   int
	}
	changes := map[string][]change{}
	j.each(Executed, func(line int, e Entry) {
		if !e.Until.IsZero() {
			changes[e.Endpoint] = append(changes[e.Endpoint], change{e.At, line, 1}, change{e.Until, line, -1})
		}
	})
	for endpoint, most := range limit {
		list := changes[endpoint]
		// One that ends makes room for one that begins at the same time.
		slices.SortStableFunc(list, func(a, b change) int { return cmp.Or(a.at.Compare(b.at), a.by-b.by) })
		running := 0
		for _, c := range list {
			if running += c.by; c.by > 0 && running > most {
				j.report(c.line, "%s executes %d requests at a time and has %d slots", endpoint, running, most)
			}
		}
	}
}

// shares: while a plan changes, a worker has at least the smaller of its old and new share.
func (j *judge) shares() {
	j.each(Share, func(line int, e Entry) {
		if least := min(e.Old, e.New); e.Count < least {
			j.report(line, "%s has %d connections, its plans have %d and %d", e.Endpoint, e.Count, e.Old, e.New)
		}
	})
}

// keys: relays that use different keys agree again within the limit, and at the end. One that uses no
// key, because it has just started or does not run, agrees with all.
func (j *judge) keys() {
	uses := map[string]string{}
	var forked time.Time
	last := -1
	differ := func() bool {
		first, some := "", false
		for _, key := range uses {
			if some && key != first {
				return true
			}
			first, some = key, true
		}
		return false
	}
	j.each(Key, func(line int, e Entry) {
		last = line
		if uses[e.Client] = e.Key; e.Key == "" {
			delete(uses, e.Client)
		}
		switch differs := differ(); {
		case differs && forked.IsZero():
			forked = e.At
		case !differs && !forked.IsZero():
			if took := e.At.Sub(forked); j.limits.Fork > 0 && took > j.limits.Fork {
				j.report(line, "the relays used different keys for %v, more than %v", took, j.limits.Fork)
			}
			forked = time.Time{}
		}
	})
	if !forked.IsZero() {
		j.report(last, "the relays still use different keys at the end: %v", uses)
	}
}
