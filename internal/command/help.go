package command

import (
	"context"
	"fmt"
	"io"
	"iter"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/ringway/ringway/internal/process"
)

// The groups of commands in the help of a binary.
const (
	groupRun     = "run"
	groupInspect = "look"
	groupAct     = "act"
	groupSetUp   = "set up"
)

// grouped adds the commands of a group.
func grouped(root *cobra.Command, group string, verbs ...*cobra.Command) {
	for _, v := range verbs {
		v.GroupID = group
	}
	root.AddCommand(verbs...)
}

func addGroups(root *cobra.Command) {
	root.AddGroup(
		&cobra.Group{ID: groupRun, Title: "Run:"},
		&cobra.Group{ID: groupInspect, Title: "Inspect:"},
		&cobra.Group{ID: groupAct, Title: "Change:"},
		&cobra.Group{ID: groupSetUp, Title: "Set up:"},
	)
	root.SetHelpCommandGroupID(groupSetUp)
	root.SetCompletionCommandGroupID(groupSetUp)
}

// usage is the lower half of the help of every command. Cobra's own usage would list the
// settings of the daemon without their headings.
func (d *Daemon) usage(c *cobra.Command) error {
	out := c.OutOrStderr()
	var b strings.Builder
	b.WriteString("Usage:\n")
	if c.Runnable() && (!c.HasAvailableSubCommands() || !c.HasParent()) {
		fmt.Fprintf(&b, "  %s\n", c.UseLine())
	}
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "  %s COMMAND\n", c.CommandPath())
		writeVerbs(&b, c)
	}
	if c.HasExample() {
		fmt.Fprintf(&b, "\nExamples:\n%s\n", c.Example)
	}
	if flags := OwnFlags(c); flags.HasAvailableFlags() {
		fmt.Fprintf(&b, "\nFlags:\n%s", flags.FlagUsagesWrapped(helpWidth(out)))
	}
	if _, err := io.WriteString(out, b.String()); err != nil {
		return err
	}
	if !takesSettings(c) {
		return nil
	}
	if c.HasParent() && c.Name() != "run" {
		_, err := fmt.Fprintf(out, "\nEvery setting of %s run is a flag here, too.\n", d.Name)
		return err
	}
	if d.helpAll {
		if _, err := io.WriteString(out, "\n"); err != nil {
			return err
		}
		return d.Settings.WriteHelp(out, helpWidth(out))
	}
	if _, err := fmt.Fprintf(out, "\nSettings of a first fleet (--%s lists all %d):\n", helpAll, len(d.Settings.Names())); err != nil {
		return err
	}
	return d.Settings.WriteShortHelp(out, helpWidth(out))
}

// helpAll is the flag for the help with all settings.
const helpAll = "help-all"

// writeVerbs lists the commands below c by group.
func writeVerbs(b *strings.Builder, c *cobra.Command) {
	list := func(title, group string) {
		for _, v := range c.Commands() {
			if v.GroupID == group && (v.IsAvailableCommand() || v.Name() == "help") {
				if title != "" {
					fmt.Fprintf(b, "\n%s\n", title)
					title = ""
				}
				fmt.Fprintf(b, "  %-*s  %s\n", c.NamePadding(), v.Name(), v.Short)
			}
		}
	}
	for _, g := range c.Groups() {
		list(g.Title, g.ID)
	}
	list("Commands:", "")
}

// takesSettings reports whether the settings of the daemon are flags of c.
func takesSettings(c *cobra.Command) bool {
	config := c.Flags().Lookup("config")
	return config != nil && isSetting(config)
}

// OwnFlags returns the flags of c, inherited flags included, that are not settings of the
// daemon.
func OwnFlags(c *cobra.Command) *pflag.FlagSet {
	own := pflag.NewFlagSet(c.Name(), pflag.ContinueOnError)
	add := func(f *pflag.Flag) {
		if !isSetting(f) {
			own.AddFlag(f)
		}
	}
	c.InheritedFlags().VisitAll(add)
	c.LocalFlags().VisitAll(add)
	return own
}

// settingAnnotation marks the flags that are settings of the daemon.
const settingAnnotation = "ringway_setting"

func isSetting(f *pflag.Flag) bool { return f.Annotations[settingAnnotation] != nil }

// helpWidth is the width of the help: that of the terminal, 0 (not wrapped) for other
// output.
func helpWidth(out io.Writer) int {
	if file, ok := terminal(out); ok {
		if width, _, err := term.GetSize(int(file.Fd())); err == nil {
			return width
		}
	}
	return 0
}

// arguments is check with the usage of the arguments in the error, which is the part of the
// usage line behind the command name.
func arguments(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if check(cmd, args) == nil {
			return nil
		}
		_, names, _ := strings.Cut(cmd.Use, " ")
		got := fmt.Sprintf("got %d arguments", len(args))
		switch len(args) {
		case 0:
			got = "got no argument"
		case 1:
			got = "got 1 argument"
		}
		return fmt.Errorf("want %s, %s: %s %s", names, got, cmd.CommandPath(), names)
	}
}

