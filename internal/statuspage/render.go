package statuspage

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ringway/ringway/internal/api"
)

//go:embed assets
var assets embed.FS

// markup is the output of a template of this package.
type markup = template.HTML

// runbooks is the URL of the pages of docs/operations.
const runbooks = "https://github.com/ringway/ringway/blob/main/docs/operations/"

// page is parsed when it is first asked for, which it never is on most workers.
var page = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("").Funcs(functions).ParseFS(assets, "assets/page.html"))
})

var functions = template.FuncMap{
	"age": age, "ms": milliseconds, "percent": percent, "score": score, "span": span, "rate": rate, "perSecond": perSecond, "seconds": seconds, "fleetBadge": fleetBadge, "reasons": reasons,
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
	"gone":        gone,
	"key":         key,
	"badge":       func(s PeerState) badge { return newBadge(s, string(s)) },
	"relayBadge":  func(s PeerState) badge { return newBadge(s, forwardState(s)) },
	"memberBadge": memberBadge,
	"offerBadge":  offerBadge,
}

// version changes with the assets, so that a browser does not combine old and new ones.
var version = func() string {
	h := sha256.New()
	for _, name := range []string{"page.html", "page.css", "page.js", "icon.svg"} {
		text, err := assets.ReadFile("assets/" + name)
		if err != nil {
			panic(err) // the compiler has embedded the file
		}
		h.Write(text)
	}
	return hex.EncodeToString(h.Sum(nil))[:12]
}()

var tiers = map[string]string{"same_dc": "datacenter", "same_region": "region", "global": "global", "": "–"}

// badge is a state with its shape.
type badge struct {
	Class       string // the severity
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

func memberBadge(s api.MemberState) badge {
	shape := map[api.MemberState]PeerState{api.MemberAlive: Active, api.MemberDraining: Draining, api.MemberLeaving: Draining, api.MemberFailed: Evicted, api.MemberLeft: Absent}[s]
	return newBadge(shape, string(s))
}

// fleetBadge is the state of a relay by its own report.
func fleetBadge(r api.FleetRelay) badge {
	switch {
	case r.State == api.MemberLeft:
		return newBadge(Absent, "left")
	case !r.Answered:
		return newBadge(Unreachable, "no answer")
	case !r.Ready:
		return newBadge(Draining, "not ready")
	}
	return newBadge(Active, "ready")
}

// reasons returns why a relay is not ready, or why its numbers are not known.
func reasons(r api.FleetRelay) string {
	all := r.Reasons
	if r.Problem != "" {
		all = append(slices.Clone(all), r.Problem)
	}
	return cmp.Or(strings.Join(all, "; "), "–")
}

func offerBadge(o api.WorkerService) badge {
	switch {
	case o.State == "offered":
		return newBadge(Active, o.State)
	case o.Drained:
		return newBadge(Draining, o.State+" by an operator")
	case o.State == "draining":
		return newBadge(Draining, o.State)
	}
	return newBadge(Evicted, o.State)
}

func (d *Document) worker() bool { return d.Role == "worker" }

// sections are the parts of the page that change, in their order. They stay the same during
// the life of a process.
func (d *Document) sections() []string {
	if d.worker() {
		return []string{"state", "figures", "offers", "members", "links"}
	}
	return []string{"state", "figures", "ring", "services", "peers", "callers", "fleet", "members", "links"}
}

// drawSections draws every section.
func (v *view) drawSections() (map[string]string, error) {
	drawn := map[string]string{}
	var b bytes.Buffer
	for _, name := range v.Document.sections() {
		b.Reset()
		if err := page().ExecuteTemplate(&b, name, v); err != nil {
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
		v.Sections = append(v.Sections, markup(drawn[name])) // escaped already by a template
	}
	v.Version = version
	var b bytes.Buffer
	if err := page().ExecuteTemplate(&b, "page", v); err != nil {
		return nil, fmt.Errorf("draw the page: %w", err)
	}
	return b.Bytes(), nil
}

// changed returns the sections that differ from the last ones.
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

// number groups the digits of a count by three.
func number[N int | int64 | uint64](n N) string {
	digits := strconv.FormatInt(int64(n), 10)
	sign := ""
	if digits[0] == '-' {
		sign, digits = "-", digits[1:]
	}
	var b strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(d)
	}
	return sign + b.String()
}

// span formats "3", or "3 to 4".
func span(least, most int) string {
	if least == most {
		return number(least)
	}
	return number(least) + " to " + number(most)
}

func plural(n int, what string) string {
	if n == 1 {
		return what
	}
	return what + "s"
}

// milliseconds formats with the significant decimals only. No measurement is a dash.
func milliseconds(ms float64) string {
	switch {
	case ms == 0:
		return "–"
	case ms < 100:
		return strconv.FormatFloat(ms, 'f', 2, 64)
	default:
		return number(int64(math.Round(ms)))
	}
}

// percent formats with one decimal.
func percent(share float64) string { return fmt.Sprintf("%.1f", 100*share) }

// score formats with few digits: only the order of scores matters.
func score(s float64) string {
	switch {
	case math.IsNaN(s) || math.IsInf(s, 0):
		return "–"
	case s >= 1e6:
		return fmt.Sprintf("%.1e", s)
	}
	return strconv.FormatFloat(s, 'f', 2, 64)
}

// rate formats requests per second. What was not measured is a dash.
func rate(r api.Rates) string {
	if !r.Measured {
		return "–"
	}
	return perSecond(r.RequestsPerSecond)
}

func perSecond(rate float64) string {
	if rate < 100 {
		return fmt.Sprintf("%.1f", rate)
	}
	return number(int64(rate + 0.5))
}

func seconds(d time.Duration) string { return fmt.Sprintf("%d s", d.Round(time.Second)/time.Second) }

// age is coarse, because a text that changes every second would be sent every second.
func age(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < time.Minute:
		return "< 1 min"
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d/time.Minute))
	case d < 2*day:
		return fmt.Sprintf("%d h", int(d/time.Hour))
	}
	return fmt.Sprintf("%d d", int(d/day))
}
