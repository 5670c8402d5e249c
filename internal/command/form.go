package command

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
	"golang.org/x/term"
)

// The forms of output.
const (
	formTable = "table"
	formJSON  = "json"
	formYAML  = "yaml"
	formWide  = "wide"
)

// forms are all of them. A table is for people and may change; scripts read JSON.
var forms = []string{formTable, formJSON, formYAML, formWide}

// form is the form in which a verb shows what it read.
type form struct {
	outputs []string
	output  string
}

// bind adds --output with the forms that are allowed, all when none is named.
func (f *form) bind(flags *pflag.FlagSet, outputs ...string) {
	if len(outputs) == 0 {
		outputs = forms
	}
	f.outputs = outputs
	last := len(outputs) - 1
	flags.StringVarP(&f.output, "output", "o", outputs[0], "form of the output: "+strings.Join(outputs[:last], ", ")+" or "+outputs[last])
}

func (f *form) check() error {
	if !slices.Contains(f.outputs, f.output) {
		return fmt.Errorf("--output %q: allowed are %s", f.output, strings.Join(f.outputs, ", "))
	}
	return nil
}

// wide reports whether a table shall show all columns.
func (f *form) wide() bool { return f.output == formWide }

// show writes a JSON document in the form that was asked for.
func (f *form) show(cmd *cobra.Command, text []byte, table func(io.Writer) error) error {
	return f.write(cmd.OutOrStdout(), text, table)
}

func (f *form) write(out io.Writer, text []byte, table func(io.Writer) error) error {
	switch f.output {
	case formJSON:
		_, err := out.Write(text)
		return err
	case formYAML:
		return writeYAML(out, text)
	}
	return table(out)
}

// showValue is show for a value that was not read as JSON.
func (f *form) showValue(cmd *cobra.Command, v any, table func(io.Writer) error) error {
	text, err := document(v)
	if err != nil {
		return err
	}
	return f.show(cmd, text, table)
}

// document is v as the admin API would answer it.
func document(v any) ([]byte, error) {
	text, err := json.MarshalIndent(v, "", "  ")
	return append(text, '\n'), err
}

// writeYAML writes JSON as YAML, keys in the order that they have.
func writeYAML(w io.Writer, text []byte) error {
	var doc yaml.Node // JSON is YAML, in flow style
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return fmt.Errorf("write the answer as YAML: %w", err)
	}
	plainStyle(&doc)
	enc := yaml.NewEncoder(w)
	enc.SetIndent(2)
	if err := enc.Encode(&doc); err != nil {
		return err
	}
	return enc.Close()
}

// plainStyle drops the style of JSON. A text that would be read as something else
// without its quotes keeps them: the encoder sees to that.
func plainStyle(n *yaml.Node) {
	n.Style = 0
	for _, child := range n.Content {
		plainStyle(child)
	}
}

// terminal is the terminal that w writes to, if it does.
func terminal(w io.Writer) (*os.File, bool) {
	file, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return nil, false
	}
	return file, true
}

// coloured reports whether w may be given colours: only a terminal, and not when the
// environment says NO_COLOR (no-color.org).
func coloured(w io.Writer) bool {
	_, ok := terminal(w)
	return ok && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}
