package settings

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
)

// Sources are the inputs of [Set.Load] in addition to the bound flags.
type Sources struct {
	// Environ is the environment as os.Environ returns it; nil: no variables.
	Environ []string
	// File overrides --config, for example for a command that validates a file.
	File string
	// ReadFile reads the file; os.ReadFile when nil.
	ReadFile func(path string) ([]byte, error)
}

// Load fills every variable from the flags, the environment, the file and the defaults, in
// this order of precedence. The error is a [Problems] with all invalid settings, sorted;
// after an error the variables have their previous values. Load may be called again, for
// example to reload.
func (s *Set) Load(from Sources) error {
	if len(s.mistakes) > 0 {
		return errors.New("settings are declared wrongly: " + strings.Join(s.mistakes, "; "))
	}
	s.warnings = nil
	origins := make([]Origin, len(s.settings))
	for i, st := range s.settings {
		origins[i] = st.origin
		st.save()
		st.reset()
		st.origin = Origin{}
	}
	problems := s.load(from)
	if len(problems) == 0 {
		for _, doubts := range s.doubts {
			s.warnings = append(s.warnings, doubts()...)
		}
		return nil
	}
	for i, st := range s.settings {
		st.restore()
		st.origin = origins[i]
	}
	return problems.sorted()
}

func (s *Set) load(from Sources) Problems {
	environ := environment(from.Environ)
	config := s.byName["config"]
	problems := s.fill(config, environ, nil)
	if from.File != "" {
		s.path = from.File
		config.origin = Origin{Source: Flag, Name: "--config"}
	}
	parsed, fileProblems := s.readFile(from)
	problems = append(problems, fileProblems...)

	for _, st := range s.settings {
		// A section needs a file without syntax errors.
		if st != config && (!st.section || len(fileProblems) == 0) {
			problems = append(problems, s.fill(st, environ, parsed)...)
		}
	}
	problems = append(problems, s.fallBack(problems)...)
	problems = append(problems, s.unknownKeys(parsed)...)
	s.warnUnknownVariables(environ)

	var found Problems
	for _, check := range s.checks {
		for _, p := range check() {
			// An invalid setting keeps its default, so a check that involves one would
			// report a consequence of a problem that is reported already.
			if slices.ContainsFunc(append(p.Related, p.Setting), problems.about) || problems.about("config") {
				continue
			}
			if st := s.byName[p.Setting]; st != nil {
				whole := p.Origin == (Origin{}) && p.Value == "" // otherwise the check chose a part of the value
				if p.Origin == (Origin{}) {
					p.Origin, p.key = st.origin, st.section
				}
				if p.Value = st.public(p.Value); whole {
					p.Value = st.shown()
				}
			}
			found = append(found, p)
		}
	}
	return append(problems, found...)
}

// environment turns KEY=VALUE lines into a map; as in a shell, the last one wins.
func environment(lines []string) map[string]string {
	environ := make(map[string]string, len(lines))
	for _, line := range lines {
		if name, value, ok := strings.Cut(line, "="); ok {
			environ[name] = value
		}
	}
	return environ
}

func (s *Set) readFile(from Sources) (*file, Problems) {
	if s.path == "" {
		return nil, nil
	}
	read := from.ReadFile
	if read == nil {
		read = os.ReadFile
	}
	body, err := read(s.path)
	if err != nil {
		var pathErr *fs.PathError
		if errors.As(err, &pathErr) {
			err = pathErr.Err // the problem has the path already
		}
		return nil, Problems{{
			Setting: "config", Value: s.path, Origin: s.byName["config"].origin,
			Reason: "cannot be read: " + err.Error(), Allowed: "a readable YAML file",
		}}
	}
	return parseFile(s.path, body)
}

// fill finds the source of highest precedence that gives the setting, parses the value and
// checks it. After an error the variable holds the default.
func (s *Set) fill(st *setting, environ map[string]string, parsed *file) Problems {
	if st.section {
		if parsed == nil || parsed.keys[st.Name] == nil || isNull(parsed.keys[st.Name]) {
			if st.Required {
				return Problems{{Setting: st.Name, Reason: "required; give it in the file", key: true, missing: true}}
			}
			return nil
		}
		st.origin = parsed.origin(parsed.line[st.Name])
		return st.decode(parsed, st.Spec)
	}
	raw, origin, err := s.find(st, environ, parsed)
	st.origin = origin
	if err == nil && origin.Source != Default {
		err = st.parse(raw)
	}
	if given := origin.Source != Default; err == nil && st.Required && (given && st.text() == "" || !given && st.Fallback == nil) {
		return s.missing(st)
	}
	if err == nil {
		err = st.verify()
	}
	if err == nil && st.Secret && origin.Source == Flag {
		err = fmt.Errorf("a secret on the command line is visible to every user of this machine: %s", s.secretPlaces(st))
	}
	if err == nil {
		return nil
	}
	st.reset()
	value, reason := st.publicItems(raw), err.Error()
	if st.Secret { // also one that is empty
		value = redacted
	}
	return Problems{{Setting: st.Name, Value: value, Origin: origin, Reason: reason, Allowed: st.allowedText()}}
}