// manCommand is `man DIR`: it writes a man page for each command.
//
// cobra's doc package is not used, because it would add a Markdown parser and a converter
// to both binaries.
func manCommand(name string) *cobra.Command {
	return &cobra.Command{Use: "man DIR", Short: "write man pages to a directory", Args: arguments(cobra.ExactArgs(1)),
		Long:    "Writes a page of section 1 for this binary and for each of its commands.\nThe directory is made if it is not there; pages in it are replaced.",
		Example: "  " + name + " man /usr/local/share/man/man1",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return fmt.Errorf("make the directory for the man pages: %w", err)
			}
			pages := 0
			for c := range Tree(cmd.Root()) {
				var b strings.Builder
				writeMan(&b, c)
				name := strings.ReplaceAll(c.CommandPath(), " ", "-") + ".1"
				if err := os.WriteFile(filepath.Join(args[0], name), []byte(b.String()), 0o644); err != nil {
					return fmt.Errorf("write a man page: %w", err)
				}
				pages++
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%d pages in %s\n", pages, args[0])
			return err
		}}
}

// Tree iterates over root and all commands below it except hidden ones and help, parents
// first, sorted by name.
func Tree(root *cobra.Command) iter.Seq[*cobra.Command] {
	root.InitDefaultCompletionCmd()
	return func(yield func(*cobra.Command) bool) { walk(root, yield) }
}

func walk(c *cobra.Command, yield func(*cobra.Command) bool) bool {
	if !yield(c) {
		return false
	}
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() && sub.Name() != "help" && !walk(sub, yield) {
			return false
		}
	}
	return true
}

// writeMan writes one page with the man macros, which both groff and mandoc read.
func writeMan(w io.Writer, c *cobra.Command) {
	name := strings.ReplaceAll(c.CommandPath(), " ", "-")
	line := func(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }
	line(`.TH "%s" "1" "" "%s" "Ringway"`, roff(strings.ToUpper(name)), roff("ringway "+process.Version()))
	line(".SH NAME")
	line(`%s \- %s`, roff(name), roff(c.Short))
	line(".SH SYNOPSIS")
	line(`.B %s`, roff(c.UseLine()))
	line(".SH DESCRIPTION")
	line("%s", roff(longOrShort(c)))
	var flags, settings []*pflag.Flag
	c.InitDefaultHelpFlag()
	add := func(f *pflag.Flag) {
		switch {
		case f.Hidden:
		case isSetting(f):
			settings = append(settings, f)
		default:
			flags = append(flags, f)
		}
	}
	c.InheritedFlags().VisitAll(add)
	c.LocalFlags().VisitAll(add)
	for _, part := range []struct {
		title string
		flags []*pflag.Flag
	}{{"OPTIONS", flags}, {"SETTINGS", settings}} {
		if len(part.flags) > 0 {
			line(".SH %s", part.title)
		}
		for _, f := range part.flags {
			kind, usage := pflag.UnquoteUsage(f)
			spelled := "--" + f.Name
			if f.Shorthand != "" {
				spelled = "-" + f.Shorthand + ", " + spelled
			}
			line(".TP\n\\fB%s\\fR \\fI%s\\fR", roff(spelled), roff(kind))
			line("%s%s", roff(usage), roff(defaultText(f)))
		}
	}
	if c.HasExample() {
		line(".SH EXAMPLES\n.nf\n%s\n.fi", roff(c.Example))
	}
	line(".SH EXIT STATUS\n0 on success, 1 on an error, 2 when nothing matched.")
	var also []string
	if c.HasParent() {
		also = append(also, strings.ReplaceAll(c.Parent().CommandPath(), " ", "-"))
	}
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() && sub.Name() != "help" {
			also = append(also, strings.ReplaceAll(sub.CommandPath(), " ", "-"))
		}
	}
	if len(also) > 0 {
		line(".SH SEE ALSO\n%s(1)", roff(strings.Join(also, "(1), ")))
	}
}

func longOrShort(c *cobra.Command) string {
	if c.Long != "" {
		return c.Long
	}
	return c.Short + "."
}

// defaultText returns the default of a flag for its description, "" if the default is
// empty.
func defaultText(f *pflag.Flag) string {
	switch f.DefValue {
	case "", "false", "[]", "0s":
		return ""
	}
	return " (default " + f.DefValue + ")"
}

// roff escapes the characters that troff would interpret or could not read.
func roff(text string) string {
	lines := strings.Split(strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text), "\n")
	for i, l := range lines {
		switch {
		case l == "" && i > 0:
			lines[i] = ".PP" // a paragraph break; in an example it would be a stray macro, but examples have no empty lines
		case strings.HasPrefix(l, ".") || strings.HasPrefix(l, "'"):
			lines[i] = `\&` + l
		}
	}
	var b strings.Builder
	for _, r := range strings.Join(lines, "\n") {
		if r < 0x80 {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, `\[u%04X]`, r)
		}
	}
	return b.String()
}

// completeTimeout limits how long the shell waits after a Tab.
const completeTimeout = time.Second

// completeServices completes the names of the services that the process knows. If the
// process does not answer, there are no completions and no error message.
func (c *adminCall) completeServices(cmd *cobra.Command, given []string, _ string) ([]string, cobra.ShellCompDirective) {
	const quiet = cobra.ShellCompDirectiveNoFileComp
	if len(given) > 0 && c.process == "relay" { // the commands of a relay take one service
		return nil, quiet
	}
	parent := cmd.Context()
	if parent == nil {
		parent = context.Background()
	}
	ctx, cancel := context.WithTimeout(parent, completeTimeout)
	defer cancel()
	var answer struct {
		Services []struct{ Service, Name string } // a relay has the field service, a worker the field name
	}
	if _, err := c.fetch(ctx, http.MethodGet, "services", nil, &answer); err != nil {
		return nil, quiet
	}
	var names []string
	for _, s := range answer.Services {
		if name := s.Service + s.Name; !slices.Contains(given, name) && process.Printable(name) == name {
			names = append(names, name)
		}
	}
	return names, quiet
}
