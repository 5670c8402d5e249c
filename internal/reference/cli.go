package reference

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ringway/ringway/internal/command"
)

// CLI writes the verbs of both binaries.
func CLI(w io.Writer) error {
	var b strings.Builder
	b.WriteString(generated + "# Command line\n\n" +
		"Both binaries run without a verb; every other verb asks a running process over its admin API,\n" +
		"or needs none. `-h` shows this text for each.\n\n" +
		"- **Output**: tables are for people and may change; `-o json` and `-o yaml` are for programs. `-o wide`\n" +
		"  is a table with more columns. Colours appear on terminals only, and not with `NO_COLOR`.\n" +
		"- **Watching**: `--watch` looks again every `--interval` until Ctrl-C, which is no failure. A terminal is\n" +
		"  redrawn; elsewhere a whole document is written for each change.\n" +
		"- **Where to ask**: `--admin-addr`, or the environment variable `RINGWAY_ADMIN_ADDR`.\n" +
		"- **Exit code**: 0 when it did as asked, 1 on an error, 2 when nothing matched.\n\n" +
		"The settings of `run` are listed in [flags.md](flags.md).\n")
	for _, root := range []*cobra.Command{command.Relay(), command.Worker()} {
		for c := range command.Tree(root) {
			if c.HasParent() && c.Parent().Name() == "completion" { // four texts of cobra's that say the same
				continue
			}
			writeVerb(&b, c)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func writeVerb(b *strings.Builder, c *cobra.Command) {
	level := "##"
	if c.HasParent() {
		level = "###"
	}
	fmt.Fprintf(b, "\n%s %s\n\n", level, c.CommandPath())
	long := c.Long
	if long == "" {
		long = strings.ToUpper(c.Short[:1]) + c.Short[1:] + "."
	}
	if c.Name() == "completion" { // its text ends with pointers to its verbs
		long = "Writes a completion script for bash, zsh, fish or powershell. Services are completed, too:\nthe script asks the process at `--admin-addr`."
	}
	fmt.Fprintf(b, "%s\n\n", prose(long))
	if c.Runnable() && !c.HasAvailableSubCommands() || !c.HasParent() {
		fmt.Fprintf(b, "    %s\n", c.UseLine())
	}
	if c.HasAvailableSubCommands() {
		var verbs []string
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() && sub.Name() != "help" {
				verbs = append(verbs, sub.Name())
			}
		}
		fmt.Fprintf(b, "    %s %s\n", c.CommandPath(), strings.Join(verbs, "|"))
	}
	if flags := verbFlags(c); len(flags) > 0 {
		b.WriteString("\n| Flag | Default | Description |\n|---|---|---|\n")
		for _, f := range flags {
			writeFlag(b, f)
		}
	}
	if c.HasExample() && c.HasParent() {
		fmt.Fprintf(b, "\n```sh\n%s\n```\n", strings.ReplaceAll(strings.TrimPrefix(c.Example, "  "), "\n  ", "\n"))
	}
}

// prose keeps Markdown from joining or hiding what a help text means.
func prose(text string) string {
	return strings.NewReplacer("<", "&lt;", "\n# ", "\n\\# ").Replace(text)
}

// verbFlags are the flags of a verb that are neither settings nor help.
func verbFlags(c *cobra.Command) []*pflag.Flag {
	var flags []*pflag.Flag
	add := func(f *pflag.Flag) {
		if !f.Hidden && f.Name != "help" {
			flags = append(flags, f)
		}
	}
	command.OwnFlags(c).VisitAll(add)
	return flags
}

func writeFlag(b *strings.Builder, f *pflag.Flag) {
	name := "`--" + f.Name + "`"
	if f.Shorthand != "" {
		name = "`-" + f.Shorthand + "`, " + name
	}
	initial := "–"
	if f.DefValue != "" && f.DefValue != "[]" && f.DefValue != "false" {
		initial = "`" + f.DefValue + "`"
	}
	fmt.Fprintf(b, "| %s | %s | %s |\n", name, initial, strings.NewReplacer("|", `\|`, "\n", " ").Replace(f.Usage))
}
