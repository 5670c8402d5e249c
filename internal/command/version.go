package command

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/ringway/ringway/internal/daemon"
)

// versionCommand is `version`: what this binary was built from.
func versionCommand(name string) *cobra.Command {
	c := &cobra.Command{Use: "version", Short: "print the version of this binary", Args: cobra.NoArgs,
		Example: fmt.Sprintf("  %[1]s version\n  %[1]s version -o json | jq -r .version", name)}
	var f form
	f.bind(c.Flags())
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := f.check(); err != nil {
			return err
		}
		build := daemon.ReadBuild()
		return f.showValue(cmd, build, func(w io.Writer) error {
			if !f.wide() {
				_, err := fmt.Fprintln(w, name, build)
				return err
			}
			_, err := fmt.Fprintf(w, "name      %s\nversion   %s\nrevision  %s\ntime      %s\nmodified  %s\ngo        %s\nplatform  %s\n",
				name, build.Version, build.Revision, build.Time, yesNo(build.Modified), build.Go, build.Platform)
			return err
		})
	}
	return c
}
