//go:build unix

package procs

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// Fleet is the relays and workers of one cluster, each a process.
type Fleet struct {
	Relays, Workers []*Member
	// Seeds are the gossip addresses that every member joins. Relay adds that of its relay.
	Seeds []string
	// Security gives the members that are made afterwards certificates and gossip keys.
	// Default nil: they have none.
	Security *Security
	// Attach has workers attached to the first relay, and the others by their rows, in place of
	// gossip: without a gossip port and a gossip key.
	Attach bool
	// KeyOnly has members use the gossip key of Security, and no certificate.
	KeyOnly bool

	cfg   FleetConfig
	admin *http.Client
	err   error // the first one; a fleet with an error starts nothing more
}

// Member is a relay or a worker, and the addresses at which it listens.
type Member struct {
	*Process      // nil before Start
	ID, Role      string
	Gossip, Admin string
	Ingress, Peer string // of a relay
	Sidecar       string // of a worker
}

// FleetConfig configures a Fleet.
type FleetConfig struct {
	// T is the test to which the processes belong. It fails at the first error. Default nil:
	// the caller checks the errors and calls Stop.
	T testing.TB
	// Cluster and Environment are those of all members.
	Cluster, Environment string
	// Binaries is the directory with the binaries.
	Binaries string
	// Addr returns the address of a member for "gossip", "admin", "ingress", "peer" or
	// "sidecar". That for "admin" may be a socket, unix:PATH. Default: a free port of loopback.
	Addr func(id, use string) string
}

// adminAddr is the key of an admin address in a context.
type adminAddr struct{}

// NewFleet returns a fleet without members.
func NewFleet(cfg FleetConfig) *Fleet {
	f := &Fleet{cfg: cfg, admin: &http.Client{Timeout: Patience, Transport: &http.Transport{
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			addr, isSocket := strings.CutPrefix(ctx.Value(adminAddr{}).(string), "unix:")
			if isSocket {
				network = "unix"
			}
			return (&net.Dialer{}).DialContext(ctx, network, addr)
		}}}}
	if cfg.T != nil {
		cfg.T.Cleanup(f.admin.CloseIdleConnections)
	}
	return f
}

// fail keeps the first error, and fails the test if there is one.
func (f *Fleet) fail(err error) error {
	if f.err == nil {
		f.err = err
	}
	if f.err != nil && f.cfg.T != nil {
		f.cfg.T.Helper()
		f.cfg.T.Fatal(f.err)
	}
	return f.err
}

// Secure makes the Security of the fleet in dir.
func (f *Fleet) Secure(dir string) (err error) {
	f.Security, err = NewSecurity(SecurityConfig{Dir: dir, Binaries: f.cfg.Binaries, Cluster: f.cfg.Cluster, Environment: f.cfg.Environment})
	return f.fail(err)
}

// Relay makes a relay that does not run yet.
func (f *Fleet) Relay(id string) *Member {
	m := f.member(id, "relay")
	m.Ingress, m.Peer = f.addr(id, "ingress"), f.addr(id, "peer")
	f.Relays, f.Seeds = append(f.Relays, m), append(f.Seeds, m.Gossip)
	return m
}

// Worker makes a worker that does not run yet, in place of an older one with that id.
func (f *Fleet) Worker(id string) *Member {
	m := f.member(id, "worker")
	m.Sidecar = f.addr(id, "sidecar")
	f.Workers = append(slices.DeleteFunc(f.Workers, func(old *Member) bool { return old.ID == id }), m)
	return m
}

func (f *Fleet) member(id, role string) *Member {
	if f.Security != nil {
		_ = f.fail(f.Security.Issue(Claims{Role: role, Node: id})) // Start returns it
	}
	return &Member{ID: id, Role: role, Gossip: f.addr(id, "gossip"), Admin: f.addr(id, "admin")}
}

func (f *Fleet) addr(id, use string) string {
	if f.cfg.Addr != nil {
		return f.cfg.Addr(id, use)
	}
	if f.cfg.T != nil {
		return FreeAddr(f.cfg.T)
	}
	addr, err := Free("127.0.0.1")
	_ = f.fail(err) // Start returns it
	return addr
}

// Join returns the flag of a member that joins the fleet.
func (f *Fleet) Join() []string { return []string{"--join", strings.Join(f.Seeds, ",")} }

