package deploy_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/ringway/ringway/internal/command/relaycmd"
	"github.com/ringway/ringway/internal/command/workercmd"
	"github.com/ringway/ringway/internal/relay"
	"github.com/ringway/ringway/internal/settings"
	"github.com/ringway/ringway/internal/worker"
	"github.com/ringway/ringway/membership/identity"
)

// member is the configuration that a binary reads from the environment in a file.
type member struct {
	id, cluster, environment      string
	role                          identity.Role
	gossip, admin, ingress, peer  string
	sidecar                       string
	join, services                []string
	cert, key, authorities, keyed string
	zone, region                  string
	readyRelays                   int
	insecure                      bool
}

// load reads an environment as the binary does, and reports every setting that is
// invalid or unknown.
func load(t *testing.T, binary string, environ []string) (m member) {
	t.Helper()
	set := settings.New(binary, "RINGWAY")
	rs, ws := relay.DefaultSettings(), worker.DefaultSettings()
	common := &rs.Settings
	if binary == "worker" {
		common = &ws.Settings
		ws.Declare(set)
	} else {
		rs.Declare(set)
	}
	if err := set.Load(settings.Sources{Environ: environ}); err != nil {
		var problems settings.Problems
		if !errors.As(err, &problems) {
			t.Error(err)
		}
		for _, p := range problems {
			t.Errorf("%s: %v", binary, p)
		}
	}
	for _, w := range set.Warnings() {
		t.Errorf("%s: %s", binary, w)
	}
	m = member{
		id: common.ID, cluster: common.Cluster, environment: common.Environment, role: common.Role,
		zone: common.Datacenter, region: common.Region, gossip: common.GossipAddr, admin: common.AdminAddr, join: common.Join,
		cert: common.TLSCert, key: common.TLSKey, authorities: common.TLSCA, keyed: common.GossipKeyFile, insecure: common.Insecure,
	}
	if binary == "worker" {
		m.services, m.sidecar, m.readyRelays = ws.Services, ws.SidecarAddress(), ws.ReadyRelays
	} else {
		m.ingress, m.peer = rs.IngressAddrs[0], rs.PeerAddr
	}
	return m
}

// ports are the ports that others must reach, in the notation of orchestrators.
func (m member) ports(t *testing.T) (ports []string) {
	t.Helper()
	for _, addr := range []string{m.gossip, m.admin, m.ingress, m.peer, m.sidecar} {
		if addr != "" {
			ports = append(ports, port(t, addr)+"/TCP")
		}
	}
	ports = append(ports, port(t, m.gossip)+"/UDP")
	slices.Sort(ports)
	return ports
}

func port(t *testing.T, addr string) string {
	t.Helper()
	i := strings.LastIndex(addr, ":")
	if i < 0 {
		t.Errorf("no port in %q", addr)
	}
	return addr[i+1:]
}

// onlyFor reports whether a member can announce an address to the others.
func onlyFor(addr string) bool {
	a, err := netip.ParseAddrPort(addr)
	return err == nil && !a.Addr().IsUnspecified() && !a.Addr().IsLoopback()
}

// secured checks the security settings that every file of this directory must have.
func (m member) secured(t *testing.T) {
	t.Helper()
	if m.insecure || m.cert == "" || m.key == "" || m.authorities == "" || m.keyed == "" {
		t.Errorf("%s is not secured", m.id)
	}
}

// commandLine parses the command in a line of shell or of a manifest.
func commandLine(words []string) (*cobra.Command, error) {
	// Packages install the binaries as ringway-relay and ringway-worker.
	binary := strings.TrimPrefix(words[0][strings.LastIndex(words[0], "/")+1:], "ringway-")
	root := relaycmd.Command()
	if binary == "worker" {
		root = workercmd.Command()
	} else if binary != "relay" {
		return nil, errors.New("no binary of Ringway")
	}
	c, rest, err := root.Find(words[1:])
	if err != nil {
		return nil, err
	}
	c.InheritedFlags() // merges what parents persist
	var flags []string
	for _, word := range rest {
		if name, ok := strings.CutPrefix(word, "--"); ok {
			name, _, _ = strings.Cut(name, "=")
			flags = append(flags, name)
		}
	}
	for _, name := range flags {
		if c.Flags().Lookup(name) == nil {
			return nil, fmt.Errorf("%s has no flag --%s", c.CommandPath(), name)
		}
	}
	if c == root && slices.ContainsFunc(rest, func(word string) bool { return !strings.HasPrefix(word, "-") }) {
		return nil, errors.New("no such verb")
	}
	if c.HasSubCommands() && c != root && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
		return nil, errors.New("no such verb")
	}
	return c, nil
}

func TestACommandLineIsJudgedByTheCommandsThatThereAre(t *testing.T) {
	for line, good := range map[string]bool{
		"relay": true, "/relay run": true, "relay plan echo": true, "relay health --ready": true, "relay tls cert create --ca x --role relay": true,
		"worker drain": true, "relay plam echo": false, "relay health --raedy": false, "worker plan echo": false, "relay tls cret": false, "relais run": false,
	} {
		if _, err := commandLine(strings.Fields(line)); (err == nil) != good {
			t.Errorf("%s: %v", line, err)
		}
	}
}
