package settings

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// typed is the variable of a setting of type T.
type typed[T any] struct {
	target     *T
	initial    T
	saved      T
	parseText  func([]string) (T, error)
	formatText func(T) string
	markText   func(T) string // nil: formatText
	rules      func(T) error
}

func (v *typed[T]) parse(raw []string) error {
	parsed, err := v.parseText(raw)
	if err != nil {
		return err
	}
	*v.target = parsed
	return nil
}

func (v *typed[T]) verify() error { return v.rules(*v.target) }
func (v *typed[T]) text() string  { return v.formatText(*v.target) }
func (v *typed[T]) mark() string {
	if v.markText == nil {
		return v.text()
	}
	return v.markText(*v.target)
}
func (v *typed[T]) reset()                      { *v.target = v.initial }
func (v *typed[T]) save()                       { v.saved = *v.target }
func (v *typed[T]) restore()                    { *v.target = v.saved }
func (v *typed[T]) decode(*file, Spec) Problems { return nil }

// Kind defines how text is converted to a value of type T and back; see [Custom].
type Kind[T any] struct {
	// Name is the name of the type in the reference.
	Name string
	// Want describes in words what Parse accepts; it completes "want …".
	Want string
	// Parse must not quote the text in its error: it may be a secret.
	Parse func(text string) (T, error)
	// Format is the inverse of Parse.
	Format func(T) string
	// Pattern is a regular expression of ECMAScript for the texts that Parse accepts, for the JSON
	// schema. Values are all of these texts, if there are a few. Default: as the Name states.
	Pattern string
	Values  []string
	// Mark returns what two values must have in common to be equal, for a value that is read
	// from a file that Format only names. Default: Format.
	Mark func(T) string
}

// Custom declares a setting of any type. The other declaring functions are
// shorter forms of it.
func Custom[T any](s *Set, target *T, spec Spec, kind Kind[T], rules ...Rule[T]) {
	s.declare(&setting{
		Spec: spec, kind: kind.Name, want: kind.Want, allowed: allowed(rules),
		pattern: kind.Pattern, values: kind.Values, bounds: bounds(rules),
		variable: &typed[T]{
			target:  target,
			initial: *target,
			parseText: func(raw []string) (T, error) {
				return kind.Parse(strings.Join(raw, ","))
			},
			formatText: kind.Format,
			markText:   kind.Mark,
			rules:      func(v T) error { return judge(v, rules) },
		},
	})
}

var errNotAllowed = errors.New("not allowed")

func judge[T any](v T, rules []Rule[T]) error {
	for _, rule := range rules {
		if !rule.Holds(v) {
			return errNotAllowed
		}
	}
	return nil
}

func allowed[T any](rules []Rule[T]) string {
	words := make([]string, len(rules))
	for i, rule := range rules {
		words[i] = rule.Allowed
	}
	return strings.Join(words, ", ")
}

// orEmpty makes a rule accept the empty text, which means "not set" for an optional text
// setting.
func orEmpty[T ~string](rules []Rule[T]) []Rule[T] {
	out := make([]Rule[T], len(rules))
	for i, rule := range rules {
		out[i] = Rule[T]{Allowed: rule.Allowed, Holds: func(v T) bool { return v == "" || rule.Holds(v) }}
	}
	return out
}

// String declares a text setting. The text is not changed, spaces included. Rules are not
// applied to the empty text, which means "not set".
func String(s *Set, target *string, spec Spec, rules ...Rule[string]) {
	Custom(s, target, spec, Kind[string]{
		Name:   "string",
		Parse:  func(text string) (string, error) { return text, nil },
		Format: func(v string) string { return v },
	}, orEmpty(rules)...)
}

// Int declares a whole number, written in decimal.
func Int(s *Set, target *int, spec Spec, rules ...Rule[int]) {
	Custom(s, target, spec, Kind[int]{
		Name: "int",
		Want: "a whole number",
		Parse: func(text string) (int, error) {
			n, err := strconv.Atoi(strings.TrimSpace(text))
			if errors.Is(err, strconv.ErrRange) {
				return 0, errors.New("too large")
			}
			if err != nil {
				return 0, errors.New("not a whole number")
			}
			return n, nil
		},
		Format: strconv.Itoa,
	}, rules...)
}

// Float declares a finite number.
func Float(s *Set, target *float64, spec Spec, rules ...Rule[float64]) {
	Custom(s, target, spec, Kind[float64]{
		Name: "float",
		Want: "a number",
		Parse: func(text string) (float64, error) {
			f, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
			if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
				return 0, errors.New("not a number")
			}
			return f, nil
		},
		Format: func(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) },
	}, rules...)
}

// Bool declares a switch, which ParseBool reads. The flag without a value means true.
func Bool(s *Set, target *bool, spec Spec) {
	Custom(s, target, spec, Kind[bool]{Name: "bool", Want: "true or false", Parse: ParseBool, Format: strconv.FormatBool})
}

// ParseBool reads true, yes, on, 1 or false, no, off, 0, in any case.
func ParseBool(text string) (bool, error) {
	switch strings.ToLower(strings.TrimSpace(text)) {
	case "true", "yes", "on", "1":
		return true, nil
	case "false", "no", "off", "0":
		return false, nil
	}
	return false, errors.New("neither true nor false")
}

