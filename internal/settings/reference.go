package settings

import (
	"fmt"
	"io"
	"strings"
)

// Reference writes the settings of every set as Markdown tables, one per group. The output
// depends only on the declarations, so that a test can detect a stale page. Call it before
// Load.
func Reference(w io.Writer, sets ...*Set) error {
	var b strings.Builder
	for i, s := range sets {
		if i > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "## %s\n", s.name)
		for _, group := range s.groups() {
			fmt.Fprintf(&b, "\n### %s\n\n", group)
			b.WriteString("| Flag | Environment | File key | Type | Default | Allowed | Description |\n")
			b.WriteString("|---|---|---|---|---|---|---|\n")
			for _, st := range s.settings {
				if st.Group == group {
					s.row(&b, st)
				}
			}
		}
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write the settings reference: %w", err)
	}
	return nil
}

func (s *Set) row(b *strings.Builder, st *setting) {
	flag, variable, key := code("--"+st.Name), code(s.Variable(st.Name)), code(st.Name)
	if st.Letter != "" {
		flag = code("-"+st.Letter) + ", " + flag
	}
	if st.section {
		flag, variable = "–", "–"
	}
	if st.noFile {
		key = "–"
	}
	initial := "–"
	switch {
	case st.Required && st.Fallback == nil:
		initial = "required"
	case st.DefaultText != "":
		initial = cell(st.DefaultText)
	case st.Secret:
	default:
		if text := (&flagValue{setting: st}).String(); text != "" {
			initial = code(text)
		}
	}
	limits := "–"
	if text := st.allowedText(); text != "" {
		limits = cell(text)
	}
	usage := cell(st.Usage)
	if st.Secret {
		usage += " (secret: refused as a flag)"
	}
	if st.list {
		usage += " (repeatable)"
	}
	fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s | %s |\n", flag, variable, key, st.kind, initial, limits, usage)
}

// cell escapes text for a table.
func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ").Replace(text)
}

func code(text string) string { return "`" + cell(strings.ReplaceAll(text, "`", "'")) + "`" }
