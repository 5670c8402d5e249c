package relay

import (
	"slices"
	"strings"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/relay/routing"
	"github.com/ringway/ringway/internal/settings"
	"github.com/ringway/ringway/selection/strategy"
)

// parseSelection reads what --selection takes: "stable", or "billing=stable" for one
// service. It reports everything that is wrong.
func parseSelection(items []string) (routing.ChoosingConfig, []settings.Problem) {
	cfg := routing.ChoosingConfig{ByService: map[string]strategy.Spec{}}
	var problems []settings.Problem
	for _, text := range joinPreferred(items) {
		refuse := func(reason, allowed string) {
			problems = append(problems, settings.Problem{Setting: "selection", Value: text, Reason: reason, Allowed: allowed})
		}
		service, spec := cutService(text)
		if service != nil && affinity.ValidateService(*service) != nil {
			refuse("not the name of a service before the '='", "SERVICE=STRATEGY, or STRATEGY for all services")
		}
		parsed, err := strategy.Parse(spec)
		switch {
		case spec == "":
			refuse("no strategy", strings.Join(strategy.Names(), ", "))
			continue
		case err != nil:
			for _, one := range split(err) {
				refuse(strings.TrimPrefix(one.Error(), "selection: "), "")
			}
			continue
		}
		_, again := cfg.ByService[deref(service)]
		switch {
		case service == nil && cfg.Default != nil:
			refuse("a second strategy for all services", "one; give the others to their services, SERVICE=STRATEGY")
		case service == nil:
			cfg.Default = &parsed
		case again:
			refuse("a second strategy for "+*service, "one for each service")
		default:
			cfg.ByService[*service] = parsed
		}
	}
	return cfg, problems
}

// cutService takes the service off the front, if there is one: the '=' of a parameter
// comes after a ';'.
func cutService(text string) (service *string, spec string) {
	head, _, _ := strings.Cut(text, ";")
	if name, _, found := strings.Cut(head, "="); found {
		name = strings.TrimSpace(name)
		return &name, strings.TrimSpace(text[strings.IndexByte(text, '=')+1:])
	}
	return nil, text
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// joinPreferred puts lists of preferred nodes together again. A list is also what
// separates the values of a setting in a flag and in the environment, with the same
// comma: what follows a list of nodes and is neither a strategy nor one of a service
// is another node.
func joinPreferred(items []string) []string {
	var out []string
	for _, item := range items {
		head, _, _ := strings.Cut(item, ";")
		if n := len(out) - 1; n >= 0 && !strings.Contains(head, "=") && !slices.Contains(strategy.Names(), strings.TrimSpace(head)) {
			if last := out[n][strings.LastIndexByte(out[n], ';')+1:]; strings.HasPrefix(strings.TrimSpace(last), "preferred=") {
				out[n] += "," + item
				continue
			}
		}
		out = append(out, item)
	}
	return out
}

// split takes joined errors apart.
func split(err error) []error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var out []error
	for _, one := range joined.Unwrap() {
		out = append(out, split(one)...)
	}
	return out
}
