//go:build unix

package databases

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ringway/ringway/internal/procs"
)

// program returns the directory of a program: in the path, or where Debian has those of
// PostgreSQL.
func program(t *testing.T, name string) (dir string) {
	t.Helper()
	if path, err := exec.LookPath(name); err == nil {
		return filepath.Dir(path)
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if len(found) == 0 {
		t.Fatalf("there is no program %s: make test-tcp installs it", name)
	}
	return filepath.Dir(found[len(found)-1])
}

// awaitServer waits until a server accepts connections.
func awaitServer(t *testing.T, addr string) {
	t.Helper()
	procs.Await(t, "a server at "+addr, func() bool {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
}

func portOf(t *testing.T, addr string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// startRedis returns the address of a server; args are added to its own.
func startRedis(t *testing.T, args ...string) (addr string) {
	t.Helper()
	addr = procs.FreeAddr(t)
	procs.Start(t, procs.Config{Dir: program(t, "redis-server"), Binary: "redis-server", Args: append([]string{
		"--bind", "127.0.0.1", "--port", portOf(t, addr), "--dir", t.TempDir(), "--save", "", "--appendonly", "no", "--maxmemory", "64mb",
	}, args...)})
	awaitServer(t, addr)
	return addr
}

// cluster is the files of a PostgreSQL that was initialized once.
type cluster struct {
	t     *testing.T
	dir   string
	under []string // as which user the programs run
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	// t.TempDir is below a directory that only its user can enter.
	dir, err := os.MkdirTemp("", "ringway-pg-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	c := &cluster{t: t, dir: dir}
	if os.Geteuid() == 0 {
		c.under = []string{"setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"}
		c.run("chown", "postgres:postgres", dir)
	}
	c.asUser(filepath.Join(program(t, "initdb"), "initdb"), "--no-sync", "--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C", "--pgdata="+dir+"/1")
	return c
}

func (c *cluster) asUser(args ...string) {
	c.t.Helper()
	args = append(append([]string{}, c.under...), args...)
	c.run(args[0], args[1:]...)
}

func (c *cluster) run(name string, args ...string) {
	c.t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		c.t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

// start starts a server on a copy of the files.
func (c *cluster) start(name string) (addr string) {
	c.t.Helper()
	files := filepath.Join(c.dir, name)
	if name != "1" {
		c.asUser("cp", "-a", c.dir+"/1", files)
	}
	addr = procs.FreeAddr(c.t)
	procs.Start(c.t, procs.Config{Dir: program(c.t, "postgres"), Binary: "postgres", Under: c.under, Args: []string{
		"-D", files, "-p", portOf(c.t, addr), "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "fsync=off", "-c", "shared_buffers=16MB",
	}})
	awaitServer(c.t, addr)
	return addr
}
