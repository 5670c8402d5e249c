package command

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/settings"
)

// configCommand is `config`: it shows and validates the settings, with or without a
// process.
func (d *Daemon) configCommand() *cobra.Command {
	c := &cobra.Command{Use: "config", Short: "write, check and show the settings", Args: cobra.NoArgs,
		Long: "Flags beat the environment, the environment beats the file, the file beats the default.\n" +
			"Every setting of " + d.Name + " run is a flag here, too.",
		Example: fmt.Sprintf("  %[1]s config init --out %[1]s.yaml\n  %[1]s config validate %[1]s.yaml\n  %[1]s config show --origin", d.Name),
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	c.AddCommand(d.configShowCommand(), d.configValidateCommand(), d.configInitCommand(), d.configSchemaCommand())
	return c
}

func (d *Daemon) configValidateCommand() *cobra.Command {
	return &cobra.Command{Use: "validate [FILE]", Short: "check the settings and exit", Args: arguments(cobra.MaximumNArgs(1)),
		Long: "Checks flags, environment and file together, as " + d.Name + " run would read them, and\n" +
			"reports all problems together. Then it opens the files that the settings\n" +
			"name. Valid settings do not keep run from starting; only whether the ports\n" +
			"are free is not tried. Nothing needs to run. FILE stands for --config. The exit code\n" +
			"is 1 when anything is wrong.",
		Example: fmt.Sprintf("  %[1]s config validate %[1]s.yaml\n  %[1]s config validate --config %[1]s.yaml --cluster shop", d.Name),
		RunE: func(cmd *cobra.Command, args []string) error {
			from := settings.Sources{Environ: os.Environ()}
			if len(args) > 0 {
				from.File = args[0]
			}
			if err := d.Settings.Load(from); err != nil {
				return err
			}
			if d.Check != nil {
				if err := d.Check(); err != nil {
					return err
				}
			}
			for _, warning := range d.Settings.Warnings() {
				fmt.Fprintln(cmd.ErrOrStderr(), "warning: "+warning)
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "the settings are valid")
			return err
		}}
}

func (d *Daemon) configShowCommand() *cobra.Command {
	c := &cobra.Command{Use: "show [SETTING...]", Short: "show every setting and its value",
		Long: "Shows the settings as " + d.Name + " run would read them here and now or, with --running,\n" +
			"those in effect in the process at --admin-addr. Secrets are never shown.\n\n" +
			"The exit code is 2 when there is no such setting.",
		Example: fmt.Sprintf("  %[1]s config show --origin\n  %[1]s config show log-level --running", d.Name)}
	call := &adminCall{process: d.Name}
	call.bind(c.Flags())
	call.declareTLS(c.Flags())
	origin, running := false, false
	c.Flags().BoolVar(&origin, "origin", false, "show where each value comes from: flag, environment, line of the file, default")
	c.Flags().BoolVar(&running, "running", false, "ask the running "+d.Name+" which values are in effect")
	c.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return d.Settings.Names(), cobra.ShellCompDirectiveNoFileComp
	}
	c.RunE = func(cmd *cobra.Command, names []string) error {
		if err := refuseUseless(cmd, running); err != nil {
			return err
		}
		var doc api.Config
		return call.read(cmd, func(ctx context.Context) ([]byte, error) {
			var err error
			if running {
				from := settings.Sources{Environ: os.Environ()}
				call.at, _ = d.Settings.Lookup("admin-addr", from)
				call.at = cmp.Or(call.at, "127.0.0.1:"+d.AdminPort)
				call.tokenFile, _ = d.Settings.Lookup("admin-token-file", from)
				_, err = call.fetch(ctx, http.MethodGet, "config", nil, &doc)
			} else {
				doc.Settings, err = d.load()
			}
			if err != nil {
				return nil, err
			}
			if doc.Settings, err = named(doc.Settings, names); err != nil {
				return nil, err
			}
			return document(doc)
		}, func(p *page) { configTable(p, doc, origin) })
	}
	return c
}

// refuseUseless returns an error for a setting that the process has for itself and that does not
// help to ask it.
func refuseUseless(cmd *cobra.Command, running bool) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if running && isSetting(f) && !slices.Contains([]string{"config", "admin-addr", "admin-token-file"}, f.Name) {
			err = fmt.Errorf("--%s: has no effect with --running, which shows the settings of the process: leave it out", f.Name)
		}
	})
	return err
}

// load returns the settings as `run` would load them.
func (d *Daemon) load() ([]api.Setting, error) {
	if err := d.Load(); err != nil {
		return nil, err
	}
	return api.Settings(d.Settings.Values()), nil
}

// named returns the settings with the given names, all if names is empty.
func named(all []api.Setting, names []string) ([]api.Setting, error) {
	if len(names) == 0 {
		return all, nil
	}
	var kept []api.Setting
	known := make([]string, len(all))
	for i, s := range all {
		known[i] = s.Name
	}
	for _, name := range names {
		found := false
		for _, s := range all {
			if s.Name == name {
				kept, found = append(kept, s), true
			}
		}
		if found {
			continue
		}
		err := fmt.Errorf("%w: no setting %q", ErrNothingMatched, name)
		if meant := settings.Nearest(name, known); meant != "" {
			err = fmt.Errorf("%w; did you mean %s?", err, meant)
		}
		return nil, err
	}
	return kept, nil
}

func configTable(p *page, doc api.Config, origin bool) {
	third := "+ORIGIN"
	if origin {
		third = "ORIGIN"
	}
	t := p.table("SETTING", "VALUE", third, "+GROUP", "+TYPE")
	for _, s := range doc.Settings {
		t.add(s.Name, oneLine(s.Value), s.Origin, s.Group, s.Type)
	}
	t.write()
}

// oneLine returns the multi-line value of a section as one line for a table.
func oneLine(value string) string {
	lines := strings.Split(value, "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return strings.Join(lines, "; ")
}