// fallBack fills the settings that no source gives and that have a Fallback. It runs when all
// other settings are filled, with the problems of these.
func (s *Set) fallBack(found Problems) (problems Problems) {
	for _, st := range s.settings {
		if st.Fallback == nil || st.origin.Source != Default || found.about(st.Name) {
			continue
		}
		text := ""
		if !found.about("config") && !found.about(st.FallbackFrom) {
			text = st.Fallback()
		}
		switch {
		case text == "" && st.Required:
			problems = append(problems, s.missing(st)...)
		case text != "":
			raw := []string{text}
			if st.list {
				raw = splitList(text)
			}
			if err := st.parse(raw); err != nil {
				problems = append(problems, Problem{Setting: st.Name, Value: text, Reason: err.Error(), Allowed: st.allowedText()})
			}
		}
	}
	return problems
}

// missing is the problem of a required setting that no source gives.
func (s *Set) missing(st *setting) Problems {
	reason := fmt.Sprintf("required; give --%s, %s or the file key %q", st.Name, s.Variable(st.Name), st.Name)
	return Problems{{Setting: st.Name, Reason: reason, Allowed: st.allowedText(), missing: true}}
}

// secretPlaces names where a secret may be given.
func (s *Set) secretPlaces(st *setting) string {
	places := fmt.Sprintf("give %s or the file key %q", s.Variable(st.Name), st.Name)
	if file := s.byName[st.Name+"-file"]; file != nil {
		places = fmt.Sprintf("give --%s, %s or the file key %q", file.Name, s.Variable(st.Name), st.Name)
	}
	return places
}

// find returns the text from the source of highest precedence.
func (s *Set) find(st *setting, environ map[string]string, parsed *file) ([]string, Origin, error) {
	if st.flag != nil && st.flag.given {
		return st.flag.raw, Origin{Source: Flag, Name: "--" + st.Name}, nil
	}
	if value := environ[s.Variable(st.Name)]; value != "" {
		origin := Origin{Source: Environment, Name: s.Variable(st.Name)}
		if st.list {
			return splitList(value), origin, nil
		}
		return []string{value}, origin, nil
	}
	if parsed != nil && !st.noFile {
		if node := parsed.keys[st.Name]; node != nil && !isNull(node) {
			origin := parsed.origin(parsed.line[st.Name])
			raw, err := scalars(node, st.list)
			return raw, origin, err
		}
	}
	return []string{st.text()}, Origin{}, nil
}

// allowedText describes the values that the kind and the rules accept.
func (st *setting) allowedText() string {
	switch {
	case st.want == "":
		return st.allowed
	case st.allowed == "":
		return st.want
	case st.list:
		return st.want + " of " + st.allowed
	}
	return st.want + ", " + st.allowed
}

func (s *Set) unknownKeys(parsed *file) Problems {
	if parsed == nil {
		return nil
	}
	var problems Problems
	for key, line := range parsed.line {
		st := s.byName[key]
		if st != nil && !st.noFile {
			continue
		}
		p := Problem{Setting: key, Origin: parsed.origin(line), key: true, Reason: "no such setting"}
		if st != nil {
			p.Reason = "can only be a flag or an environment variable"
		} else if meant := s.Suggest(key); meant != "" {
			p.Reason += "; did you mean --" + meant + "?"
			if s.byName[meant].section {
				p.Reason = "no such setting; did you mean the key " + meant + "?"
			}
		}
		problems = append(problems, p)
	}
	return problems
}

// serviceLink matches the variables that Kubernetes sets in every pod for a Service whose
// name starts like the prefix (RINGWAY_SERVICE_HOST, RINGWAY_PORT_7400_TCP_ADDR, …). They
// are not typing errors of an operator.
var serviceLink = regexp.MustCompile(`_SERVICE_HOST$|_SERVICE_PORT(_[A-Z0-9_]+)?$|(^|_)PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?$`)

// warnUnknownVariables adds a warning for variables that start with the prefix and belong
// to no setting: a mistyped one would otherwise be ignored silently.
func (s *Set) warnUnknownVariables(environ map[string]string) {
	known := map[string]bool{}
	for _, st := range s.settings {
		known[s.Variable(st.Name)] = !st.section
	}
	var warnings []string
	for name := range environ {
		rest, ours := strings.CutPrefix(name, s.prefix)
		if !ours || known[name] || serviceLink.MatchString(rest) || serviceLink.MatchString(name) {
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

// Warnings returns the warnings of the last Load: unknown environment variables with the
// prefix, and those of Warn.
func (s *Set) Warnings() []string { return slices.Clone(s.warnings) }
