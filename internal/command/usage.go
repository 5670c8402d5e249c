package command

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"
)

// The groups of verbs in the help of a binary.
const (
	groupRun   = "run"
	groupLook  = "look"
	groupAct   = "act"
	groupSetUp = "set up"
)

// grouped adds the verbs of a group.
func grouped(root *cobra.Command, group string, verbs ...*cobra.Command) {
	for _, v := range verbs {
		v.GroupID = group
	}
	root.AddCommand(verbs...)
}

func addGroups(root *cobra.Command) {
	root.AddGroup(
		&cobra.Group{ID: groupRun, Title: "Run:"},
		&cobra.Group{ID: groupLook, Title: "Look:"},
		&cobra.Group{ID: groupAct, Title: "Change:"},
		&cobra.Group{ID: groupSetUp, Title: "Set up:"},
	)
	root.SetHelpCommandGroupID(groupSetUp)
	root.SetCompletionCommandGroupID(groupSetUp)
}

// usage is the lower half of the help of every verb. Cobra's own would list the
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
	if !d.takesSettings(c) {
		return nil
	}
	if c.HasParent() && c.Name() != "run" {
		_, err := fmt.Fprintf(out, "\nEvery setting of %s run is a flag here, too.\n", d.Name)
		return err
	}
	if _, err := io.WriteString(out, "\n"); err != nil {
		return err
	}
	return d.Settings.WriteHelp(out, helpWidth(out))
}

// writeVerbs lists the verbs below c, by their groups.
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
func (d *Daemon) takesSettings(c *cobra.Command) bool {
	return !c.HasParent() || c.Name() == "run" || c.Name() == "config" || c.Parent().Name() == "config"
}

// OwnFlags are the flags of c that are no settings of the daemon. Those that it
// inherits are among them.
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

// helpWidth is where help is wrapped: at the terminal's width, and otherwise not.
func helpWidth(out io.Writer) int {
	if file, ok := terminal(out); ok {
		if width, _, err := term.GetSize(int(file.Fd())); err == nil {
			return width
		}
	}
	return 0
}

// arguments is check with the names of the arguments in its error: what a command wants
// stands behind its name.
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
