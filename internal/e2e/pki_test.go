//go:build unix

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ringway/ringway/internal/procs"
)

// recipe returns the blocks of a section of the page about other authorities: its commands, and the
// file that they need, if any.
func recipe(t *testing.T, section string) (commands, file string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/how-to/pki.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, found := strings.Cut(string(page), "\n## "+section+"\n")
	text, _, _ = strings.Cut(text, "\n## ")
	if !found {
		t.Fatalf("the page has no section %s", section)
	}
	for _, block := range regexp.MustCompile("(?s)```([a-z]+)\n(.*?)```").FindAllStringSubmatch(text, -1) {
		if block[1] == "sh" {
			commands += block[2]
		} else {
			file += block[2]
		}
	}
	return commands, file
}

// issue runs a recipe for each member of the fleet in place of the authority of its tests.
func issue(t *testing.T, s *security, section string, members map[string]string) {
	t.Helper()
	commands, file := recipe(t, section)
	dir := t.TempDir()
	run := func(script string, env ...string) {
		t.Helper()
		c := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", script)
		path := plain(t) + ":" + os.Getenv("PATH")
		if section == "step-ca" {
			path = os.Getenv("PKI_TESTS") + ":" + path
		}
		c.Dir, c.Env = dir, append(append(os.Environ(), "PATH="+path), env...)
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", script, err, out)
		}
	}
	var env []string
	switch section {
	case "OpenSSL":
		run("openssl req -x509 -newkey rsa:3072 -nodes -keyout corp.key -out corp.crt -days 60 -subj /CN=corp")
	case "step-ca":
		env = authorityOfStep(t, dir, run)
	}
	key, err := os.ReadFile(s.Path("gossip.key"))
	if err != nil {
		t.Fatal(err)
	}
	for id, role := range members {
		of := strings.NewReplacer("relay-1", id, "role/relay", "role/"+role, "cluster/shop", "cluster/"+cluster, "env/prod", "env/"+environment)
		if file != "" {
			if err := os.WriteFile(filepath.Join(dir, id+".ext"), []byte(of.Replace(file)), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if section == "step-ca" {
			run("rm -f corp.crt") // that of the member before: step replaces no file without being asked
		}
		run(of.Replace(commands), env...)
		for from, to := range map[string]string{id + ".crt": id + ".crt", id + ".key": id + ".key", "corp.crt": "ca/ca.crt"} {
			text, err := os.ReadFile(filepath.Join(dir, from))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(s.Path(to), text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(s.Path(id+".keys"), key, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// authorityOfStep starts step-ca, and returns the environment of commands that ask it.
func authorityOfStep(t *testing.T, dir string, run func(string, ...string)) (env []string) {
	t.Helper()
	addr := freeAddr(t)
	env = []string{"STEPPATH=" + filepath.Join(dir, "step"), "STEP_PROVISIONER_PASSWORD_FILE=" + filepath.Join(dir, "password")}
	run(`echo secret > password; step ca init --name corp --dns localhost --address `+addr+` --provisioner fleet --password-file password --provisioner-password-file password`, env...)
	ca := exec.CommandContext(t.Context(), filepath.Join(os.Getenv("PKI_TESTS"), "step-ca"), filepath.Join(dir, "step/config/ca.json"), "--password-file", filepath.Join(dir, "password"))
	ca.Env = append(os.Environ(), env...)
	if err := ca.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = ca.Process.Kill()
		_ = ca.Wait()
	})
	procs.Await(t, "step-ca serves", func() bool {
		c := exec.CommandContext(t.Context(), filepath.Join(os.Getenv("PKI_TESTS"), "step"), "ca", "health")
		c.Env = append(os.Environ(), env...)
		return c.Run() == nil
	})
	return env
}

// TestTheRecipesOfThePageIssueWhatAFleetAccepts runs the commands of the page as they stand there,
// with the names of a fleet. It needs openssl; PKI_TESTS is the directory of step and step-ca, or
// "openssl" without these.
func TestTheRecipesOfThePageIssueWhatAFleetAccepts(t *testing.T) {
	programs := os.Getenv("PKI_TESTS")
	if programs == "" {
		t.Skip("make test-pki")
	}
	sections := []string{"OpenSSL"}
	if programs != "openssl" {
		sections = append(sections, "step-ca")
	}
	for _, section := range sections {
		t.Run(section, func(t *testing.T) {
			f := startFleet(t, fleetConfig{Relays: 2, Workers: 2, Secure: true, Services: func(int) []string { return []string{echo} },
				Issued: func(s *security) {
					issue(t, s, section, map[string]string{"r1": "relay", "r2": "relay", "w1": "worker", "w2": "worker"})
				}})
			f.awaitRange(t, 2)
			for _, r := range f.relays {
				if a := f.call(r, echo); a.status != 200 {
					t.Errorf("%s: %v", r.ID, a)
				}
				if out := ringway(t, "tls", "info", f.Security.Path(r.ID+".crt"), f.Security.Path("ca/ca.crt")); out.Code != 0 {
					t.Errorf("%s: %v", r.ID, out)
				}
			}
		})
	}
}
