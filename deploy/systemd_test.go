package deploy_test

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/command"
	"github.com/ringway/ringway/internal/process"
	"github.com/ringway/ringway/internal/relay"
	"github.com/ringway/ringway/internal/worker"
)

// unit has all values of each setting of a unit file, by section and key.
type unit map[string][]string

func readUnit(t *testing.T, path string) unit {
	t.Helper()
	u, section := unit{}, ""
	lines := bufio.NewScanner(bytes.NewReader(read(t, path)))
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		key, value, ok := strings.Cut(line, "=")
		switch {
		case line == "" || line[0] == '#':
		case line[0] == '[':
			section = strings.Trim(line, "[]")
		case ok:
			u[section+"."+key] = append(u[section+"."+key], value)
		default:
			t.Errorf("%s: %q", path, line)
		}
	}
	return u
}

func (u unit) one(t *testing.T, key string) string {
	t.Helper()
	if len(u[key]) != 1 {
		t.Errorf("%s is set %d times", key, len(u[key]))
		return ""
	}
	return u[key][0]
}

// environFile are the variables of an environment file of systemd.
func environFile(t *testing.T, path string) (environ []string) {
	t.Helper()
	for line := range strings.Lines(string(read(t, path))) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			environ = append(environ, line)
		}
	}
	return environ
}

// A unit may reload a daemon only if the daemon handles SIGHUP, which otherwise ends the
// process.
var (
	_ command.Reloader = (*relay.Relay)(nil)
	_ command.Reloader = (*worker.Agent)(nil)
	_ command.Readier  = (*relay.Relay)(nil)
	_ command.Readier  = (*worker.Agent)(nil)
)

func TestUnitsStartMembersWithValidSettingsAndWaitUntilTheyAreReady(t *testing.T) {
	for _, binary := range []string{"relay", "worker"} {
		u := readUnit(t, "systemd/ringway-"+binary+".service")
		for key, want := range map[string]string{
			"Service.Type": "notify", "Service.TimeoutStartSec": "infinity", "Service.Restart": "always", "Service.User": "ringway",
			"Service.ConfigurationDirectory": "ringway", "Service.StateDirectory": "ringway", "Service.ExecReload": "/bin/kill -HUP $MAINPID",
			"Service.EnvironmentFile": "/etc/ringway/" + binary + ".env", "Install.WantedBy": "multi-user.target",
			"Service.RuntimeDirectory": "ringway-" + binary, "Service.RuntimeDirectoryMode": "0700",
		} {
			if got := u.one(t, key); got != want {
				t.Errorf("%s: %s=%s, want %s", binary, key, got, want)
			}
		}
		words := strings.Fields(u.one(t, "Service.ExecStart"))
		if _, err := commandLine(words); err != nil || words[0] != "ringway-"+binary {
			t.Errorf("%s runs %v: %v", binary, words, err)
		}
		stop, err := strconv.Atoi(u.one(t, "Service.TimeoutStopSec"))
		drain := process.DefaultSessionDrain
		if err != nil || time.Duration(stop)*time.Second < drain+10*time.Second {
			t.Errorf("%s is killed after %d s, while draining takes %v", binary, stop, drain)
		}
		m := load(t, binary, environFile(t, "systemd/"+binary+".env"))
		m.secured(t)
		if !onlyFor(m.gossip) {
			t.Errorf("%s gossips at %s", binary, m.gossip)
		}
		for _, file := range []string{m.cert, m.key, m.authorities} {
			if filepath.Dir(file) != "/etc/ringway" {
				t.Errorf("%s: %s is not in the directory of the unit", binary, file)
			}
		}
		if filepath.Dir(m.keyed) != "/var/lib/ringway" {
			t.Errorf("%s cannot write rotated keys to %s", binary, m.keyed)
		}
	}
}

func TestTheSocketUnitHoldsTheAddressOfTheIngress(t *testing.T) {
	u := readUnit(t, "systemd/ringway-relay.socket")
	m := load(t, "relay", environFile(t, "systemd/relay.env"))
	for key, want := range map[string]string{
		"Socket.ListenStream": port(t, m.ingress), "Socket.FileDescriptorName": "ingress", "Install.WantedBy": "sockets.target",
	} {
		if got := u.one(t, key); got != want {
			t.Errorf("%s=%s, want %s", key, got, want)
		}
	}
	if len(u["Socket.Accept"]) > 0 {
		t.Error("the relay accepts connections itself")
	}
}

// fakes are programs that replace ringway-relay, ssh and chown. Commands for a host run in a
// directory with the host's name.
var fakes = map[string]string{
	"ringway-relay": `echo "ringway-relay $*" >>"$LOG"
while (( $# )); do [[ $1 == --out ]] && out=$2; shift; done
echo new >"$out.crt"; echo new >"$out.key"`,
	"ssh": `shift 2; host=$1; shift
[[ $host == away ]] && exit 255
bash -c "${*//\/etc\/ringway/$HOSTS/$host}"`,
	"chown": "exit 0",
}

