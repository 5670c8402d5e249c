package statuspage

import (
	"fmt"
	"math"
	"regexp"
	"strings"
	"testing"
)

// palettes reads the custom properties of each scheme from the style.
func palettes(t *testing.T) (light, dark map[string]string, rest string) {
	t.Helper()
	css, err := assets.ReadFile("assets/page.css")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile(`(?s):root \{(.*?)\}`)
	property := regexp.MustCompile(`--([a-z-]+): (#[0-9a-f]{6,8});`)
	found := block.FindAllStringSubmatch(string(css), -1)
	if len(found) != 2 {
		t.Fatalf("%d palettes, want a light and a dark one", len(found))
	}
	read := func(text string) map[string]string {
		colours := map[string]string{}
		for _, m := range property.FindAllStringSubmatch(text, -1) {
			colours[m[1]] = m[2]
		}
		return colours
	}
	light, dark = read(found[0][1]), read(found[1][1])
	return light, dark, block.ReplaceAllString(string(css), "")
}

// contrast returns the ratio of WCAG 2.2: https://www.w3.org/TR/WCAG22/#dfn-contrast-ratio
func contrast(a, b string) float64 {
	la, lb := luminance(a), luminance(b)
	return (max(la, lb) + 0.05) / (min(la, lb) + 0.05)
}

func luminance(colour string) float64 {
	var c [3]uint8
	_, _ = fmt.Sscanf(colour, "#%02x%02x%02x", &c[0], &c[1], &c[2])
	linear := func(v uint8) float64 {
		s := float64(v) / 255
		if s <= 0.04045 {
			return s / 12.92
		}
		return math.Pow((s+0.055)/1.055, 2.4)
	}
	return 0.2126*linear(c[0]) + 0.7152*linear(c[1]) + 0.0722*linear(c[2])
}

func TestContrastIsEnoughInBothSchemes(t *testing.T) {
	// The colours that touch on the page. Text needs 4.5 (WCAG AA), what only draws 3.
	text := map[string][]string{
		"text":   {"page", "card", "accent-soft", "bad-soft", "warn-soft"},
		"muted":  {"page", "card"},
		"faint":  {"card"},
		"accent": {"page", "card", "accent-soft", "bad-soft", "warn-soft"},
		"good":   {"card", "good-soft"},
		"warn":   {"card", "warn-soft", "accent-soft"},
		"bad":    {"page", "card", "bad-soft", "accent-soft", "warn-soft"},
	}
	drawn := map[string][]string{"at": {"card"}, "above": {"card"}, "below": {"card"}, "arc": {"card"}, "accent": {"card"}, "faint": {"card"}, "muted": {"card"}}
	light, dark, _ := palettes(t)
	for scheme, colours := range map[string]map[string]string{"light": light, "dark": dark} {
		check := func(pairs map[string][]string, least float64) {
			for fore, backs := range pairs {
				for _, back := range backs {
					if colours[fore] == "" || colours[back] == "" {
						t.Errorf("%s: there is no %s or no %s", scheme, fore, back)
					} else if c := contrast(colours[fore], colours[back]); c < least {
						t.Errorf("%s: %s on %s has a contrast of %.2f, want %.1f", scheme, fore, back, c, least)
					}
				}
			}
		}
		check(text, 4.5)
		check(drawn, 3)
	}
	if len(light) != len(dark) {
		t.Errorf("%d colours are light, %d dark", len(light), len(dark))
	}
	if c := contrast("#000000", "#ffffff"); math.Abs(c-21) > 0.01 {
		t.Errorf("black on white: %v", c)
	}
}

func TestColoursAreInThePaletteOnly(t *testing.T) {
	light, _, rest := palettes(t)
	if found := regexp.MustCompile(`#[0-9a-fA-F]{3,8}\b|rgba?\(|hsla?\(`).FindAllString(regexp.MustCompile(`(?m)^[^{]*\{`).ReplaceAllString(rest, "{"), -1); len(found) > 0 {
		t.Errorf("outside of the palette: %v", found)
	}
	for _, m := range regexp.MustCompile(`var\(--([a-z-]+)\)`).FindAllStringSubmatch(rest, -1) {
		if light[m[1]] == "" && !strings.Contains(rest, "--"+m[1]+": ") {
			t.Errorf("--%s is used and not defined", m[1])
		}
	}
}

func TestTheStyleHeedsWhatReadersPrefer(t *testing.T) {
	_, _, rest := palettes(t)
	still, moving, found := strings.Cut(rest, "@media (prefers-reduced-motion: no-preference)")
	if !found || strings.Contains(still, "animation") || strings.Contains(still, "transition") || !strings.Contains(moving, "animation") {
		t.Error("something moves for those who prefer that it does not")
	}
	for _, want := range []string{":focus-visible", "tabular-nums", "max-width: 600px"} {
		if !strings.Contains(rest, want) {
			t.Errorf("there is no %s", want)
		}
	}
}

func TestAssetsLoadNothing(t *testing.T) {
	for _, name := range assetNames() {
		text, err := assets.ReadFile("assets/" + name)
		if err != nil {
			t.Fatal(err)
		}
		for _, bad := range []string{"url(", "@import", "http://", "https://", "eval(", "innerHTML", "Function("} {
			if strings.Contains(strings.ReplaceAll(string(text), "http://www.w3.org/2000/svg", ""), bad) {
				t.Errorf("%s has %s", name, bad)
			}
		}
	}
}
