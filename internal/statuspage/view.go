package statuspage

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/process"
	"github.com/ringway/ringway/membership/identity"
)

// query has the parameters of a request for the page.
type query struct {
	// Service is the service to show in detail; empty: the process chooses.
	Service string
	// All lifts the limit on the rows of a table.
	All bool
}

// longestService is the length of the longest valid service name: a longer name is ignored.
const longestService = 63

func readQuery(values url.Values) query {
	q := query{Service: values.Get("service"), All: values.Get("all") == "1"}
	if len(q.Service) > longestService {
		q.Service = q.Service[:longestService]
	}
	return q
}

func (q query) link() string {
	values := url.Values{}
	if q.Service != "" {
		values.Set("service", q.Service)
	}
	if q.All {
		values.Set("all", "1")
	}
	return "?" + values.Encode()
}

// view is the data of the template: a document with derived values.
type view struct {
	Document *Document
	Version  string   // of the assets
	Sections []markup // only for the whole page
	Services rows[Row]
	Peers    rows[Peer]
	Workers  rows[RingWorker]
	Members  rows[api.ListedMember]
	Relays   rows[api.FleetRelay]
	Tally    Tally
	Drawing  *drawing

	byService, byWorker map[string]*api.TopRow
}

// rows are the shown rows of a table.
type rows[T any] struct {
	Rows   []T
	Total  int
	Hidden bool
	All    string // the link to all rows
}

// limit shows the first rows of a table, at most most. If rows are omitted, the pressing
// ones come first; otherwise the order is not changed.
func limit[T any](list []T, q query, most int, pressing func(T) bool) rows[T] {
	r := rows[T]{Rows: list, Total: len(list)}
	if q.All || len(list) <= most {
		return r
	}
	r.Hidden = true
	q.All = true
	r.All = q.link()
	sorted := slices.Clone(list)
	slices.SortStableFunc(sorted, func(a, b T) int { return cmp.Compare(rank(pressing(a)), rank(pressing(b))) })
	r.Rows = sorted[:most]
	return r
}

func rank(pressing bool) int {
	if pressing {
		return 0
	}
	return 1
}

func newView(d *Document, q query, most int) *view {
	v := &view{Document: d}
	members := slices.Clone(d.Members)
	slices.SortStableFunc(members, func(a, b api.ListedMember) int {
		return cmp.Or(cmp.Compare(place(a), place(b)), process.Natural(a.ID, b.ID))
	})
	v.Members = limit(members, q, most, func(m api.ListedMember) bool {
		return m.State != api.MemberAlive && m.State != api.MemberLeft || m.ID == d.ID
	})
	v.Services = limit(d.Services, q, most, func(s Row) bool { return s.Ready == 0 || v.Chosen(s.Service) })
	if d.Fleet != nil {
		v.Relays = limit(d.Fleet.Relays, q, most, func(r api.FleetRelay) bool { return !r.Ready && r.State != api.MemberLeft || r.ID == d.ID })
	}
	if t := d.Traffic; t != nil {
		v.byService, v.byWorker = byName(t.Services), byName(t.Workers)
	}
	if f := d.Focus; f != nil {
		v.Peers = limit(f.Peers, q, most, func(p Peer) bool { return p.State.troubled() })
		v.Workers = limit(f.Ring.Workers, q, most, func(w RingWorker) bool { return w.State.troubled() || f.Ring.coverage(w) == "below" })
		v.Tally = f.Ring.Tally()
		drawn := f.Ring.draw()
		if f.Forwarding {
			drawn = drawForwarding(f.Peers, d.Role)
		}
		v.Drawing = &drawn
	}
	return v
}

func byName(rows []api.TopRow) map[string]*api.TopRow {
	m := make(map[string]*api.TopRow, len(rows))
	for i := range rows {
		m[rows[i].Name] = &rows[i]
	}
	return m
}

// OfService and OfWorker return what was carried in the last window, nil if it is not known.
func (v *view) OfService(name string) *api.TopRow { return v.byService[name] }

func (v *view) OfWorker(name string) *api.TopRow { return v.byWorker[name] }

