package command

import (
	"bytes"
	"fmt"
	"regexp"

	"github.com/spf13/cobra"

	"github.com/ringway/ringway/internal/process"
	"github.com/ringway/ringway/internal/settings"
)

// configInitCommand is `config init`: it writes a configuration file to begin with.
func (d *Daemon) configInitCommand() *cobra.Command {
	c := &cobra.Command{Use: "init", Short: "write a configuration file with comments", Args: arguments(cobra.NoArgs),
		Long: "Writes a configuration file of the settings of a first fleet, with comments, to standard\n" +
			"output or to --out. The file is valid as it is: every line with a default is a comment,\n" +
			"and its value takes effect when the # is removed. A setting that is given as a flag is in\n" +
			"effect. Editors that know the language server of YAML complete and check the file by the\n" +
			"schema that its first line names.",
		Example: fmt.Sprintf("  %[1]s config init\n  %[1]s config init --cluster shop --all --out %[1]s.yaml", d.Name)}
	all, out := false, ""
	c.Flags().BoolVar(&all, "all", false, "write all settings, each with its whole description")
	c.Flags().StringVar(&out, "out", "", "file to create; nothing is overwritten")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		program := cmd.Root().Name()
		var b bytes.Buffer
		err := d.Settings.WriteTemplate(&b, settings.Template{All: all, Head: []string{
			"yaml-language-server: $schema=" + schemaURL(process.Version(), d.Name),
			"",
			"Settings of the Ringway " + d.Name + ". A line such as #log-level: info shows a default; remove",
			"the # to change the setting. Flags and environment variables override this file.",
			"",
			fmt.Sprintf("  check  %s config validate FILE", program),
			fmt.Sprintf("  run    %s run --config FILE", program),
		}})
		if err != nil {
			return err
		}
		if out != "" {
			return create(out, b.Bytes(), 0o644)
		}
		_, err = cmd.OutOrStdout().Write(b.Bytes())
		return err
	}
	return c
}

var released = regexp.MustCompile(`^v\d+\.\d+\.\d+$`)

// schemaURL is where the schema of a configuration file is published: for a release at its tag.
func schemaURL(version, name string) string {
	if !released.MatchString(version) {
		version = "main"
	}
	return "https://raw.githubusercontent.com/ringway/ringway/" + version + "/docs/reference/" + name + ".schema.json"
}

// configSchemaCommand is `config schema`: it prints the JSON schema of a file.
func (d *Daemon) configSchemaCommand() *cobra.Command {
	c := &cobra.Command{Use: "schema", Short: "print the JSON schema of the configuration file", Args: arguments(cobra.NoArgs),
		Long: "Prints a JSON schema of the configuration file, by which editors complete, explain and\n" +
			"check it. Values of a wrong type and unknown keys break the schema; config validate also\n" +
			"checks what the values mean.",
		Example: fmt.Sprintf("  %[1]s config schema > %[1]s.schema.json", d.Name)}
	services := false
	if d.ServicesFile != nil {
		c.Flags().BoolVar(&services, "services", false, "print that of the services file")
	}
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		if services {
			return d.ServicesFile.WriteSchema(cmd.OutOrStdout())
		}
		return d.Settings.WriteSchema(cmd.OutOrStdout())
	}
	return c
}
