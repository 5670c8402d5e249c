package settings

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxFileSize limits the configuration file in bytes; real ones are a few kilobytes.
const maxFileSize = 1 << 20

// file is a parsed configuration file: its top-level keys, not checked yet.
type file struct {
	path string
	body []byte
	keys map[string]*yaml.Node // key to value
	line map[string]int        // key to its line
}

func (f *file) origin(line int) Origin { return Origin{Source: File, Name: f.path, Line: line} }

// fault is a problem with the file as a whole.
func (f *file) fault(line int, reason string) Problem {
	return Problem{Setting: "config", Value: f.path, Origin: f.origin(line), Reason: reason}
}

// parseFile reads the top level of a YAML file. It never fails as a whole: it returns the
// readable part together with the problems.
func parseFile(path string, body []byte) (*file, Problems) {
	f := &file{path: path, body: body, keys: map[string]*yaml.Node{}, line: map[string]int{}}
	if len(body) > maxFileSize {
		return f, Problems{f.fault(0, fmt.Sprintf("the file is larger than %d bytes", maxFileSize))}
	}
	decoder := yaml.NewDecoder(bytes.NewReader(body))
	var document yaml.Node
	if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
		return f, nil
	} else if err != nil {
		return f, Problems{f.syntax(err)}
	}
	var problems Problems
	var second yaml.Node
	if err := decoder.Decode(&second); err == nil {
		problems = append(problems, f.fault(second.Line, "the file holds more than one YAML document"))
	} else if !errors.Is(err, io.EOF) {
		problems = append(problems, f.syntax(err))
	}
	if len(document.Content) == 0 || isNull(document.Content[0]) {
		return f, problems
	}
	top := document.Content[0]
	if top.Kind != yaml.MappingNode {
		return f, append(problems, f.fault(top.Line, "want lines of the form `key: value`, found "+describe(top)))
	}
	for i := 0; i+1 < len(top.Content); i += 2 {
		key, value := top.Content[i], resolve(top.Content[i+1])
		if key.Kind != yaml.ScalarNode {
			problems = append(problems, f.fault(key.Line, "a key must be a name, found "+describe(key)))
			continue
		}
		if first, doubled := f.line[key.Value]; doubled {
			problems = append(problems, Problem{
				Setting: key.Value, Origin: f.origin(key.Line), key: true,
				Reason: fmt.Sprintf("given twice, first in line %d", first),
			})
			continue
		}
		f.keys[key.Value], f.line[key.Value] = value, key.Line
	}
	return f, problems
}

var yamlLine = regexp.MustCompile(`^(?:yaml: )?line (\d+): `)

// syntax turns an error of the YAML parser into a problem with a line number.
func (f *file) syntax(err error) Problem {
	line, text := splitLine(err.Error())
	if strings.Contains(text, "unknown anchor") {
		// The text of the parser quotes the value, which may be a secret that begins with
		// an asterisk.
		text = "a value that begins with * needs quotes"
	}
	return f.fault(line, "not valid YAML: "+text)
}

// splitLine removes the line number from the start of a message of the YAML parser.
func splitLine(text string) (line int, rest string) {
	match := yamlLine.FindStringSubmatch(text)
	if match == nil {
		return 0, text
	}
	line, err := strconv.Atoi(match[1])
	if err != nil {
		return 0, text
	}
	return line, text[len(match[0]):]
}

// resolve follows an alias to its target.
func resolve(node *yaml.Node) *yaml.Node {
	if node.Kind == yaml.AliasNode && node.Alias != nil {
		return node.Alias
	}
	return node
}

func isNull(node *yaml.Node) bool {
	return node.Kind == yaml.ScalarNode && node.ShortTag() == "!!null"
}

// describe names the kind of a node in words.
func describe(node *yaml.Node) string {
	switch node.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode:
		return "an alias"
	default:
		return "a single value"
	}
}

// scalars returns the texts of a node for a setting that is not a section.
func scalars(node *yaml.Node, list bool) ([]string, error) {
	switch {
	case node.Kind == yaml.ScalarNode:
		if err := plain(node); err != nil {
			return nil, err
		}
		if list {
			return splitList(node.Value), nil
		}
		return []string{node.Value}, nil
	case node.Kind == yaml.SequenceNode && list:
		items := make([]string, 0, len(node.Content))
		for _, item := range node.Content {
			item = resolve(item)
			if item.Kind != yaml.ScalarNode || isNull(item) {
				return nil, fmt.Errorf("line %d: an item of the list must be a single value", item.Line)
			}
			if err := plain(item); err != nil {
				return nil, err
			}
			items = append(items, item.Value)
		}
		return items, nil
	case list:
		return nil, errors.New("want a list or a single value, found " + describe(node))
	default:
		return nil, errors.New("want a single value, found " + describe(node))
	}
}

// plain refuses tags whose text is not the value, such as !!binary.
func plain(node *yaml.Node) error {
	switch node.ShortTag() {
	case "!!str", "!!int", "!!float", "!!bool", "!!timestamp", "!!merge":
		return nil
	}
	return errors.New("YAML tags are not supported here")
}