// place sorts failed, leaving and draining members first, then relays before the more numerous
// workers, and members that left last.
func place(m api.ListedMember) int {
	switch {
	case m.State == api.MemberFailed:
		return 0
	case m.State == api.MemberLeaving || m.State == api.MemberDraining:
		return 1
	case m.State == api.MemberLeft:
		return 4
	case !m.Role.Relays():
		return 3
	}
	return 2
}

// Identity changes with what only a reload of the page replaces: its head, style and script.
func (v *view) Identity() string {
	d, h := v.Document, sha256.New()
	fmt.Fprintf(h, "%q", []string{version, d.ID, d.Role, d.Cluster, d.Environment, d.Datacenter, d.Build})
	return hex.EncodeToString(h.Sum(nil))[:12]
}

// Worker and Gate report the role of the process, if it is not a relay.
func (v *view) Worker() bool { return v.Document.worker() }

func (v *view) Gate() bool { return v.Document.Role == "gate" }

// Window formats the time over which the rates of the fleet were measured.
func (v *view) Window() string {
	if v.Document.Fleet.WindowMs == 0 {
		return ""
	}
	return fmt.Sprintf("Rates over the last %s, as each relay reports.", seconds(time.Duration(v.Document.Fleet.WindowMs)*time.Millisecond))
}

// Chosen reports whether the page shows the service in detail.
func (v *view) Chosen(service string) bool {
	return v.Document.Focus != nil && v.Document.Focus.Service == service
}

// Present counts the members that are alive.
func (v *view) Present() (n int) {
	for _, m := range v.Document.Members {
		if !gone(m.State) {
			n++
		}
	}
	return n
}

func gone(s api.MemberState) bool { return s == api.MemberFailed || s == api.MemberLeft }

// Roles formats the numbers of members per role.
func (v *view) Roles() string {
	counts := map[identity.Role]int{}
	for _, m := range v.Document.Members {
		if !gone(m.State) {
			counts[m.Role]++
		}
	}
	var parts []string
	for _, role := range []identity.Role{identity.RoleRelay, identity.RoleGate, identity.RoleWorker, identity.RoleObserver} {
		if n := counts[role]; n > 0 {
			parts = append(parts, number(n)+" "+plural(n, string(role)))
		}
	}
	return strings.Join(parts, ", ")
}

// Affine formats how many services this relay serves itself.
func (v *view) Affine() string {
	serves := 0
	for _, s := range v.Document.Services {
		if s.Index >= 0 {
			serves++
		}
	}
	return fmt.Sprintf("%s served here, %s forwarded", number(serves), number(len(v.Document.Services)-serves))
}

// Summary is the state of the service in one line. It has no measurements, so it changes
// only with an event.
func (v *view) Summary() string {
	f := v.Document.Focus
	if f.Forwarding {
		primaries, backups, out := 0, 0, 0
		for _, p := range f.Peers {
			switch p.State {
			case Active:
				primaries++
			case Backup:
				backups++
			case Evicted:
				out++
			}
		}
		text := fmt.Sprintf("%s and %s of %s %s", counted(primaries, "primary", "primaries"), counted(backups, "backup", "backups"), number(len(f.Peers)), plural(len(f.Peers), "relay"))
		if out > 0 {
			text += fmt.Sprintf(", %s out", number(out))
		}
		return text
	}
	parts := []string{fmt.Sprintf("%s of %s workers active", number(v.Tally.States[Active]), number(len(f.Ring.Workers)))}
	parts = append(parts, v.Tally.Troubles()...)
	if v.Tally.Below > 0 {
		parts = append(parts, fmt.Sprintf("%s below %d relays", number(v.Tally.Below), f.Ring.Minimum))
	}
	return strings.Join(parts, " · ")
}

func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return number(n) + " " + many
}

// HasInner reports whether arcs of other relays are drawn.
func (v *view) HasInner() bool {
	return slices.ContainsFunc(v.Drawing.Arcs, func(a drawnArc) bool { return !strings.HasPrefix(a.Class, "arc self") })
}
