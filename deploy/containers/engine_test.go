package containers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/procs"
)

const (
	// patience limits each wait for a state, commandTime each command. Only a failure
	// reaches these limits.
	patience    = 90 * time.Second
	commandTime = 4 * time.Minute
)

// project is the name of everything that the tests create.
var project = fmt.Sprintf("ringway-test-%d", os.Getpid())

const (
	tag     = "test"
	network = "fleet"
)

// composeEnv has the variables of the compose file. It is written once, before the first
// container.
var composeEnv struct {
	sync.Mutex
	vars []string
}

// await polls until the state is reached.
func await(t *testing.T, what string, reached func() bool) {
	t.Helper()
	procs.AwaitFor(t, patience, what, reached)
}

// command runs a program at the root of the repository and returns what it wrote.
func command(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), commandTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = filepath.Join("..", "..")
	composeEnv.Lock()
	cmd.Env = append(os.Environ(), composeEnv.vars...)
	composeEnv.Unlock()
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

// must runs a program that must succeed.
func must(t *testing.T, args ...string) string {
	t.Helper()
	out, err := command(args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// composeCommand is docker compose where installed, else docker-compose.
var composeCommand = sync.OnceValue(func() []string {
	if _, err := command("docker", "compose", "version"); err == nil {
		return []string{"docker", "compose"}
	}
	return []string{"docker-compose"}
})

func compose(args ...string) []string {
	return append(composeCommand(), append([]string{"-p", project, "-f", "deploy/compose.yaml"}, args...)...)
}

// remove deletes everything that the tests created. It may be called more than once.
func remove() error {
	_, err := command(compose("down", "--volumes", "--remove-orphans", "--timeout", "0")...)
	for _, name := range []string{"relay", "worker", "echo"} {
		image := project + "-" + name + ":" + tag
		if _, there := command("docker", "image", "inspect", image); there == nil {
			_, gone := command("docker", "image", "rm", "--force", image)
			err = errors.Join(err, gone)
		}
	}
	return err
}

// leftovers are objects of the tests that still exist.
func leftovers(t *testing.T) []string {
	t.Helper()
	label := "label=com.docker.compose.project=" + project
	return strings.Fields(must(t, "docker", "ps", "--all", "--quiet", "--filter", label) + "\n" +
		must(t, "docker", "network", "ls", "--quiet", "--filter", label) + "\n" +
		must(t, "docker", "volume", "ls", "--quiet", "--filter", label) + "\n" +
		must(t, "docker", "image", "ls", "--quiet", "--filter", "reference="+project+"-*"))
}

// freeNet is the prefix, such as 10.77.9, of a /24 network that neither the host nor the
// engine uses.
func freeNet(t *testing.T) string {
	t.Helper()
	var used []*net.IPNet
	add := func(text string) {
		if _, n, err := net.ParseCIDR(text); err == nil {
			used = append(used, n)
		}
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		add(a.String())
	}
	for _, id := range strings.Fields(must(t, "docker", "network", "ls", "--quiet")) {
		// A network may vanish between the two commands.
		subnets, _ := command("docker", "network", "inspect", "--format", "{{range .IPAM.Config}}{{.Subnet}} {{end}}", id)
		for _, s := range strings.Fields(subnets) {
			add(s)
		}
	}
next:
	for n := 8; n < 256; n++ {
		prefix := fmt.Sprintf("10.77.%d", n)
		first, last := net.ParseIP(prefix+".0"), net.ParseIP(prefix+".255")
		for _, u := range used {
			if u.Contains(first) || u.Contains(last) || strings.HasPrefix(u.IP.String(), prefix+".") {
				continue next
			}
		}
		return prefix
	}
	t.Fatal("every network from 10.77.8.0/24 to 10.77.255.0/24 is taken")
	return ""
}
