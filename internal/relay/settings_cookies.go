package relay

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/settings"
)

// maxCookieName is how long the name of a session cookie may be, in bytes: every answer
// and every request carries it.
const maxCookieName = 64

// parseSessionCookies reads what --session-cookie takes: names of cookies by service. It
// reports everything that is wrong.
func parseSessionCookies(items []string) (map[string]string, []settings.Problem) {
	names := map[string]string{}
	var problems []settings.Problem
	for _, text := range items {
		refuse := func(reason, allowed string) {
			problems = append(problems, settings.Problem{Setting: "session-cookie", Value: text, Reason: reason, Allowed: allowed})
		}
		service, name, _ := strings.Cut(text, "=")
		service, name = strings.TrimSpace(service), strings.TrimSpace(name)
		_, again := names[service]
		switch {
		case affinity.ValidateService(service) != nil:
			refuse("not the name of a service before the '='", "SERVICE=NAME")
		case len(name) > maxCookieName || (&http.Cookie{Name: name}).Valid() != nil:
			refuse("not the name of a cookie after the '='", fmt.Sprintf("SERVICE=NAME, with a name of 1 to %d letters, digits and -_.!#$%%&'*+^`|~", maxCookieName))
		case again:
			refuse("a second cookie for "+service, "one for each service")
		default:
			names[service] = name
		}
	}
	return names, problems
}
