package identity

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Action is what an initiator wants of its target.
type Action string

// The actions of the connection matrix.
const (
	// ActionSubmit hands in a request.
	ActionSubmit Action = "submit"
	// ActionForward passes a request on to the relay that serves it.
	ActionForward Action = "forward"
	// ActionDispatch gives a request to the worker that answers it.
	ActionDispatch Action = "dispatch"
	// ActionPeer is talk among equals.
	ActionPeer Action = "peer"
	// ActionPush and ActionReport send back; in practice they ride on
	// connections that the other side opened.
	ActionPush   Action = "push"
	ActionReport Action = "report"
	// ActionProgress is a worker's word on its work.
	ActionProgress Action = "progress"
)

// Matrix says which role may open a connection to which, and what for. It
// governs the data plane; gossip has a policy of its own. An empty cell is a
// refusal, so everything not listed is refused.
type Matrix [len(roles)][len(roles)]Action

// Rows are initiators, columns targets, both in the order of roles.
var matrix = Matrix{
	/* client */ {"", ActionSubmit, ActionSubmit, ""},
	/* gate   */ {ActionPush, ActionPeer, ActionForward, ""},
	/* relay  */ {ActionPush, ActionReport, ActionPeer, ActionDispatch},
	/* worker */ {"", "", ActionProgress, ""},
}

// ConnectionMatrix returns a copy of the matrix that every policy applies.
func ConnectionMatrix() Matrix { return matrix }

// Allowed reports whether initiator may connect to target, and for what.
func Allowed(initiator, target Role) (Action, bool) { return matrix.Allowed(initiator, target) }

// Targets returns the roles that initiator may connect to.
func Targets(initiator Role) []Role { return matrix.Targets(initiator) }

// Sources returns the roles that may connect to target.
func Sources(target Role) []Role { return matrix.Sources(target) }

// Allowed reports whether initiator may connect to target, and for what. A role
// that does not exist may nothing.
func (m Matrix) Allowed(initiator, target Role) (Action, bool) {
	i, t := initiator.index(), target.index()
	if i < 0 || t < 0 || m[i][t] == "" {
		return "", false
	}
	return m[i][t], true
}

// Targets returns the roles that initiator may connect to.
func (m Matrix) Targets(initiator Role) []Role {
	var targets []Role
	for _, t := range roles {
		if _, ok := m.Allowed(initiator, t); ok {
			targets = append(targets, t)
		}
	}
	return targets
}

// Sources returns the roles that may connect to target.
func (m Matrix) Sources(target Role) []Role {
	var sources []Role
	for _, i := range roles {
		if _, ok := m.Allowed(i, target); ok {
			sources = append(sources, i)
		}
	}
	return sources
}

// Map returns the allowed cells as initiator → target → action, the form for
// JSON.
func (m Matrix) Map() map[Role]map[Role]Action {
	all := make(map[Role]map[Role]Action, len(roles))
	for _, i := range roles {
		all[i] = make(map[Role]Action, len(roles))
		for _, t := range m.Targets(i) {
			all[i][t], _ = m.Allowed(i, t)
		}
	}
	return all
}

// String is the table that WriteTo writes.
func (m Matrix) String() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, `initiator \ target`)
	for _, t := range roles {
		fmt.Fprintf(w, "\t%s", t)
	}
	for _, i := range roles {
		fmt.Fprintf(w, "\n%s", i)
		for _, t := range roles {
			action, ok := m.Allowed(i, t)
			if !ok {
				action = "no"
			}
			fmt.Fprintf(w, "\t%s", action)
		}
	}
	fmt.Fprintln(w)
	_ = w.Flush() // a strings.Builder takes everything
	return b.String()
}

// WriteTo writes the matrix as a table, one line for each initiator.
func (m Matrix) WriteTo(w io.Writer) (int64, error) {
	n, err := io.WriteString(w, m.String())
	return int64(n), err
}
