package routing

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/affinity"
)

// Bounds of the settings that relays agree on, beyond those of the settings themselves: one
// relay states them for the whole fleet.
const (
	// MaxPlanVersion leaves room for versions such as 202611261830.
	MaxPlanVersion   = 1 << 53
	maxPeersOfWorker = advertise.MaxRelays
	maxPlanCount     = 1 << 20
)

// planField is one setting in the text of a PlanSettings; its key is the name of the setting.
// Keys of later releases are skipped, so a setting that is added is left out of the text while
// it has its default: relays of both releases then plan alike, and have the same text.
type planField struct {
	key    string
	format func(PlanSettings) []string
	parse  func(*PlanSettings, string) error
}

var planFields = []planField{
	planNumber("min-peers-per-worker", affinity.LeastPeersPerWorker, maxPeersOfWorker, func(c *PlanSettings) *int { return &c.Minimums.PeersPerWorker }),
	planNumber("min-peers-per-relay", affinity.LeastPeersPerRelay, maxPlanCount, func(c *PlanSettings) *int { return &c.Minimums.PeersPerRelay }),
	planNumber("min-peers-per-tier", 1, maxPlanCount, func(c *PlanSettings) *int { return &c.PeersPerTier }),
	{"zone-slack",
		func(c PlanSettings) []string { return []string{strconv.FormatFloat(c.ZoneSlack, 'g', -1, 64)} },
		func(c *PlanSettings, text string) error {
			slack, err := strconv.ParseFloat(text, 64)
			if err != nil || !(slack >= 1 && slack <= affinity.MaxZoneSlack) {
				return fmt.Errorf("zone-slack %.40q: want 1 to %d", text, affinity.MaxZoneSlack)
			}
			c.ZoneSlack = slack
			return nil
		}},
	orAuto(planNumber("relays-per-service", 1, maxPlanCount, func(c *PlanSettings) *int { return &c.RelaysPerService })),
	planNumber("max-relays-per-service", 1, advertise.MaxRelays, func(c *PlanSettings) *int { return &c.MaxRelaysPerService }),
	planWord("index-source", func(c *PlanSettings) *affinity.IndexSource { return &c.IndexSource }, affinity.IndexRank, affinity.IndexSlot),
	planWord("strategy", func(c *PlanSettings) *affinity.Strategy { return &c.Strategy }, affinity.Projection, affinity.Rendezvous),
	{"skip-relay", PlanSettings.SkipTexts, (*PlanSettings).addSkip},
	planNeeds("selection", func(c *PlanSettings) *map[string]Need { return &c.Selections }, NeedNone, NeedAll, NeedVersion),
	planNeeds("session-cookie", func(c *PlanSettings) *map[string]Need { return &c.Cookies }, NeedNone, NeedAll),
}

// planLists are the settings that a text may give more than once.
var planLists = []string{"skip-relay", "selection", "session-cookie"}

func planNumber(key string, least, most int, field func(*PlanSettings) *int) planField {
	return planField{key,
		func(c PlanSettings) []string { return []string{strconv.Itoa(*field(&c))} },
		func(c *PlanSettings, text string) error {
			n, err := strconv.Atoi(text)
			if err != nil || n < least || n > most {
				return fmt.Errorf("%s %.40q: want %d to %d", key, text, least, most)
			}
			*field(c) = n
			return nil
		}}
}

// orAuto writes 0 as the setting does, so that an operator can copy the text.
func orAuto(number planField) planField {
	const auto = "auto"
	return planField{number.key,
		func(c PlanSettings) []string {
			if c.RelaysPerService == 0 {
				return []string{auto}
			}
			return number.format(c)
		},
		func(c *PlanSettings, text string) error {
			if text == auto {
				c.RelaysPerService = 0
				return nil
			}
			return number.parse(c, text)
		}}
}

func planWord[T ~string](key string, field func(*PlanSettings) *T, words ...T) planField {
	return planField{key,
		func(c PlanSettings) []string { return []string{string(*field(&c))} },
		func(c *PlanSettings, text string) error {
			if !slices.Contains(words, T(text)) {
				return fmt.Errorf("%s %.40q: want %v", key, text, words)
			}
			*field(c) = T(text)
			return nil
		}}
}

// SkipTexts returns Skip as SERVICE=RELAY, sorted.
func (c PlanSettings) SkipTexts() (out []string) {
	for service, relays := range c.Skip {
		for _, relay := range relays {
			out = append(out, service+"="+relay)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (c *PlanSettings) addSkip(text string) error {
	service, relay, ok := strings.Cut(text, "=")
	if !ok || relay == "" || len(relay) > advertise.MaxNodeIDBytes || affinity.ValidateService(service) != nil {
		return fmt.Errorf("skip-relay %.80q: want SERVICE=RELAY", text)
	}
	c.Skip = maps.Clone(c.Skip)
	if c.Skip == nil {
		c.Skip = map[string][]string{}
	}
	c.Skip[service] = append(c.Skip[service], relay)
	return nil
}

// Text returns the settings, without the version, as ParsePlanSettings reads them. Equal settings
// have equal texts.
func (c PlanSettings) Text() string {
	values := url.Values{}
	for _, f := range planFields {
		values[f.key] = f.format(c)
	}
	return values.Encode()
}

// ParsePlanSettings reads what another relay states. Settings that are not in the text have their
// defaults. The error joins all problems.
func ParsePlanSettings(version uint64, text string) (PlanSettings, error) {
	c := DefaultPlanSettings()
	c.Version = version
	if len(text) > advertise.MaxPlanBody {
		return c, fmt.Errorf("settings of %d bytes: want at most %d", len(text), advertise.MaxPlanBody)
	}
	values, err := url.ParseQuery(text)
	if err != nil {
		return c, fmt.Errorf("settings %.80q cannot be read: %w", text, err)
	}
	var problems []error
	if version > MaxPlanVersion {
		problems = append(problems, fmt.Errorf("version %d: want at most %d", version, uint64(MaxPlanVersion)))
	}
	for _, f := range planFields {
		given := values[f.key]
		if len(given) > 1 && !slices.Contains(planLists, f.key) {
			problems = append(problems, fmt.Errorf("%s is given %d times", f.key, len(given)))
			continue
		}
		for _, one := range given {
			problems = append(problems, f.parse(&c, one))
		}
	}
	problems = append(problems, c.validate())
	return c, errors.Join(problems...)
}

// Stateable returns why the settings cannot be those of a fleet: the other relays would refuse
// them.
func (c PlanSettings) Stateable() error {
	_, err := ParsePlanSettings(c.Version, c.Text())
	return err
}

// planHash is a short name of the text of settings, for people and comparisons.
func planHash(text string) string { return fmt.Sprintf("%08x", planHash32(text)) }

func planHash32(text string) uint32 { return uint32(xxhash.Sum64String(text)) }
