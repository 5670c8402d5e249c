package explore

import (
	"fmt"
	"strings"
)

// Model describes a system whose states can be enumerated. S may be mutable, but no step may change
// the state that it was given.
type Model[S any] struct {
	// Start is the first state.
	Start S
	// Steps returns all that can happen next, in an order that depends on the state alone. No two
	// steps of a state have the same name.
	Steps func(S) []Step[S]
	// Key identifies a state: two states with the same key have the same future. A model whose
	// members are alike returns the same key for states that differ only in who is who.
	Key func(S) string
	// Check returns an error for a state that breaks a promise.
	Check func(S) error
	// Most bounds the number of states, so that a model that grows fails and does not fill the
	// memory. Required.
	Most int
}

// Step is one event. Next returns the state after it, a new one.
type Step[S any] struct {
	Name string
	Next func() S
}

// Result counts what was visited: distinct states, steps between them, and the largest number of
// steps from the start to any state.
type Result struct{ States, Steps, Depth int }

// Violation is a state that breaks a promise. Script has one step a line, and [Model.Replay] plays
// it again.
type Violation struct {
	Script string
	Err    error
}

func (v *Violation) Error() string {
	return fmt.Sprintf("%v after\n%s", v.Err, v.Script)
}

func (v *Violation) Unwrap() error { return v.Err }

// place is how a state was reached first.
type place struct {
	before int // index of the state before; the start's is -1
	step   string
	depth  int
}

// Explore visits all states. The error is a [*Violation], or states that there are more than Most.
func (m Model[S]) Explore() (Result, error) {
	type waiting struct {
		state S
		at    int
	}
	places := []place{{before: -1}}
	known := map[string]struct{}{m.Key(m.Start): {}}
	if err := m.Check(m.Start); err != nil {
		return Result{States: 1}, &Violation{Err: err}
	}
	queue := []waiting{{m.Start, 0}}
	result := Result{States: 1}
	for len(queue) > 0 {
		from := queue[0]
		queue[0] = waiting{} // the state is garbage from here on
		queue = queue[1:]
		for _, step := range m.Steps(from.state) {
			result.Steps++
			next := step.Next()
			key := m.Key(next)
			if _, again := known[key]; again {
				continue
			}
			known[key] = struct{}{}
			places = append(places, place{from.at, step.Name, places[from.at].depth + 1})
			at := len(places) - 1
			result.States, result.Depth = len(places), places[at].depth
			if err := m.Check(next); err != nil {
				return result, &Violation{Script: script(places, at), Err: err}
			}
			if len(places) > m.Most {
				return result, fmt.Errorf("more than %d states: bound what can happen in the model, or leave out of its key what has no effect later", m.Most)
			}
			queue = append(queue, waiting{next, at})
		}
	}
	return result, nil
}

// script lists the steps from the start to a state.
func script(places []place, at int) string {
	lines := make([]string, places[at].depth)
	for ; places[at].before >= 0; at = places[at].before {
		lines[places[at].depth-1] = places[at].step
	}
	return strings.Join(lines, "\n")
}

// Replay plays a script from the start and checks every state. It returns the last state reached,
// and the error of [Model.Check], or of a line that is no step of the state before it. Empty lines
// and lines that begin with # are skipped.
func (m Model[S]) Replay(script string) (S, error) {
	state := m.Start
	for number, line := range strings.Split(script, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		var names []string
		found := false
		for _, step := range m.Steps(state) {
			names = append(names, step.Name)
			if step.Name == line {
				state, found = step.Next(), true
				break
			}
		}
		if !found {
			return state, fmt.Errorf("line %d: %q cannot happen now: possible are %q", number+1, line, names)
		}
		if err := m.Check(state); err != nil {
			return state, err
		}
	}
	return state, nil
}
