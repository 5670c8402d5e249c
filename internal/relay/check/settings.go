package check

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// roleGate is that of Facts.Role for one that only forwards.
const roleGate = "gate"

// settingsAgree: relays that plan by different settings have ranges that do not fit
// together. The value that most relays have is taken for the right one, this relay's
// own among equals.
func settingsAgree(f *Fleet) (found []Finding) {
	all := f.all()
	for _, name := range settingNames(all) {
		byValue := map[string][]string{}
		for _, one := range all {
			if (name == "selection" || name == "session-cookie") && one.Role == roleGate {
				continue // it picks no worker
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
			found = append(found, Finding{
				Status: Failed, Subject: list(odd),
				Text: fmt.Sprintf("--%s is %s on %s, and %s on %s", name, shown(value), list(odd), shown(usual), list(byValue[usual])),
				Cause: "relays plan by themselves, and by different settings their parts do not fit together: " +
					"some workers get too few relays, others too many",
				Remedy: fmt.Sprintf("set --%s %s on %s (%s_%s, or the file) and restart it, or the other value on all others", name, shown(usual), list(odd),
					"RINGWAY", strings.ToUpper(strings.ReplaceAll(name, "-", "_"))),
				Page: page("settings-differ"),
			})
		}
	}
	return found
}

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

// setting finds a setting; a relay of another version may not tell of it.
func (f *Facts) setting(name string) (value string, told bool) {
	for _, s := range f.Settings {
		if s.Name == name {
			return s.Value, true
		}
	}
	return "", false
}

// settingNames are those of this relay, in its order.
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