// Duration declares a length of time such as 500ms, 30s or 5m. A number without
// a unit is refused, except 0.
func Duration(s *Set, target *time.Duration, spec Spec, rules ...Rule[time.Duration]) {
	Custom(s, target, spec, Kind[time.Duration]{
		Name: "duration",
		Want: "a duration such as 500ms, 30s or 5m",
		Parse: func(text string) (time.Duration, error) {
			text = strings.TrimSpace(text)
			d, err := time.ParseDuration(text)
			if err == nil {
				return d, nil
			}
			if _, err := strconv.ParseFloat(text, 64); err == nil {
				return 0, errors.New("the unit is missing")
			}
			return 0, errors.New("not a duration")
		},
		Format: formatDuration,
	}, rules...)
}

// Enum declares a choice among values. The empty text is refused unless it is one of them
// or the default.
func Enum[T ~string](s *Set, target *T, spec Spec, values ...T) {
	words := make([]string, 0, len(values))
	for _, value := range values {
		if value != "" {
			words = append(words, string(value))
		}
	}
	initial := *target
	Custom(s, target, spec, Kind[T]{
		Name:   "string",
		Values: words,
		Parse:  func(text string) (T, error) { return T(strings.TrimSpace(text)), nil },
		Format: func(v T) string { return string(v) },
	}, Rule[T]{
		Allowed: strings.Join(words, ", "),
		Holds: func(v T) bool {
			return slices.Contains(values, v) || v == "" && initial == ""
		},
	})
}

// Address declares a host:port. The host may be a name, an IP address (IPv6 in
// brackets) or empty for all interfaces; port 0 lets the system choose. The
// empty text means "not set".
func Address(s *Set, target *string, spec Spec, rules ...Rule[string]) {
	if spec.Placeholder == "" {
		spec.Placeholder = "HOST:PORT"
	}
	Custom(s, target, spec, Kind[string]{
		Name:   "address",
		Want:   "host:port such as 10.0.0.1:7400, [::1]:7400 or :7400",
		Parse:  ParseAddress,
		Format: func(v string) string { return v },
	}, orEmpty(rules)...)
}

// SocketPrefix is the prefix of an address that is the path of a unix socket.
const SocketPrefix = "unix:"

// AddressOrSocket is [Address] that also accepts a unix socket by its absolute path: a
// relative path would depend on the working directory.
func AddressOrSocket(s *Set, target *string, spec Spec, rules ...Rule[string]) {
	Custom(s, target, spec, Kind[string]{
		Name:    "address",
		Want:    "host:port such as 10.0.0.1:7400, [::1]:7400 or :7400, or unix:/PATH",
		Pattern: addressPattern + `|^\s*unix:/.*$`,
		Parse: func(text string) (string, error) {
			path, socket := strings.CutPrefix(strings.TrimSpace(text), SocketPrefix)
			if !socket {
				return ParseAddress(text)
			}
			if !filepath.IsAbs(path) || filepath.Clean(path) != path {
				return "", errors.New("what follows unix: is not an absolute path")
			}
			return SocketPrefix + path, nil
		},
		Format: func(v string) string { return v },
	}, orEmpty(rules)...)
}

// ParseAddress parses a host:port as [Address] does. The brackets of IPv6 may be around an IPv4 address,
// because a manifest does not know which of both a host has; the result has none.
func ParseAddress(text string) (string, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return "", nil
	}
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		// The errors of package net quote the text; these short causes do not.
		switch {
		case strings.Contains(text, "/"):
			return "", errors.New("not host:port")
		case strings.Count(text, ":") > 1 && !strings.Contains(text, "]"):
			return "", errors.New("an IPv6 address needs brackets and a port")
		case !strings.Contains(text, ":") || strings.HasSuffix(text, "]"):
			return "", errors.New("the port is missing")
		}
		return "", errors.New("not host:port")
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return "", errors.New("the port is not a number from 0 to 65535")
	}
	if strings.ContainsAny(host, " \t\r\n/\\@?#,\"'") {
		return "", errors.New("the host is neither a name nor an IP address")
	}
	if ip, err := netip.ParseAddr(host); err == nil && ip.Is4() {
		return host + ":" + port, nil
	}
	return text, nil
}

// Strings declares a repeatable list. Rules check each item.
func Strings(s *Set, target *[]string, spec Spec, rules ...Rule[string]) {
	s.declare(&setting{
		Spec: spec, kind: "strings", want: "a list", allowed: allowed(rules), list: true,
		variable: &typed[[]string]{
			target:     target,
			initial:    slices.Clip(slices.Clone(*target)), // clipped: an append by the owner must not change it
			parseText:  func(raw []string) ([]string, error) { return slices.Clone(raw), nil },
			formatText: func(v []string) string { return strings.Join(v, ",") },
			rules:      func(items []string) error { return judgeItems(items, rules) },
		},
	})
}

// splitList splits at commas, trims spaces and drops empty items, so that
// "a, b," is two items and " " is none.
func splitList(text string) []string {
	items := []string{}
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}

// show formats a bound as in a configuration.
func show(v any) string {
	if d, ok := v.(time.Duration); ok {
		return formatDuration(d)
	}
	return fmt.Sprint(v)
}

// formatDuration writes 5m0s as 5m and 1h0m0s as 1h.
func formatDuration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
