package relay

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/proxy/ingress"
	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/internal/relay/routing"
	"github.com/ringway/ringway/internal/settings"
	"github.com/ringway/ringway/internal/strategy"
)

// parseSelection parses --selection: "stable", or "billing=stable" for one service. It
// reports all errors.
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

// cutService cuts off the service, if there is one: the '=' of a parameter follows a ';'.
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

// joinPreferred restores lists of preferred nodes. The values of a setting in a flag and
// in the environment are separated by the same comma as these lists. So an item that
// follows a list of nodes, and is neither a strategy nor one of a service, is another
// node.
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

// split returns the single errors of joined errors.
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

// parseKeySources parses --key-source: "cookie:sid;caller", or "billing=cookie:sid" for
// one service. It reports all errors.
func parseKeySources(items []string) (ingress.Keys, []settings.Problem) {
	keys := ingress.Keys{ByService: map[string]ingress.KeySources{}}
	var problems []settings.Problem
	for _, text := range items {
		refuse := func(reason, allowed string) {
			problems = append(problems, settings.Problem{Setting: "key-source", Value: text, Reason: reason, Allowed: allowed})
		}
		service, rest, found := strings.Cut(text, "=")
		service = strings.TrimSpace(service)
		if !found {
			service, rest = "", text
		} else if affinity.ValidateService(service) != nil {
			refuse("not the name of a service before the '='", "SERVICE=SOURCE, or SOURCE for all services")
			continue
		}
		sources, err := ingress.ParseKeySources(rest)
		if err != nil {
			refuse(err.Error(), ingress.KeySourceForms)
			continue
		}
		_, again := keys.ByService[service]
		switch {
		case !found && keys.Default != nil:
			refuse("a second source for all services", "one value with the sources in their order, divided by ';'")
		case !found:
			keys.Default = sources
		case again:
			refuse("a second source for "+service, "one value for each service, with the sources in their order, divided by ';'")
		default:
			keys.ByService[service] = sources
		}
	}
	return keys, problems
}

// parseServerNames parses --service-server-name: names in certificates by service, under ""
// that of all others. It reports all errors.
func parseServerNames(items []string) (map[string]string, []settings.Problem) {
	names := map[string]string{}
	var problems []settings.Problem
	for _, text := range items {
		refuse := func(reason string) {
			problems = append(problems, settings.Problem{Setting: "service-server-name", Value: text, Reason: reason, Allowed: "SERVICE=NAME, or NAME for all other services"})
		}
		service, name, found := strings.Cut(text, "=")
		if !found {
			service, name = "", text
		}
		service, name = strings.TrimSpace(service), strings.TrimSpace(name)
		err := upstream.CheckServerName(name)
		_, again := names[service]
		switch {
		case found && affinity.ValidateService(service) != nil:
			refuse("not the name of a service before the '='")
		case err != nil:
			refuse(err.Error())
		case again:
			refuse("a second name for " + cmp.Or(service, "all other services"))
		default:
			names[service] = name
		}
	}
	return names, problems
}

// parseSessionCookies parses --session-cookie: names of cookies by service, empty for none. It
// reports all errors.
func parseSessionCookies(items []string) (map[string]string, []settings.Problem) {
	names := map[string]string{}
	var problems []settings.Problem
	for _, text := range items {
		refuse := func(reason, allowed string) {
			problems = append(problems, settings.Problem{Setting: "session-cookie", Value: text, Reason: reason, Allowed: allowed})
		}
		service, name, found := strings.Cut(text, "=")
		service, name = strings.TrimSpace(service), strings.TrimSpace(name)
		_, again := names[service]
		switch {
		case affinity.ValidateService(service) != nil:
			refuse("not the name of a service before the '='", "SERVICE=NAME")
		case !found || name != "" && advertise.CheckCookieName(name) != nil:
			refuse("not the name of a cookie after the '='", fmt.Sprintf("SERVICE=NAME, with a name of 1 to %d letters, digits and -_.!#$%%&'*+^`|~, or SERVICE= for no cookie", advertise.MaxCookieName))
		case again:
			refuse("a second cookie for "+service, "one for each service")
		default:
			names[service] = name
		}
	}
	return names, problems
}
