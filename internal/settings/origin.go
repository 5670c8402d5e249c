package settings

import "strconv"

// Source is the kind of place a value came from, in rising precedence.
type Source uint8

// The sources, in rising precedence.
const (
	Default Source = iota
	File
	Environment
	Flag
)

// String returns "default", "file", "environment" or "flag".
func (s Source) String() string {
	switch s {
	case File:
		return "file"
	case Environment:
		return "environment"
	case Flag:
		return "flag"
	default:
		return "default"
	}
}

// Origin says where a value came from. The zero value means: it is the default.
type Origin struct {
	Source Source
	// Name is the flag with its dashes, the environment variable or the path of
	// the file; empty for a default.
	Name string
	// Line is the line in the file, from 1; 0 when it is not known or not a file.
	Line int
}

// String returns for example "flag --cluster", "environment RINGWAY_CLUSTER",
// "file relay.yaml:7" or "default".
func (o Origin) String() string {
	text := o.Source.String()
	if o.Name != "" {
		text += " " + o.Name
	}
	if o.Line > 0 {
		text += ":" + strconv.Itoa(o.Line)
	}
	return text
}

// MarshalText gives the form of [Origin.String], for JSON and YAML output.
func (o Origin) MarshalText() ([]byte, error) { return []byte(o.String()), nil }
