package check

import (
	"fmt"

	"github.com/ringway/ringway/internal/api"
)

// Plan are the settings of the plan that a relay uses.
type Plan struct {
	// Version is the one in use, 0 for the relay's own configuration. Author is the relay from
	// whose configuration the settings are, Hash a short name of their values.
	Version uint64 `json:"version"`
	Author  string `json:"author,omitempty"`
	Hash    string `json:"hash"`
	// FileVersion and FileHash are those of its own configuration.
	FileVersion uint64 `json:"file_version"`
	FileHash    string `json:"file_hash"`
	// FromFleet is whether it uses what other relays state.
	FromFleet bool `json:"from_fleet"`
}

// planAgree checks that all relays plan with one version of the settings, and that the
// configuration of each has it: after a stop of all relays the fleet starts with what their
// configurations have. Differing values are a finding of settingsAgree.
func planAgree(f *Fleet) (found []api.Finding) {
	var highest *Facts
	for _, one := range f.all() {
		if one.Plan != nil && (highest == nil || one.Plan.Version > highest.Plan.Version) {
			highest = one
		}
	}
	if highest == nil {
		return nil // all relays are of earlier releases
	}
	version := highest.Plan.Version
	var behind, alone, lagging []string
	byHash := map[string][]string{}
	for _, one := range f.all() {
		switch p := one.Plan; {
		case p == nil:
		case p.Version < version && !p.FromFleet:
			alone = append(alone, one.Relay)
		case p.Version < version:
			behind = append(behind, one.Relay)
		default:
			byHash[p.Hash] = append(byHash[p.Hash], one.Relay)
			if version > 0 && (p.FileVersion != version || p.FileHash != p.Hash) {
				lagging = append(lagging, one.Relay)
			}
		}
	}
	if len(behind) > 0 {
		found = append(found, api.Finding{
			Status: api.Failed, Subject: list(behind), Passing: true,
			Text:   fmt.Sprintf("%s: the plan is made with settings of an earlier version than %d, which %s uses", list(behind), version, highest.Relay),
			Cause:  "new settings reach every relay within seconds; a relay refuses what is invalid, with a line in its log",
			Remedy: "look for \"settings of the plan refused\" in the log of " + list(behind) + "; upgrade it if it is of an earlier release",
			Page:   page("settings-differ"),
		})
	}
	if len(alone) > 0 {
		found = append(found, api.Finding{
			Status: api.Failed, Subject: list(alone),
			Text:   fmt.Sprintf("%s: the plan is made with the relay's own settings, and version %d is in use", list(alone), version),
			Cause:  "--plan-from-fleet is false there, or auto without certificates and off loopback",
			Remedy: fmt.Sprintf("give its configuration version %d with the same values and reload it, or set --plan-from-fleet true", version),
			Page:   page("settings-differ"),
		})
	}
	if len(byHash) > 1 && version > 0 {
		found = append(found, api.Finding{
			Status: api.Failed, Passing: true,
			Text:   fmt.Sprintf("version %d of the settings of the plan has %d different values", version, len(byHash)),
			Cause:  "two relays were given different values with one version while they did not hear each other; every relay keeps the values that it uses",
			Remedy: fmt.Sprintf("give one relay the values that you want with --plan-version %d and reload it", version+1),
			Page:   page("settings-differ"),
		})
	}
	if len(lagging) > 0 {
		found = append(found, api.Finding{
			Status: api.Warning, Subject: list(lagging),
			Text:   fmt.Sprintf("the configuration of %s does not have version %d of the settings of the plan, which is in use", list(lagging), version),
			Cause:  "the settings came from " + author(highest) + "; they are lost if all relays stop at the same time",
			Remedy: fmt.Sprintf("give the configuration of %s --plan-version %d and the values in use (`relay plan SERVICE` shows them), and reload; if it has that version, other values are set there, perhaps --selection or --session-cookie: then give it --plan-version %d", list(lagging), version, version+1),
			Page:   page("settings-differ"),
		})
	}
	return found
}

func author(f *Facts) string {
	if f.Plan.Author == "" {
		return "another relay"
	}
	return f.Plan.Author
}

func finePlan(f *Fleet) string {
	p := f.Self.Plan
	if p == nil || p.Version == 0 {
		return "every relay plans with the settings of its configuration, without a version"
	}
	return fmt.Sprintf("all relays plan with version %d of the settings, by %s (%s)", p.Version, author(&f.Self), p.Hash)
}

// PlanSettings are the settings that plan-version covers.
var PlanSettings = []string{"min-peers-per-worker", "min-peers-per-relay", "relays-per-service", "max-relays-per-service", "index-source", "strategy", "min-peers-per-tier", "zone-slack", "skip-relay"}
