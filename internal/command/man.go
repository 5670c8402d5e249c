package command

import (
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ringway/ringway/internal/daemon"
)

// manCommand is `man DIR`: a page for each verb.
//
// The pages are written here and not by cobra's doc package, which would bring a
// Markdown parser and a converter into both binaries.
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

// Tree walks a root and all verbs below it that are for people, parents first, in the
// order of their names.
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

// writeMan writes one page in the man macros, which groff and mandoc both read.
func writeMan(w io.Writer, c *cobra.Command) {
	name := strings.ReplaceAll(c.CommandPath(), " ", "-")
	line := func(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }
	line(`.TH "%s" "1" "" "%s" "Ringway"`, roff(strings.ToUpper(name)), roff("ringway "+daemon.Version()))
	line(".SH NAME")
	line(`%s \- %s`, roff(name), roff(c.Short))
	line(".SH SYNOPSIS")
	line(`.B %s`, roff(c.UseLine()))
	line(".SH DESCRIPTION")
	line("%s", roff(orShort(c)))
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
	line(".SH EXIT STATUS\n0 when it did as asked, 1 on an error, 2 when nothing matched.")
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

func orShort(c *cobra.Command) string {
	if c.Long != "" {
		return c.Long
	}
	return c.Short + "."
}

// defaultText is the default of a flag where it says something.
func defaultText(f *pflag.Flag) string {
	switch f.DefValue {
	case "", "false", "[]", "0s":
		return ""
	}
	return " (default " + f.DefValue + ")"
}

// roff escapes what troff would read as its own, and what it would not read at all.
func roff(text string) string {
	lines := strings.Split(strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text), "\n")
	for i, l := range lines {
		switch {
		case l == "" && i > 0:
			lines[i] = ".PP" // in an example it would be a stray macro, and there are no empty lines
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
