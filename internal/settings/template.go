package settings

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// templateWidth is the width of the comments of a new configuration file.
const templateWidth = 100

// Template configures [Set.WriteTemplate].
type Template struct {
	// Head are lines of comment at the top, without their #.
	Head []string
	// All writes every setting with its Usage. Otherwise those with a Short are written.
	All bool
}

// WriteTemplate writes a new configuration file: a comment for each setting, and a line that
// holds the default behind a #, so that the file changes nothing. Only settings with an Initial
// have their line in effect, and those that are given as flags, also if they have no Short. The
// values of flags are checked as by Load, together with the rest of the file.
func (s *Set) WriteTemplate(w io.Writer, cfg Template) error {
	if slices.ContainsFunc(s.settings, (*setting).given) {
		body := s.template(cfg)
		if err := s.Load(Sources{File: "the new file", ReadFile: func(string) ([]byte, error) { return []byte(body), nil }}); err != nil {
			return err
		}
		if config := s.byName["config"]; config.given() {
			return Problems{{Setting: config.Name, Value: config.flag.raw[0], Origin: Origin{Source: Flag, Name: "--" + config.Name}, Reason: "no key of a file: leave it out"}}
		}
	}
	if _, err := io.WriteString(w, s.template(cfg)); err != nil {
		return fmt.Errorf("write a configuration file: %w", err)
	}
	return nil
}

// given reports whether a flag gives the setting.
func (st *setting) given() bool { return st.flag != nil && st.flag.given }

func (s *Set) template(cfg Template) string {
	var b strings.Builder
	for _, line := range cfg.Head {
		b.WriteString(strings.TrimRight("# "+line, " ") + "\n")
	}
	for _, group := range s.groups() {
		head := "\n# " + group + "\n"
		for _, st := range s.settings {
			if st.Group != group || st.noFile || st.Short == "" && !cfg.All && !st.given() {
				continue
			}
			b.WriteString(head + "\n")
			head = ""
			st.template(&b, cfg.All, st.Instead != "" && s.byName[st.Instead].given())
		}
	}
	return b.String()
}

// template writes the comment and the line of one setting. Replaced means that Instead is given.
func (st *setting) template(b *strings.Builder, whole, replaced bool) {
	text := st.Short
	if whole || text == "" {
		text = st.Usage
		if st.DefaultText != "" {
			text += "; default: " + st.DefaultText
		}
	}
	for _, line := range wrap(text, templateWidth-len("# ")) {
		b.WriteString("# " + line + "\n")
	}
	switch {
	case st.given():
		fmt.Fprintf(b, "%s: %s\n", st.Name, st.yaml(st.text()))
	case st.Initial != "" && !replaced:
		fmt.Fprintf(b, "%s: %s\n", st.Name, st.Initial)
	default:
		b.WriteString(strings.TrimRight(fmt.Sprintf("#%s: %s", st.Name, st.initialYAML()), " ") + "\n")
	}
}

// initialYAML is the default as a value of the file; empty, which means not given, if there is
// none or if it is not a fixed one.
func (st *setting) initialYAML() string {
	text := (&flagValue{setting: st}).String()
	if text == "" || st.DefaultText != "" || st.section {
		return ""
	}
	return st.yaml(text)
}

// yaml writes the text of a value as one line of YAML.
func (st *setting) yaml(text string) string {
	var value any = text
	switch st.kind {
	case "bool", "int", "float":
		return text
	case "strings":
		value = splitList(text)
	}
	node := &yaml.Node{}
	if err := node.Encode(value); err != nil {
		return ""
	}
	if node.Kind == yaml.SequenceNode {
		node.Style = yaml.FlowStyle // on one line; a scalar keeps its quotes
	}
	line, err := yaml.Marshal(node)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(line))
}

// wrap splits text at spaces into lines of at most width bytes, or one word.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines = append(lines, line)
			line = ""
		}
		line = strings.TrimLeft(line+" "+word, " ")
	}
	return append(lines, line)
}
