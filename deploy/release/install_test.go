package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/procs"
)

// These tests need the files of make release-snapshot and a container engine: make test-release.
func needRelease(t *testing.T) {
	t.Helper()
	if os.Getenv("RELEASE_TESTS") == "" {
		t.Skip("needs the files of a release and a container engine: make test-release")
	}
}

// released is the only file of the release that matches the pattern.
func released(t *testing.T, pattern string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", "dist", pattern))
	if err != nil || len(files) != 1 {
		t.Fatalf("%d files dist/%s (%v), want 1: make test-release builds them", len(files), pattern, err)
	}
	return files[0]
}

func must(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// host is a container with a Debian system without Go and without a network.
type host struct {
	t  *testing.T
	id string
}

// debian makes the image of hosts.
func debian(t *testing.T) (image string) {
	t.Helper()
	image = fmt.Sprintf("ringway-release-test-%d", os.Getpid())
	must(t, "docker", "import", filepath.Join("..", "..", "bin", "debian.tar"), image)
	t.Cleanup(func() { _ = exec.Command("docker", "image", "rm", "--force", image).Run() })
	return image
}

func startHost(t *testing.T, image string) host {
	t.Helper()
	h := host{t, must(t, "docker", "run", "--detach", "--network", "none", "--init", image, "sleep", "infinity")}
	t.Cleanup(func() { _ = exec.Command("docker", "rm", "--force", h.id).Run() })
	return h
}

func (h host) try(script string) (string, error) {
	out, err := exec.CommandContext(h.t.Context(), "docker", "exec", h.id, "bash", "-euo", "pipefail", "-c", script).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// run runs a script, as root, that must succeed.
func (h host) run(script string) string {
	h.t.Helper()
	out, err := h.try(script)
	if err != nil {
		h.t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return out
}

// background starts a program that outlives the command. The file /tmp/NAME.pid has its
// process, /tmp/NAME.log its output.
func (h host) background(name, command string) {
	h.t.Helper()
	must(h.t, "docker", "exec", "--detach", h.id, "bash", "-c", fmt.Sprintf("echo $$ >/tmp/%[1]s.pid; exec %[2]s >/tmp/%[1]s.log 2>&1", name, command))
}

// unit starts a service as its unit does, by user, environment file and command. systemd
// itself cannot run in a container without privileges.
func (h host) unit(name string) {
	h.t.Helper()
	value := func(key string) string {
		return h.run("sed -n 's/^" + key + "=//p' /usr/lib/systemd/system/" + name + ".service")
	}
	h.background(name, fmt.Sprintf("setpriv --reuid=%[1]s --regid=%[2]s --clear-groups env $(grep ^RINGWAY_ %[3]s) %[4]s",
		value("User"), value("Group"), value("EnvironmentFile"), value("ExecStart")))
}

func (h host) await(what, script string) {
	h.t.Helper()
	procs.AwaitFor(h.t, time.Minute, what, func() bool { _, err := h.try(script); return err == nil })
}

// packaging is how a host installs and removes the package in one format.
type packaging struct {
	format, pattern string
	upgrade         string // also installs
	settings        string // prints the files that an upgrade keeps if they were changed
	files           string // prints all files
	remove          []string
	more            map[string]string // script to the output that it must have
}

var packagings = []packaging{{
	format: "deb", pattern: "*_" + runtime.GOARCH + ".deb", upgrade: "dpkg --install /tmp/ringway.deb", files: "dpkg-query --listfiles ringway",
	settings: "dpkg-query --show --showformat '${Conffiles}' ringway | awk '{print $1}'",
	remove: []string{
		"dpkg --remove ringway && ! command -v ringway-relay && test -f /etc/ringway/relay.env && test -f /var/lib/ringway/relay.gossip",
		"dpkg --purge ringway && ! test -e /etc/ringway && ! test -e /var/lib/ringway",
	},
}, {
	// The database of rpm has none of the packages of this system.
	format: "rpm", pattern: "*.rpm", upgrade: "rpm --upgrade --replacepkgs --nodeps /tmp/ringway.rpm", files: "rpm --query --list ringway",
	settings: "rpm --query --configfiles ringway",
	remove:   []string{"rpm --erase ringway && ! command -v ringway-relay && test -f /etc/ringway/relay.env.rpmsave && test -f /var/lib/ringway/relay.gossip"},
	more: map[string]string{
		"rpm --checksig --nosignature /tmp/ringway.rpm":                                   "/tmp/ringway.rpm: digests OK",
		"rpm --query --requires ringway | grep -v ^rpmlib | sort -u | paste -sd ' '":      "/usr/bin/kill systemd",
		"test -x /usr/bin/kill && rpm --query --queryformat '%{LICENSE} %{ARCH}' ringway": "Apache-2.0 " + map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH],
	},
}}

// The steps are those of docs/how-to/install.md and systemd.md.
func TestAnInstalledPackageCarriesRequestsWithinAMinute(t *testing.T) {
	needRelease(t)
	image := debian(t)
	echo := buildEcho(t)
	files := map[string]string{}
	for _, p := range packagings {
		t.Run(p.format, func(t *testing.T) {
			h := startHost(t, image)
			must(t, "docker", "cp", released(t, p.pattern), h.id+":/tmp/ringway."+p.format)
			must(t, "docker", "cp", echo, h.id+":/tmp/echo")
			files[p.format] = h.lifeOf(p)
		})
	}
	if count := strings.Count(files["deb"], "\n"); count < 20 || files["deb"] != files["rpm"] {
		t.Errorf("the deb installs\n%s\nthe rpm\n%s", files["deb"], files["rpm"])
	}
}

func buildEcho(t *testing.T) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "echo")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", file, "../echo")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return file
}

