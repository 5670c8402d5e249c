package command_test

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ringway/ringway/internal/command"
	"github.com/ringway/ringway/internal/command/relaycmd"
	"github.com/ringway/ringway/internal/command/workercmd"
)

func TestEveryVerbHasAnExampleThatItUnderstands(t *testing.T) {
	for _, root := range []func() *cobra.Command{relaycmd.Command, workercmd.Command} {
		for c := range command.Tree(root()) {
			if strings.Contains(c.CommandPath(), "completion") { // cobra's own
				continue
			}
			if group := c.HasSubCommands() && c.HasParent(); c.Short == "" || c.Example == "" && !group {
				t.Errorf("%s: short %q, example %q", c.CommandPath(), c.Short, c.Example)
			}
			for line := range strings.Lines(c.Example) {
				for part := range strings.SplitSeq(line, "&&") {
					understands(t, root(), part)
				}
			}
		}
	}
}

// understands parses a line as a shell and the command line would, without running it.
func understands(t *testing.T, root *cobra.Command, line string) {
	t.Helper()
	line, _, _ = strings.Cut(line, "|")
	line, _, _ = strings.Cut(line, ">")
	words := strings.Fields(line)
	if len(words) == 0 || words[0] != root.Name() {
		t.Errorf("the example does not begin with %s: %q", root.Name(), line)
		return
	}
	c, args, err := root.Find(words[1:])
	if err == nil {
		err = c.ParseFlags(args)
	}
	if err == nil {
		err = c.ValidateArgs(c.Flags().Args())
	}
	if err != nil {
		t.Errorf("%q: %v", line, err)
	}
}

func TestEveryVerbThatReadsHasEveryFormAndCanWatch(t *testing.T) {
	reads := map[string][]string{
		"relay":  {"members", "services", "plan", "explain", "route", "keys list", "block list"},
		"worker": {"members", "services"},
	}
	for _, root := range []*cobra.Command{relaycmd.Command(), workercmd.Command()} {
		for _, path := range reads[root.Name()] {
			c, _, err := root.Find(strings.Fields(path))
			if err != nil {
				t.Fatal(err)
			}
			flag := func(name string) *pflag.Flag {
				if f := c.Flags().Lookup(name); f != nil {
					return f
				}
				return c.InheritedFlags().Lookup(name)
			}
			if flag("watch") == nil || flag("interval") == nil || flag("output") == nil || !strings.Contains(flag("output").Usage, "table, json, yaml or wide") {
				t.Errorf("%s lacks a form or --watch", c.CommandPath())
			}
		}
	}
}
