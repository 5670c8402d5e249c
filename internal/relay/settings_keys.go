package relay

import (
	"strings"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/relay/ingress"
	"github.com/ringway/ringway/internal/settings"
)

// parseKeySources reads what --key-source takes: "cookie:sid;caller", or
// "billing=cookie:sid" for one service. It reports everything that is wrong.
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
