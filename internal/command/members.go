package command

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/process"
	"github.com/ringway/ringway/membership/identity"
)

// MembersDocument is the document of `members -o json`.
type MembersDocument struct {
	// Self is the member that answered, Version counts its views. Degraded: the member may
	// be cut off from the cluster.
	Self     string `json:"self"`
	Version  uint64 `json:"version"`
	Degraded bool   `json:"degraded"`
	// Members are the selected members sorted by id, w2 before w10: those alive, and those
	// that left or failed in the last hour.
	Members []api.ListedMember `json:"members"`
	// Doubters are members whose doubts about others were denied lately, more than ten times.
	Doubters map[string]uint64 `json:"doubters,omitempty"`
}

// memberFilter selects the members to list; an empty list selects all.
type memberFilter struct{ roles, states, datacenters []string }

func (f memberFilter) passes(m api.ListedMember) bool {
	in := func(list []string, value string) bool { return len(list) == 0 || slices.Contains(list, value) }
	return in(f.roles, string(m.Role)) && in(f.states, string(m.State)) && in(f.datacenters, m.Datacenter)
}

// empty reports whether the filter selects all members.
func (f memberFilter) empty() bool { return len(f.roles)+len(f.states)+len(f.datacenters) == 0 }

func (f memberFilter) check() error {
	return errors.Join(
		oneOf("--role", f.roles, string(identity.RoleRelay), string(identity.RoleGate), string(identity.RoleWorker), string(identity.RoleObserver)),
		oneOf("--state", f.states, string(api.MemberAlive), string(api.MemberDraining), string(api.MemberLeaving), string(api.MemberLeft), string(api.MemberFailed), string(api.MemberUnproven)))
}

// oneOf returns an error for a value that the flag does not allow.
func oneOf(flag string, values []string, allowed ...string) error {
	for _, v := range values {
		if !slices.Contains(allowed, v) {
			return fmt.Errorf("%s %q: allowed are %s", flag, v, strings.Join(allowed, ", "))
		}
	}
	return nil
}

// MembersCommand is `members`: the members of the cluster, as one process sees them.
func MembersCommand(program string) *cobra.Command {
	c := &cobra.Command{Use: "members", Short: "list the members of the cluster, and those that departed in the last hour", Args: cobra.NoArgs,
		Long: "Lists the cluster as the " + program + " sees it. Members that left or failed stay in the list\n" +
			"for an hour, unless they come back. A member that is unproven takes no part:\n" +
			"the reason is below the table. There is also who doubts members that live.\n\n" +
			"The exit code is 2 when no member is of the role, state and datacenter asked for.",
		Example: fmt.Sprintf("  %[1]s members\n  %[1]s members --role worker --state failed,left\n  %[1]s members --watch -o json | jq -c '[.members[].id]'", program)}
	call := callOf(program, c.Flags())
	call.watchable(c.Flags())
	var filter memberFilter
	c.Flags().StringSliceVar(&filter.roles, "role", nil, "only members of this role: relay, gate, worker or observer; may be repeated")
	c.Flags().StringSliceVar(&filter.states, "state", nil, "only members in this state: alive, draining, leaving, left, failed or unproven; may be repeated")
	c.Flags().StringSliceVar(&filter.datacenters, "datacenter", nil, "only members in this datacenter; may be repeated")
	var all fleetFlags
	if program == "relay" {
		c.Long += "\n\n" + fleetHelp +
			"A relay that cannot be reached is listed with the reason; the answer takes at most\n" +
			"eight seconds more than the window. ERRORS is the share of failed requests."
		c.Example += "\n  relay members --all\n  relay members --all -o json | jq -r '.relays[] | select(.ready | not) | .id'"
		all.declare(c.Flags(), "the traffic and the state of all relays and gates instead")
	}
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := errors.Join(filter.check(), all.check(cmd)); err != nil {
			return err
		}
		if all.on {
			if !filter.empty() {
				return errors.New("--all lists all relays and gates: leave out --role, --state and --datacenter")
			}
			return all.show(cmd, call, fleetRelaysTable)
		}
		return getDocument(cmd, call, func(ctx context.Context) (*MembersDocument, error) {
			doc, err := call.members(ctx, filter)
			if err == nil && len(doc.Members) == 0 && !filter.empty() {
				err = fmt.Errorf("%w: no member is of the role, state and datacenter asked for", ErrNothingMatched)
			}
			return doc, err
		}, membersTable)
	}
	return c
}

// members fetches the living and the departed members. A member that came back between the
// two requests is listed as alive.
func (c *adminCall) members(ctx context.Context, filter memberFilter) (*MembersDocument, error) {
	var departures api.Departures
	if _, err := c.fetch(ctx, http.MethodGet, "departures", nil, &departures); err != nil {
		return nil, err
	}
	var present api.Members
	if _, err := c.fetch(ctx, http.MethodGet, "members", nil, &present); err != nil {
		return nil, err
	}
	doc := &MembersDocument{Self: present.Self, Version: present.Version, Degraded: departures.Degraded, Doubters: present.Doubters}
	doc.Members = slices.DeleteFunc(api.ListMembers(present, departures.Departed), func(m api.ListedMember) bool { return !filter.passes(m) })
	slices.SortStableFunc(doc.Members, func(a, b api.ListedMember) int { return process.Natural(a.ID, b.ID) })
	return doc, nil
}

func membersTable(p *page, doc *MembersDocument) {
	t := p.table("ID", "ROLE", "STATE", ">FOR", "DATACENTER", "GOSSIP", "+REGION", "+PEER", "+ADMIN", "+VERSION", "+EPOCH")
	for _, m := range doc.Members {
		t.add(m.ID, string(m.Role), stateCell(string(m.State)), age(time.Since(m.Since)), m.Datacenter, m.GossipAddr, m.Region, m.ForwardAddr, m.AdminAddr, m.Version, fmt.Sprint(m.Epoch))
	}
	var notes []string
	for _, m := range doc.Members {
		if m.Reason != "" {
			notes = append(notes, fmt.Sprintf("%s is %s: %s", m.ID, m.State, m.Reason))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(doc.Doubters)) {
		notes = append(notes, fmt.Sprintf("%s doubts members that live, or passes on such doubts: %d were denied", id, doc.Doubters[id]))
	}
	if doc.Degraded {
		notes = append(notes, doc.Self+" may be cut off from the cluster: see its log")
	}
	t.write(notes...)
}

// stateCell returns the coloured state of a member, service or peer.
func stateCell(state string) cell {
	switch state {
	case "alive", "ready", "offered", "active", "primary", "backup":
		return cell{state, styleGood}
	case "leaving", "left", "draining", "half_open", "joining":
		return cell{state, styleFair}
	case "failed", "unproven", "unhealthy", "evicted", "unreachable":
		return cell{state, styleBad}
	}
	return cell{state, plain}
}
