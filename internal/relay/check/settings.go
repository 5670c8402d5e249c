package check

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ringway/ringway/internal/api"
)

// roleGate is the value of Facts.Role for a relay that only forwards.
const roleGate = "gate"

// settingsAgree checks that all relays have the same settings, because ranges that are
// planned with different settings do not fit together. The value of most relays counts as
// the right one; among equals that of this relay.
func settingsAgree(f *Fleet) (found []api.Finding) {
	all := f.all()
	for _, name := range settingNames(all) {
		byValue := map[string][]string{}
		for _, one := range all {
			if ofPicks(name) && one.Role == roleGate && one.Plan != nil && one.Plan.Version > 0 {
				continue // it picks no worker, and the settings of the fleet have what its plans need
			}
			if value, told := one.setting(name); told {
				byValue[value] = append(byValue[value], one.Relay)
			}
		}
		if len(byValue) < 2 {
			continue
		}
		own, _ := f.Self.setting(name)
		values := slices.SortedFunc(maps.Keys(byValue), func(a, b string) int {
			return cmp.Or(cmp.Compare(len(byValue[b]), len(byValue[a])), compareBool(b == own, a == own), strings.Compare(a, b))
		})
		usual := values[0]
		for _, value := range values[1:] {
			odd := byValue[value]
			cause, apply := "relays plan by themselves, and by different settings their parts do not fit together: "+
				"some workers get too few relays, others too many", "restart it"
			if slices.Contains(PlanSettings, name) {
				apply = "reload it; or give one relay the values that you want with a higher --plan-version and reload it, which sets all relays that follow the fleet"
			}
			if ofPicks(name) {
				cause = "a cookie, or a strategy that needs all workers, leaves a service fewer relays: a relay or gate with another setting " +
					"forwards requests to relays that do not serve it; and relays pick by different rules"
			}
			if name == "key-source" {
				cause, apply = "the relay that a client connects to finds the key of the request, so requests with one key go to different workers", "reload it (restart it unless only the file changes)"
			}
			found = append(found, api.Finding{
				Status: api.Failed, Subject: list(odd),
				Text:  fmt.Sprintf("--%s is %s on %s, and %s on %s", name, shown(value), list(odd), shown(usual), list(byValue[usual])),
				Cause: cause,
				Remedy: fmt.Sprintf("set --%s %s on %s (%s_%s, or the file) and %s, or the other value on all others", name, shown(usual), list(odd),
					"RINGWAY", strings.ToUpper(strings.ReplaceAll(name, "-", "_")), apply),
				Page: page("settings-differ"),
			})
		}
	}
	return found
}

// ofPicks reports whether a setting decides how workers are picked, and which of them a plan needs.
func ofPicks(name string) bool { return name == "selection" || name == "session-cookie" }

func shown(value string) string {
	if value == "" {
		return "not set"
	}
	return value
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// setting finds a setting, which a relay of another version may not send.
func (f *Facts) setting(name string) (value string, told bool) {
	for _, s := range f.Settings {
		if s.Name == name {
			return s.Value, true
		}
	}
	return "", false
}

// settingNames returns the names of this relay's settings, in its order.
func settingNames(all []*Facts) (names []string) {
	for _, s := range all[0].Settings {
		names = append(names, s.Name)
	}
	return names
}

func fineSettings(f *Fleet) string {
	all := f.all()
	if len(all) == 1 {
		return "no other relay to compare settings with"
	}
	return fmt.Sprintf("%d relays plan by the same %d settings", len(all), len(f.Self.Settings))
}
