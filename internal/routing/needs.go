package routing

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/strategy"
)

// Need is what the strategy or the session cookie of a service requires of its plan.
type Need string

// The needs. Strategies with the same need have the same plan.
const (
	NeedNone    Need = "none"
	NeedAll     Need = "all"     // each relay reaches all workers
	NeedVersion Need = "version" // all relays use the workers of one version
)

func needOf(s strategy.Spec) Need {
	switch {
	case s.NeedsWholeRange():
		return NeedAll
	case s.Name == strategy.Slots:
		return NeedVersion
	}
	return NeedNone
}

// WithNeeds returns the settings with what a relay's strategies and cookies require of plans.
func (c PlanSettings) WithNeeds(of StrategiesConfig) PlanSettings {
	c.Selections, c.Cookies = nil, nil
	for service, spec := range of.ByService {
		if need := needOf(spec); service != "" || need != NeedNone {
			setNeed(&c.Selections, service, need)
		}
	}
	for service, name := range of.SessionCookies {
		need := NeedNone
		if name != "" {
			need = NeedAll
		}
		setNeed(&c.Cookies, service, need)
	}
	return c
}

func setNeed(of *map[string]Need, service string, need Need) {
	if *of == nil {
		*of = map[string]Need{}
	}
	(*of)[service] = need
}

// needs returns what the plan of a service requires. It follows from the agreed settings and from what the
// workers advertise. The strategy that this process picks with does not count: processes that pick differently, or
// not at all, must make the same plan. The precedence is that of strategies and cookies.
func (c PlanSettings) needs(service string, votes Votes) (all, oneVersion bool) {
	selection, set := c.Selections[service]
	if !set {
		if advertised := winner(votes.Selections); advertised != "" {
			name, _, _ := strings.Cut(advertised, ";")
			selection = needOf(strategy.Spec{Name: name})
		} else {
			selection = c.Selections[""]
		}
	}
	cookie, set := c.Cookies[service]
	if ranked := RankedPolicies(votes.Policies[advertise.KeySessionCookie]); !set && len(ranked) > 0 && ranked[0] != "" {
		cookie = NeedAll
	}
	return selection == NeedAll || cookie == NeedAll, selection == NeedVersion
}

// planNeeds writes each need with its services as NEED SERVICE …, that of all other services as NEED, and no
// needs as nothing. A blank is one byte of a text, and texts are bounded.
func planNeeds(key string, field func(*PlanSettings) *map[string]Need, needs ...Need) planField {
	return planField{key,
		func(c PlanSettings) (out []string) {
			of := *field(&c)
			if need, set := of[""]; set {
				out = append(out, string(need))
			}
			for _, need := range needs {
				text := string(need)
				for _, service := range slices.Sorted(maps.Keys(of)) {
					if service != "" && of[service] == need {
						text += " " + service
					}
				}
				if text != string(need) {
					out = append(out, text)
				}
			}
			return out
		},
		func(c *PlanSettings, text string) error {
			words := strings.Split(text, " ")
			services := words[1:]
			if len(services) == 0 {
				services = []string{""}
			}
			need := Need(words[0])
			for _, service := range services {
				_, twice := (*field(c))[service]
				if twice || !slices.Contains(needs, need) || len(words) > 1 && affinity.ValidateService(service) != nil {
					return fmt.Errorf("%s %.80q: want NEED SERVICE …, each service once, with a need of %v", key, text, needs)
				}
				setNeed(field(c), service, need)
			}
			return nil
		}}
}