// lifeOf installs a package, runs a fleet of it, upgrades and removes it. It returns the installed
// files: type, mode, owner, content, and name as in the deb.
func (h host) lifeOf(p packaging) (files string) {
	t := h.t
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := exec.Command("docker", "exec", h.id, "bash", "-c", "tail -n 40 /tmp/*.log").CombinedOutput()
			t.Logf("%s", out)
		}
	})
	h.run("! command -v go")
	began := time.Now()
	h.run(p.upgrade)
	outputs := map[string]string{
		"stat -c '%U:%G %a' /etc/ringway":      "root:ringway 750",
		"stat -c '%U:%G %a' /var/lib/ringway":  "ringway:ringway 700",
		p.settings + " | sort | paste -sd ' '": "/etc/ringway/relay.env /etc/ringway/worker.env",
		// systemd-analyze exits with 0 after warnings.
		"systemd-analyze verify --man=no /usr/lib/systemd/system/ringway-*.{service,socket,timer}": "",
		"/usr/lib/ringway/bin/relay version | cut -d ' ' -f 2":                                     h.run("ringway-relay version | cut -d ' ' -f 2"),
		"/usr/lib/ringway/bin/worker version | cut -d ' ' -f 1":                                    "worker",
	}
	maps.Copy(outputs, p.more)
	for script, want := range outputs {
		if got := h.run(script); got != want {
			t.Errorf("%s: got %q, want %q", script, got, want)
		}
	}
	files = h.run(p.files + ` | sed 's,/zsh/site-functions/,/zsh/vendor-completions/,' | sort | while read -r name; do
		path=$name
		test -e $path || path=${name/vendor-completions/site-functions}
		test -d $path || echo $name $(stat -c '%F %a %U:%G' $path) $(sha256sum <$path)
	done`)

	h.configure()
	h.background("echo", "/tmp/echo -addr 127.0.0.1:9000")
	h.unit("ringway-relay")
	h.unit("ringway-worker")
	h.await("the relay is ready", "ringway-relay health --ready")
	h.await("a request is answered", request+" --fail")
	took := time.Since(began).Round(time.Millisecond)
	t.Logf("from the begin of the installation to the first answer: %v", took)
	if took > time.Minute {
		t.Error("want less than a minute")
	}

	// An upgrade keeps changed settings and leaves the processes running.
	h.run(p.upgrade + " && grep -q '^RINGWAY_JOIN=127.0.0.1:7400$' /etc/ringway/relay.env && kill -0 $(cat /tmp/ringway-relay.pid)")
	h.run(request + " --fail")

	for _, name := range []string{"ringway-worker", "ringway-relay"} {
		h.run("kill $(cat /tmp/" + name + ".pid)")
		h.await(name+" has ended", "! kill -0 $(cat /tmp/"+name+".pid) && grep -q stopped /tmp/"+name+".log")
	}
	for _, script := range p.remove {
		h.run(script)
	}
	return files
}