func TestTheTimerRenewsEveryMemberAndOneThatIsAwayHoldsUpNone(t *testing.T) {
	timer, service := readUnit(t, "systemd/ringway-renew.timer"), readUnit(t, "systemd/ringway-renew.service")
	if timer.one(t, "Timer.OnCalendar") != "weekly" || timer.one(t, "Timer.Persistent") != "true" || timer.one(t, "Install.WantedBy") != "timers.target" ||
		service.one(t, "Service.Type") != "oneshot" {
		t.Errorf("%v\n%v", timer, service)
	}
	words := strings.Fields(service.one(t, "Service.ExecStart"))
	if filepath.Base(words[0]) != "renew.sh" || len(words) != 5 {
		t.Fatalf("it runs %q", words)
	}
	page, err := os.ReadFile("../docs/how-to/systemd.md")
	if err != nil {
		t.Fatal(err)
	}
	// Nothing else makes what the unit reads.
	for _, made := range []string{"mv ca " + words[1], "> " + words[2], "CLUSTER=shop ENVIRONMENT=prod > " + strings.TrimPrefix(service.one(t, "Service.EnvironmentFile"), "-")} {
		if !strings.Contains(string(page), made) {
			t.Errorf("no command of the page has %q", made)
		}
	}
	if words[3] != "${CLUSTER}" || words[4] != "${ENVIRONMENT}" {
		t.Errorf("it runs %q", words)
	}
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, text := range fakes {
		write("bin/"+name, "#!/usr/bin/env bash\n"+text+"\n", 0o700)
	}
	for _, file := range []string{"h1/relay", "h2/worker", "h3/relay"} {
		write(file+".crt", "old\n", 0o600)
		write(file+".key", "old\n", 0o600)
	}
	members := write("members", "# a comment\nrelay r1 h1\nworker w0 away\n\nworker w1 h2 billing,api-* # both\ngate g1 h3 # of the east\n", 0o600)
	cmd := exec.CommandContext(t.Context(), "systemd/renew.sh", "ca", members, "shop", "prod")
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"), "LOG="+filepath.Join(dir, "log"), "HOSTS="+dir)
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "w0: not renewed") || strings.Contains(string(out), "w1: not") {
		t.Errorf("%v\n%s", err, out)
	}
	for _, file := range []string{"h1/relay", "h2/worker", "h3/relay"} {
		for _, ext := range []string{".crt", ".key"} {
			if got, err := os.ReadFile(filepath.Join(dir, file+ext)); err != nil || string(got) != "new\n" {
				t.Errorf("%s is %q: %v", file+ext, got, err)
			}
		}
	}
	issued, err := os.ReadFile(filepath.Join(dir, "log"))
	if err != nil || strings.Count(string(issued), "\n") != 4 {
		t.Errorf("%q: %v", issued, err)
	}
	if strings.Count(string(issued), "--service billing,api-* ") != 1 || strings.Count(string(issued), "--service") != 1 {
		t.Errorf("the services of w1 are not in its certificate alone: %s", issued)
	}
	for line := range strings.Lines(string(issued)) {
		if _, err := commandLine(strings.Fields(line)); err != nil {
			t.Errorf("%q: %v", line, err)
		}
	}
}

// A member that listens on every interface reads the addresses of its host by netlink.
func TestUnitsLetMembersReadTheAddressesOfTheirHost(t *testing.T) {
	for _, name := range []string{"relay", "worker"} {
		text, err := os.ReadFile("systemd/ringway-" + name + ".service")
		if err != nil {
			t.Fatal(err)
		}
		if families := regexp.MustCompile(`(?m)^RestrictAddressFamilies=.*$`).FindString(string(text)); !strings.Contains(families, "AF_NETLINK") {
			t.Errorf("%s: %q", name, families)
		}
	}
}

// Go takes the backlog of a listener from /proc/sys/net/core/somaxconn, and uses 128 if it cannot read it:
// too few for the fleet that connects again after a restart.
func TestUnitsLeaveListenersTheBacklogOfTheHost(t *testing.T) {
	for _, name := range []string{"relay", "worker"} {
		if hides := readUnit(t, "systemd/ringway-"+name+".service")["Service.ProcSubset"]; hides != nil {
			t.Errorf("%s: ProcSubset=%s hides /proc/sys", name, hides)
		}
	}
}

func TestUnitsOfBothDaemonsAreHardenedAlike(t *testing.T) {
	a, b := readUnit(t, "systemd/ringway-relay.service"), readUnit(t, "systemd/ringway-worker.service")
	// Both may run on one host, and systemd removes the directory of a unit that stops.
	differ := []string{"Unit.Description", "Service.EnvironmentFile", "Service.ExecStart", "Service.RuntimeDirectory"}
	for key := range a {
		if !slices.Equal(a[key], b[key]) && !slices.Contains(differ, key) {
			t.Errorf("%s: %v and %v", key, a[key], b[key])
		}
	}
	if len(a) != len(b) {
		t.Errorf("%d and %d settings", len(a), len(b))
	}
	if got := strings.Fields(string(read(t, "systemd/ringway.sysusers"))); len(got) < 2 || got[0] != "u" || got[1] != a.one(t, "Service.User") {
		t.Errorf("the user is not made: %v", got)
	}
}
