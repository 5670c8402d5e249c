package command

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/ringway/ringway/internal/node"
)

// RelayTree is the command line of the relay binary; run are the commands that start
// something else than the daemon.
func (d *Daemon) RelayTree(run ...*cobra.Command) *cobra.Command {
	root := d.Command()
	grouped(root, groupRun, run...)
	grouped(root, groupInspect, MembersCommand("relay"), ServicesCommand(), TopCommand(), PlanCommand(), ExplainCommand(), RouteCommand(), ExplainRequestCommand(), CheckCommand(), MonitorCommand("relay"), TapCommand(), DebugCommand("relay"), healthVerb("relay", node.RelayAdminPort))
	grouped(root, groupAct, KeysCommand(), RelayDrainCommand(), RelayUndrainCommand(), RebalanceCommand(), RelayReloadCommand())
	grouped(root, groupSetUp, TLSCommand("relay"))
	return root
}

// WorkerTree is the command line of the worker binary.
func (d *Daemon) WorkerTree() *cobra.Command {
	root := d.Command()
	grouped(root, groupInspect, MembersCommand("worker"), WorkerServicesCommand(), MonitorCommand("worker"), DebugCommand("worker"), healthVerb("worker", node.WorkerAdminPort))
	grouped(root, groupAct, DrainCommand(), UndrainCommand(), ReloadCommand())
	grouped(root, groupSetUp, TLSCommand("worker"))
	return root
}

// healthVerb is HealthCommand with an example, and with a default in its help that does not
// depend on the environment.
func healthVerb(process, port string) *cobra.Command {
	c := HealthCommand(process, port)
	c.Example = "  " + process + " health\n  " + process + " health --ready"
	c.Flags().Lookup("admin-addr").DefValue = "127.0.0.1:" + port
	c.Flags().Lookup("admin-tls").DefValue = "false"
	return c
}

// versionCommand is `version`: it prints the build of this binary.
func versionCommand(name string) *cobra.Command {
	c := &cobra.Command{Use: "version", Short: "print the version of this binary", Args: cobra.NoArgs,
		Example: fmt.Sprintf("  %[1]s version\n  %[1]s version -o json | jq -r .version", name)}
	var f form
	f.bind(c.Flags())
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := f.check(); err != nil {
			return err
		}
		build := node.ReadBuild()
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