// configure gives the relay and the worker of a host certificates, gossip keys and addresses.
func (h host) configure() {
	h.t.Helper()
	h.run(`cd /root && umask 077
		ringway-relay tls ca create --out ca
		for role in relay worker; do
			ringway-relay tls cert create --ca ca --role $role --node $role-1 --cluster shop --environment prod --out $role
			install -m 640 -g ringway $role.crt $role.key ca/ca.crt /etc/ringway/
		done
		ringway-relay keys generate >fleet.gossip
		for role in relay worker; do install -m 600 -o ringway -g ringway fleet.gossip /var/lib/ringway/$role.gossip; done
		sed -i -e 's/^RINGWAY_JOIN=.*/RINGWAY_JOIN=127.0.0.1:7400/' -e 's/10[.]0[.]0[.][0-9]*/127.0.0.1/' /etc/ringway/*.env
		setpriv --reuid=ringway --regid=ringway --clear-groups env $(grep ^RINGWAY_ /etc/ringway/relay.env) ringway-relay config validate`)
}

func TestInstalledBinariesAreThoseOfTheSBOM(t *testing.T) {
	needRelease(t)
	must(t, "bash", "-c", "cd ../../dist && sha256sum --check --strict checksums.txt")
	dir := t.TempDir()
	must(t, "dpkg-deb", "--extract", released(t, "*_"+runtime.GOARCH+".deb"), dir)
	text, err := os.ReadFile(released(t, "*_linux_"+runtime.GOARCH+".spdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	var doc sbom
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&doc); err != nil {
		t.Fatal(err)
	}
	packages := map[string]spdxPackage{}
	for _, p := range doc.Packages {
		if _, twice := packages[p.ID]; twice {
			t.Errorf("two packages have the id %s", p.ID)
		}
		packages[p.ID] = p
	}
	depends := map[string][]string{}
	for _, r := range doc.Relationships {
		if r.Type == "DEPENDS_ON" {
			depends[packages[r.Element].Name] = append(depends[packages[r.Element].Name], packages[r.Related].Name+" "+packages[r.Related].Version)
		}
	}
	for _, b := range binaries {
		file := filepath.Join(dir, "usr", "bin", installed(b))
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(content)
		if got := packages["SPDXRef-"+installed(b)].Checksums; len(got) != 1 || got[0].Value != hex.EncodeToString(sum[:]) {
			t.Errorf("the SBOM has the checksums %v for %s, want %x", got, installed(b), sum)
		}
		info, err := buildinfo.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		want := []string{"stdlib " + strings.TrimPrefix(info.GoVersion, "go")}
		for _, d := range info.Deps {
			want = append(want, d.Path+" "+d.Version)
		}
		slices.Sort(want)
		got := depends[installed(b)]
		slices.Sort(got)
		if len(want) < 10 || !slices.Equal(got, want) {
			t.Errorf("%s links\n%q\nand the SBOM has\n%q", installed(b), want, got)
		}
	}
}