// Start starts a member. cfg.Args follow those of every member, and replace the same flags.
// It returns the first error of the fleet.
func (f *Fleet) Start(m *Member, cfg Config) (err error) {
	if f.err != nil {
		return f.err
	}
	args := []string{"--cluster", f.cfg.Cluster, "--environment", f.cfg.Environment, "--id", m.ID, "--log-format", "json", "--admin-addr", m.Admin}
	attached := f.Attach && m.Role == "worker"
	if attached {
		args = append(args, "--attach", f.Relays[0].Peer)
	} else {
		args = append(append(args, f.Join()...), "--gossip-addr", m.Gossip)
	}
	if m.Role == "relay" {
		args = append(args, "--ingress-addr", m.Ingress, "--peer-addr", m.Peer)
	} else {
		args = append(args, "--sidecar-addr", m.Sidecar)
	}
	if f.Security != nil {
		flags := f.Security.Flags(m.ID, m.ID)
		if attached {
			flags = flags[:len(flags)-2] // without the gossip keys
		} else if f.KeyOnly {
			flags = flags[len(flags)-2:]
		}
		args = append(args, flags...)
	}
	cfg.Name, cfg.Binary, cfg.Dir, cfg.Args = m.ID, m.Role, f.cfg.Binaries, slices.Concat([]string{"run"}, args, cfg.Args)
	if f.cfg.T != nil {
		m.Process = Start(f.cfg.T, cfg)
		return nil
	}
	m.Process, err = Launch(cfg)
	return f.fail(err)
}

// running returns the members that were started and that no caller has ended.
func (f *Fleet) running() (members []*Member) {
	for _, m := range slices.Concat(f.Relays, f.Workers) {
		if m.Process == nil {
			continue
		}
		if ended, asked := m.state(); !ended || !asked {
			members = append(members, m)
		}
	}
	return members
}

// Stop kills all members.
func (f *Fleet) Stop() {
	for _, m := range f.running() {
		m.Kill()
	}
	f.admin.CloseIdleConnections()
}

// Ended returns an error if a member has ended by itself.
func (f *Fleet) Ended() error {
	for _, m := range f.running() {
		if err := m.Ended(); err != nil {
			return err
		}
	}
	return nil
}

// Await waits until reached returns nil. It fails after Patience, when ctx ends, and when a
// member ends by itself.
func (f *Fleet) Await(ctx context.Context, reached func() error) error {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	for {
		err := reached()
		if err == nil {
			return nil
		}
		if ended := f.Ended(); ended != nil {
			return f.fail(ended)
		}
		select {
		case <-ctx.Done():
			return f.fail(fmt.Errorf("%w: %w", err, ctx.Err()))
		case <-time.After(20 * time.Millisecond): // between two checks of the state
		}
	}
}

// Ask returns the answer of the admin API of a member; any but 200 is an error.
func (f *Fleet) Ask(ctx context.Context, m *Member, path string) ([]byte, error) {
	status, body, err := f.ask(ctx, m, path)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("%s: %s answered %d: %.300s", m.ID, path, status, body)
	}
	return body, err
}

// Get decodes an answer of the admin API, whatever its status, which is 0 without an answer.
func (f *Fleet) Get(m *Member, path string, into any) (status int) {
	status, body, _ := f.ask(context.Background(), m, path)
	_ = json.Unmarshal(body, into) // the caller sees that a field is missing, or passes nil
	return status
}

func (f *Fleet) ask(ctx context.Context, m *Member, path string) (status int, body []byte, err error) {
	req, err := http.NewRequestWithContext(context.WithValue(ctx, adminAddr{}, m.Admin), http.MethodGet, "http://"+m.ID+path, nil)
	if err != nil {
		return 0, nil, err
	}
	req.Host = "localhost"
	return Ask(f.admin, req)
}

// IDs returns the ids that a member lists, sorted, twice if it lists them twice.
func (f *Fleet) IDs(m *Member) []string {
	var got struct{ Members []struct{ ID string } }
	f.Get(m, "/api/v1/members", &got)
	var ids []string
	for _, one := range got.Members {
		ids = append(ids, one.ID)
	}
	slices.Sort(ids)
	return ids
}

// IDs returns the ids of members, sorted.
func IDs(members []*Member) (ids []string) {
	for _, m := range members {
		ids = append(ids, m.ID)
	}
	slices.Sort(ids)
	return ids
}

// Whole returns nil if every member that runs is ready and lists these members, and every
// relay has an endpoint of the service of each worker.
func (f *Fleet) Whole(service string) error {
	members := f.running()
	var workers []string
	for _, m := range members {
		if m.Role == "worker" {
			workers = append(workers, m.ID)
		}
	}
	slices.Sort(workers)
	for _, m := range members {
		var got struct {
			Degraded  bool
			Reasons   []string // why it is not ready
			Catalogue []struct {
				NodeID string `json:"node_id"`
			}
		}
		ready, offers := f.Get(m, "/readyz", &got) == http.StatusOK, workers
		f.Get(m, "/api/v1/departures", &got)
		if m.Role == "relay" {
			f.Get(m, "/api/v1/services/"+service, &got)
			offers = nil
			for _, e := range got.Catalogue {
				offers = append(offers, e.NodeID)
			}
			slices.Sort(offers)
		}
		if listed := f.IDs(m); !ready || got.Degraded || !slices.Equal(listed, IDs(members)) || !slices.Equal(offers, workers) {
			return fmt.Errorf("%s: ready %t %q, degraded %t, lists %v, has endpoints of %v", m.ID, ready, got.Reasons, got.Degraded, listed, offers)
		}
	}
	return nil
}
