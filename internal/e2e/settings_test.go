//go:build unix

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ringway/ringway/internal/procs"
)

// badSettings is one start that must be refused.
type badSettings struct {
	name, binary string
	args, env    []string
	file         string
	// want has, for each setting that is wrong, in the order of the message, parts
	// of its line.
	want [][]string
}

func TestEveryMistakeInTheSettingsIsReportedInOneError(t *testing.T) {
	t.Parallel()
	for _, c := range []badSettings{
		{
			name: "a relay, from flags, environment and file", binary: "relay",
			args: []string{"run", "--environment", environment, "--min-peers-per-worker", "2", "--index-source", "dice", "--gossip-addr", "nowhere"},
			env:  []string{"RINGWAY_MAX_ATTEMPTS=99", "RINGWAY_LOG_LEVEL=loud"},
			file: "retry-budget: 7\ncolour: blue\nroutes:\n  - {host: shop.test, service: 'not a name'}\n",
			want: [][]string{
				{"--cluster", "required", "RINGWAY_CLUSTER"},
				{`file key "colour"`, "settings.yaml:2", "no such setting"},
				{"--gossip-addr", `"nowhere"`, "flag --gossip-addr", "allowed:"},
				{"--index-source", `"dice"`, "flag --index-source", "allowed:", "rank", "slot"},
				{"--log-level", `"loud"`, "environment RINGWAY_LOG_LEVEL", "allowed:", "debug"},
				{"--max-attempts", `"99"`, "environment RINGWAY_MAX_ATTEMPTS", "allowed:", "1 to 8"},
				{"--min-peers-per-worker", `"2"`, "flag --min-peers-per-worker", "allowed:", "3 or more"},
				{"--retry-budget", `"7"`, "settings.yaml:1", "allowed:", "0 to 1"},
				{"routes", "settings.yaml:", "not a name"},
			},
		},
		{
			name: "a worker, without a verb", binary: "worker",
			args: []string{"--cluster", cluster, "--environment", environment, "--drain-delay", "-1s",
				"--service", "echo=127.0.0.1:1", "--service", "echo=127.0.0.1:2", "--service", "nothing"},
			want: [][]string{
				{"--drain-delay", `"-1s"`, "flag --drain-delay", "allowed:"},
				{"--service", `"nothing"`, "write name=host:port"},
				{"--service", `"echo=127.0.0.1:2"`, "given twice", "allowed:"},
			},
		},
		{
			name: "an address that others can reach, with nothing to protect it", binary: "relay",
			args: []string{"run", "--cluster", cluster, "--environment", environment, "--gossip-addr", "192.0.2.1:7400", "--peer-addr", "192.0.2.1:7420"},
			want: [][]string{
				{"--gossip-addr", `"192.0.2.1:7400"`, "allowed:", "--insecure"},
				{"--peer-addr", `"192.0.2.1:7420"`, "allowed:", "--insecure"},
			},
		},
		{
			name: "a gate with settings for relays, from environment and file", binary: "relay",
			args: []string{"run", "--cluster", cluster, "--environment", environment, "--role", "gate", "--forward-candidates", "4"},
			env:  []string{"RINGWAY_SLOW_START=9s"},
			file: "peer-slack: 4\nevict-error-rate: 5\n",
			want: [][]string{
				{"--evict-error-rate", `"5"`, "settings.yaml:2", "allowed:", "less than 1"},
				{"--forward-candidates", `"4"`, "flag --forward-candidates", "5 places", "allowed:", "5 or more"},
				{"--peer-slack", `"4"`, "settings.yaml:1", "a gate", "leave it out"},
				{"--slow-start", `"9s"`, "environment RINGWAY_SLOW_START", "a gate", "leave it out"},
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.refused(t)
		})
	}
}

func (c badSettings) refused(t *testing.T) {
	// The admin port is taken: a process that tried to bind before it judged its
	// settings would speak of that.
	taken := procs.Listen(t)
	args := append(slices.Clone(c.args), "--admin-addr", taken.Addr().String())
	if c.file != "" {
		path := filepath.Join(t.TempDir(), "settings.yaml")
		if err := os.WriteFile(path, []byte(c.file), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--config", path)
	}
	p := start(t, processConfig{Name: c.binary, Binary: c.binary, Args: args, Env: c.env})
	if code := p.Exit(t); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	text := p.Output()
	t.Log(text)
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if want := fmt.Sprintf("%s: %d settings are invalid:", c.binary, len(c.want)); lines[0] != want {
		t.Errorf("the first line is %q, want %q", lines[0], want)
	}
	if len(lines) != 1+len(c.want) {
		t.Fatalf("%d lines, want %d", len(lines), 1+len(c.want))
	}
	for i, parts := range c.want {
		for _, part := range parts {
			if !strings.Contains(lines[i+1], part) {
				t.Errorf("line %d lacks %q: %s", i+1, part, lines[i+1])
			}
		}
	}
}
