//go:build linux

package netns

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// network is a bridge and the hosts on it. The tests are at 10.<number>.0.1.
type network struct {
	t      *testing.T
	number int32
	hosts  []*host
}

// host is a namespace with one link to the bridge.
type host struct {
	addr  string
	link  string   // the end at the bridge
	space *os.File // it lives while this is open, or a process is in it
}

// numbered counts networks: tests run at the same time.
var numbered atomic.Int32

func newNetwork(t *testing.T) *network {
	t.Helper()
	n := &network{t: t, number: numbered.Add(1)}
	n.must("ip", "link", "add", n.bridge(), "type", "bridge")
	t.Cleanup(func() {
		if err := command("ip", "link", "del", n.bridge()); err != nil {
			t.Error(err)
		}
	})
	n.must("ip", "addr", "add", fmt.Sprintf("10.%d.0.1/24", n.number), "dev", n.bridge())
	n.must("ip", "link", "set", n.bridge(), "up")
	n.must("nft", "add", "table", "bridge", n.bridge())
	t.Cleanup(func() {
		if err := command("nft", "delete", "table", "bridge", n.bridge()); err != nil {
			t.Error(err)
		}
	})
	n.must("nft", "add", "chain", "bridge", n.bridge(), "cut", "{ type filter hook forward priority 0; }")
	return n
}

func (n *network) bridge() string { return fmt.Sprintf("net%d", n.number) }

// add connects a new host.
func (n *network) add() *host {
	n.t.Helper()
	space, err := newNamespace()
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = space.Close() })
	h := &host{addr: fmt.Sprintf("10.%d.0.%d", n.number, 10+len(n.hosts)), link: fmt.Sprintf("%s-%d", n.bridge(), len(n.hosts)), space: space}
	n.hosts = append(n.hosts, h)
	n.must("ip", "link", "add", h.link, "type", "veth", "peer", "name", "eth0", "netns", h.path())
	n.t.Cleanup(func() { // before the bridge; a namespace goes later than its processes
		if err := command("ip", "link", "del", h.link); err != nil {
			n.t.Error(err)
		}
	})
	n.must("ip", "link", "set", h.link, "master", n.bridge(), "up")
	for _, args := range []string{"link set lo up", "addr add " + h.addr + "/24 dev eth0", "link set eth0 up"} {
		n.must(append(h.enter(), append([]string{"ip"}, strings.Fields(args)...)...)...)
	}
	return h
}

// newNamespace makes a network namespace that has no name. The thread goes back to its own
// one: if it ended, the kernel would kill all processes that it has started.
func newNamespace() (space *os.File, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	own, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return nil, err
	}
	defer func() { _ = own.Close() }()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return nil, err
	}
	space, err = os.Open("/proc/thread-self/ns/net")
	return space, errors.Join(err, unix.Setns(int(own.Fd()), unix.CLONE_NEWNET))
}

// path is where other processes find the namespace.
func (h *host) path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), h.space.Fd()) }

// enter executes a command on the host.
func (h *host) enter() []string { return []string{"nsenter", "--net=" + h.path(), "--"} }

// drop loses all IP packets between two groups of hosts, in both directions. ARP is
// answered, as by a router: no host learns that another one is unreachable.
func (n *network) drop(one, other []*host) {
	n.t.Helper()
	set := func(hosts []*host) string {
		var links []string
		for _, h := range hosts {
			links = append(links, h.link)
		}
		return "{ " + strings.Join(links, ", ") + " }"
	}
	for _, way := range [][2][]*host{{one, other}, {other, one}} {
		n.must("nft", "add", "rule", "bridge", n.bridge(), "cut", "iifname", set(way[0]), "oifname", set(way[1]), "ether", "type", "ip", "drop")
	}
}

// isolate drops all between one host and the others.
func (n *network) isolate(h *host) {
	n.t.Helper()
	var others []*host
	for _, other := range n.hosts {
		if other != h {
			others = append(others, other)
		}
	}
	n.drop([]*host{h}, others)
}

// lose drops a share of the IP packets from and to a host, in percent.
func (n *network) lose(h *host, percent int) {
	n.t.Helper()
	for _, way := range []string{"iifname", "oifname"} {
		n.must("nft", "add", "rule", "bridge", n.bridge(), "cut", way, h.link, "ether", "type", "ip", "numgen", "random", "mod", "100", "<", strconv.Itoa(percent), "drop")
	}
}

// down takes the link of a host down: others learn soon that it is unreachable.
func (n *network) down(h *host) { n.t.Helper(); n.must("ip", "link", "set", h.link, "down") }

// heal ends all of this.
func (n *network) heal() {
	n.t.Helper()
	n.must("nft", "flush", "chain", "bridge", n.bridge(), "cut")
	for _, h := range n.hosts {
		n.must("ip", "link", "set", h.link, "up")
	}
}

func (n *network) must(args ...string) {
	n.t.Helper()
	if err := command(args...); err != nil {
		n.t.Fatal(err)
	}
}

func command(args ...string) error {
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}
