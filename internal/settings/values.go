package settings

// Value is one setting in effect, as `config show` prints it.
type Value struct {
	Name   string `json:"name" yaml:"name"`
	Group  string `json:"group" yaml:"group"`
	Type   string `json:"type" yaml:"type"`
	Value  string `json:"value" yaml:"value"` // as written in a configuration; redacted for secrets
	Origin Origin `json:"origin" yaml:"origin"`
	Secret bool   `json:"secret,omitempty" yaml:"secret,omitempty"`
}

// Values returns every setting in the order of declaration, with the value in
// effect and where it came from. Secrets that are set read "(redacted)".
func (s *Set) Values() []Value {
	values := make([]Value, len(s.settings))
	for i, st := range s.settings {
		values[i] = Value{
			Name: st.Name, Group: st.Group, Type: st.kind,
			Value: st.shown(), Origin: st.origin, Secret: st.Secret,
		}
	}
	return values
}

// Origin returns where the value of the named setting came from, and whether
// there is such a setting.
func (s *Set) Origin(name string) (Origin, bool) {
	st := s.byName[name]
	if st == nil {
		return Origin{}, false
	}
	return st.origin, true
}

// shown is the value as it may be shown to anybody.
func (st *setting) shown() string {
	text := st.text()
	if st.Secret && text != "" {
		return redacted
	}
	return text
}
