package settings

import (
	"regexp"
	"slices"
	"strings"
)

// serviceLink matches the variables that Kubernetes sets in every pod for a
// Service whose name starts like our prefix (RINGWAY_SERVICE_HOST,
// RINGWAY_PORT_7400_TCP_ADDR, …). Nobody wrote them by hand.
var serviceLink = regexp.MustCompile(`_SERVICE_HOST$|_SERVICE_PORT(_[A-Z0-9_]+)?$|(^|_)PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?$`)

// warnUnknownVariables notes variables that start with the prefix and belong to
// no setting: a mistyped one would otherwise be ignored in silence.
func (s *Set) warnUnknownVariables(environ map[string]string) {
	known := map[string]bool{}
	for _, st := range s.settings {
		known[s.Variable(st.Name)] = !st.section
	}
	var warnings []string
	for name := range environ {
		rest, ours := strings.CutPrefix(name, s.prefix)
		if !ours || known[name] || s.foreign[name] || serviceLink.MatchString(rest) || serviceLink.MatchString(name) {
			continue
		}
		text := "environment variable " + name + " is not a setting and is ignored"
		if meant := s.Suggest(name); meant != "" && !s.byName[meant].section {
			text += "; did you mean " + s.Variable(meant) + "?"
		}
		warnings = append(warnings, text)
	}
	slices.Sort(warnings)
	s.warnings = append(s.warnings, warnings...)
}

// Warnings returns what the last Load found odd but not wrong: unknown
// environment variables with the prefix, secrets on the command line.
func (s *Set) Warnings() []string { return slices.Clone(s.warnings) }
