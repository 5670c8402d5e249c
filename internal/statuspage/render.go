package statuspage

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"slices"
	"strings"
)

//go:embed assets
var assets embed.FS

// markup is what a template of this package has drawn.
type markup = template.HTML

// runbooks is where the pages of docs/operations are read.
const runbooks = "https://github.com/ringway/ringway/blob/main/docs/operations/"

var page = template.Must(template.New("").Funcs(template.FuncMap{
	"age": age, "ms": milliseconds, "percent": percent, "score": score, "span": span,
	"number": func(n any) (string, error) {
		switch n := n.(type) {
		case int:
			return number(n), nil
		case int64:
			return number(n), nil
		case uint64:
			return number(n), nil
		}
		return "", fmt.Errorf("number of a %T", n)
	},
	"px":          func(f float64) string { return fmt.Sprintf("%.1f", f) },
	"link":        func(service string) string { return query{Service: service}.link() },
	"runbook":     func(name string) string { return runbooks + name + ".md" },
	"label":       func(s Severity) string { return strings.ToUpper(string(s[:1])) + string(s[1:]) + ":" },
	"words":       func(s string) string { return strings.ReplaceAll(s, "_", " ") },
	"tier":        func(s string) string { return tiers[s] },
	"gone":        MemberState.gone,
	"key":         key,
	"badge":       func(s PeerState) badge { return newBadge(s, string(s)) },
	"relayBadge":  func(s PeerState) badge { return newBadge(s, forwardState(s)) },
	"memberBadge": memberBadge,
	"offerBadge":  offerBadge,
}).ParseFS(assets, "assets/page.html"))

// version changes when an asset does, so that no browser mixes two of them.
var version = func() string {
	h := sha256.New()
	for _, name := range []string{"page.html", "page.css", "page.js", "icon.svg"} {
		text, err := assets.ReadFile("assets/" + name)
		if err != nil {
			panic(err) // it was embedded by the compiler
		}
		h.Write(text)
	}
	return hex.EncodeToString(h.Sum(nil))[:12]
}()

var tiers = map[string]string{"same_dc": "datacenter", "same_region": "region", "global": "global", "": "–"}

// badge is a state with its shape.
type badge struct {
	Class       string // how bad it is
	Mark, Shape string
	Text        string
}

func key(class string, state PeerState) badge {
	return badge{Mark: strings.TrimSpace(class + " s-" + classOf(state)), Shape: shapes[state]}
}

func newBadge(s PeerState, text string) badge {
	b := key("c-at", s)
	b.Text = text
	switch s {
	case Evicted, Unreachable:
		b.Class = "bad"
	case HalfOpen, Draining, Connecting:
		b.Class = "warn"
	case Absent, Candidate, Backup:
		b.Class = "quiet"
	}
	return b
}

func memberBadge(s MemberState) badge {
	shape := map[MemberState]PeerState{Alive: Active, Leaving: Draining, Failed: Evicted, Left: Absent}[s]
	return newBadge(shape, string(s))
}

func offerBadge(o Offer) badge {
	switch {
	case o.Good:
		return newBadge(Active, o.State)
	case o.Drained:
		return newBadge(Draining, o.State+" by an operator")
	case o.State == "draining":
		return newBadge(Draining, o.State)
	}
	return newBadge(Evicted, o.State)
}

func (d *Document) worker() bool { return d.Role == "worker" }

// sections are the parts of the page that change, in their order. They are the same
// for the life of a process.
func (d *Document) sections() []string {
	if d.worker() {
		return []string{"state", "figures", "offers", "members", "links"}
	}
	return []string{"state", "figures", "ring", "services", "peers", "members", "links"}
}

// drawSections draws every section.
func (v *view) drawSections() (map[string]string, error) {
	drawn := map[string]string{}
	var b bytes.Buffer
	for _, name := range v.Document.sections() {
		b.Reset()
		if err := page.ExecuteTemplate(&b, name, v); err != nil {
			return nil, fmt.Errorf("draw the section %s: %w", name, err)
		}
		drawn[name] = b.String()
	}
	return drawn, nil
}

// drawPage draws the whole page.
func (v *view) drawPage() ([]byte, error) {
	drawn, err := v.drawSections()
	if err != nil {
		return nil, err
	}
	for _, name := range v.Document.sections() {
		v.Sections = append(v.Sections, markup(drawn[name])) // by a template: escaped already
	}
	v.Version = version
	var b bytes.Buffer
	if err := page.ExecuteTemplate(&b, "page", v); err != nil {
		return nil, fmt.Errorf("draw the page: %w", err)
	}
	return b.Bytes(), nil
}

// changed keeps the sections that differ from the last ones.
func changed(last, now map[string]string) map[string]string {
	out := map[string]string{}
	for name, text := range now {
		if last[name] != text {
			out[name] = text
		}
	}
	return out
}

var assetTypes = map[string]string{
	"page.css": "text/css; charset=utf-8",
	"page.js":  "text/javascript; charset=utf-8",
	"icon.svg": "image/svg+xml",
}

func assetNames() (names []string) {
	for name := range assetTypes {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
