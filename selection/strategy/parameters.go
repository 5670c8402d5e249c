package strategy

// Parameters are those that the strategy takes, by name, with the values that they
// have. The map is the caller's; nil for a strategy without parameters.
func (s Spec) Parameters() map[string]string {
	var out map[string]string
	for _, p := range parameters {
		if p.takenBy(s.Name) {
			if out == nil {
				out = map[string]string{}
			}
			out[p.key()] = p.text(&s)
		}
	}
	return out
}
