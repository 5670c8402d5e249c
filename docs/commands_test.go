package docs_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ringway/ringway/internal/command"
	"github.com/ringway/ringway/internal/command/relaycmd"
	"github.com/ringway/ringway/internal/command/workercmd"
)

// tools is what commands are held against.
type tools struct {
	roots     map[string]func() *cobra.Command // by the name of the binary
	targets   []string                         // of the Makefile
	variables []string                         // of the Makefile
	scenarios []string                         // of sims, with its own verbs
	isProgram func(dir string) bool            // below the root
}

func realTools(t *testing.T) *tools {
	t.Helper()
	makefile, err := os.ReadFile(filepath.Join(repository, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	first := func(expression string) (out []string) {
		for _, m := range regexp.MustCompile(expression).FindAllStringSubmatch(string(makefile), -1) {
			out = append(out, m[1])
		}
		return out
	}
	r := &tools{
		roots:   map[string]func() *cobra.Command{"relay": relaycmd.Command, "worker": workercmd.Command},
		targets: first(`(?m)^([a-z-]+):`), variables: first(`(?m)^([A-Z]+) +\?=`),
		scenarios: []string{"list", "run", "compare", "report", "plan", "from-bundle", "validate"},
		isProgram: func(dir string) bool {
			files, err := filepath.Glob(filepath.Join(repository, filepath.FromSlash(dir), "*.go"))
			if err != nil || len(files) == 0 {
				return false
			}
			source, err := os.ReadFile(files[0])
			return err == nil && regexp.MustCompile(`(?m)^package main$`).Match(source)
		},
	}
	scenario := regexp.MustCompile(`\bName:\s+"([a-z-]+)"`)
	err = filepath.WalkDir(filepath.Join(repository, "sims", "internal", "scenarios"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" {
			return err
		}
		source, err := os.ReadFile(path)
		for _, m := range scenario.FindAllStringSubmatch(string(source), -1) {
			r.scenarios = append(r.scenarios, m[1])
		}
		return err
	})
	if err != nil || len(r.targets) < 10 || len(r.scenarios) < 8 {
		t.Fatalf("targets %v, scenarios %v: %v", r.targets, r.scenarios, err)
	}
	return r
}

// shellLanguages are the names of blocks in which every line is a command.
var shellLanguages = []string{"sh", "bash", "shell"}

// wrongCommands are the commands of p that cannot work: verbs, flags, targets and
// programs that do not exist.
func (r *tools) wrongCommands(p *page) (problems []string) {
	tell := func(line int, command string, err error) {
		if err != nil {
			problems = append(problems, fmt.Sprintf("%s:%d: %s: %v", p.path, line, strings.TrimSpace(command), err))
		}
	}
	for _, f := range p.fences {
		shell := slices.Contains(shellLanguages, f.language)
		if !shell && f.language != "" {
			continue
		}
		for i := 0; i < len(f.lines); i++ {
			line, at := f.lines[i], f.line+i
			for strings.HasSuffix(line, "\\") && i+1 < len(f.lines) {
				i++
				line = strings.TrimSuffix(line, "\\") + " " + f.lines[i]
			}
			for _, words := range split(line) {
				if shell {
					tell(at, strings.Join(words, " "), r.judge(words, true))
				} else if len(words) > 0 && (words[0] == "go" || words[0] == "make") {
					tell(at, strings.Join(words, " "), r.judge(words, false)) // with an explanation behind it
				}
			}
		}
	}
	for _, s := range p.spans {
		for _, words := range split(s.text) {
			tell(s.line, s.text, r.judge(words, false))
		}
	}
	return problems
}

var (
	separators  = []string{"&&", "||", "|", ";", "&"}
	assignment  = regexp.MustCompile(`^[A-Za-z_]+=`)
	redirection = regexp.MustCompile(`^[0-9]*(>>?|<)(&[0-9]|.+)?$`)
)

// split makes words of a line of shell, a slice for each command in it. Quotes are
// taken off; comments, redirections and assignments in front are left out.
func split(line string) (commands [][]string) {
	var words []string
	var word strings.Builder
	var quote rune
	inWord := false
	endWord := func() {
		if inWord {
			words = append(words, word.String())
		}
		word.Reset()
		inWord = false
	}
	endCommand := func() {
		endWord()
		if words = withoutPlumbing(words); len(words) > 0 {
			commands = append(commands, words)
		}
		words = nil
	}
	runes := []rune(line)
	for i := 0; i < len(runes); i++ {
		c := runes[i]
		switch {
		case quote != 0:
			if c == quote {
				quote = 0
			} else {
				word.WriteRune(c)
			}
		case c == '\'' || c == '"':
			quote, inWord = c, true
		case c == '#' && !inWord:
			i = len(runes)
		case c == '$' && i+1 < len(runes) && runes[i+1] == '(':
			endCommand()
			i++
		case c == ')' || c == '{' || c == '}':
			endCommand()
		case c == ' ' || c == '\t':
			endWord()
		case strings.ContainsRune("&|;", c):
			if inWord && strings.HasSuffix(word.String(), ">") { // 2>&1
				word.WriteRune(c)
				continue
			}
			endCommand()
		default:
			inWord = true
			word.WriteRune(c)
		}
	}
	endCommand()
	return commands
}

func withoutPlumbing(words []string) (out []string) {
	for i := 0; i < len(words); i++ {
		switch word := words[i]; {
		case len(out) == 0 && assignment.MatchString(word):
		case redirection.MatchString(word):
			if strings.HasSuffix(word, ">") || strings.HasSuffix(word, "<") {
				i++
			}
		case slices.Contains(separators, word):
		default:
			out = append(out, word)
		}
	}
	return out
}

// judge returns the fault of a command; whole means that it is complete, and no
// mention of it in a sentence.
func (r *tools) judge(words []string, whole bool) error {
	if len(words) == 0 {
		return nil
	}
	for i, word := range words { // docker exec NAME /relay plan SERVICE, systemd-run -p A=B ringway-relay config validate
		if i > 0 && (word == "/relay" || word == "/worker" || words[0] == "systemd-run" && strings.HasPrefix(word, "ringway-")) {
			return r.judge(words[i:], whole)
		}
	}
	switch name := strings.TrimPrefix(strings.TrimPrefix(strings.TrimPrefix(words[0], "bin/"), "/"), "ringway-"); {
	case r.roots[name] != nil:
		if len(words) == 1 {
			return nil
		}
		return r.judgeVerb(r.roots[name](), words[1:], whole)
	case name == "make":
		return r.judgeMake(words[1:], whole)
	case name == "go" && len(words) > 2 && (words[1] == "run" || words[1] == "build"):
		return r.judgeProgram(words[2:], whole)
	}
	return nil
}

// placeholder stands for a value of the reader's.
var placeholder = regexp.MustCompile(`^[A-Z][A-Z_.:=]*$|…`)

// judgeVerb parses the command as the binary would.
func (r *tools) judgeVerb(root *cobra.Command, args []string, whole bool) error {
	for range command.Tree(root) { // makes the verbs that cobra adds
		break
	}
	c, rest, err := root.Find(args)
	if err != nil {
		return err
	}
	if c == root && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") || c.HasSubCommands() && c.HasParent() && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
		return fmt.Errorf("%s has no verb %q", c.CommandPath(), rest[0])
	}
	if !whole { // flags may stand without their values
		for _, word := range rest {
			name, isFlag := strings.CutPrefix(word, "--")
			if name, _, _ = strings.Cut(name, "="); isFlag && c.Flags().Lookup(name) == nil && c.InheritedFlags().Lookup(name) == nil && name != "help" {
				return fmt.Errorf("%s has no flag --%s", c.CommandPath(), name)
			}
		}
		return nil
	}
	if slices.ContainsFunc(rest, placeholder.MatchString) {
		for i, word := range rest {
			if placeholder.MatchString(word) {
				rest[i] = "1"
			}
		}
	}
	if err := c.ParseFlags(rest); err != nil && !errors.Is(err, pflag.ErrHelp) {
		return err
	}
	if help := c.Flags().Lookup("help"); help != nil && help.Changed {
		return nil
	}
	return c.ValidateArgs(c.Flags().Args())
}

func (r *tools) judgeMake(args []string, whole bool) error {
	for i, arg := range args {
		name, _, assigns := strings.Cut(arg, "=")
		switch {
		case strings.HasPrefix(arg, "-"):
		case assigns && slices.Contains(r.variables, name):
		case assigns:
			return fmt.Errorf("the Makefile has no variable %s", name)
		case !slices.Contains(r.targets, arg) && (whole || i == 0):
			return fmt.Errorf("the Makefile has no target %s", arg)
		}
	}
	return nil
}

func (r *tools) judgeProgram(args []string, whole bool) error {
	for len(args) > 1 && strings.HasPrefix(args[0], "-") { // go build -o bin/ ./x
		args = args[1:]
		if !strings.HasPrefix(args[0], "./") && len(args) > 1 {
			args = args[1:]
		}
	}
	dir, ok := strings.CutPrefix(args[0], "./")
	if !ok || strings.HasSuffix(dir, "...") {
		return nil
	}
	if !r.isProgram(dir) {
		return fmt.Errorf("%s is no program", args[0])
	}
	if dir == "sims" && len(args) > 1 && !strings.HasPrefix(args[1], "-") && !slices.Contains(r.scenarios, args[1]) {
		for _, choice := range strings.FieldsFunc(args[1], func(c rune) bool { return c == '|' }) { // list|run
			if !slices.Contains(r.scenarios, choice) {
				return fmt.Errorf("sims has no %s", choice)
			}
		}
	}
	return nil
}

func TestEveryCommandExists(t *testing.T) {
	r, commands := realTools(t), 0
	for _, p := range pages(t) {
		for _, problem := range r.wrongCommands(p) {
			t.Error(problem)
		}
		for _, f := range p.fences {
			if slices.Contains(shellLanguages, f.language) {
				commands += len(f.lines)
			}
		}
	}
	if commands < 200 {
		t.Errorf("only %d lines of shell were looked at", commands)
	}
}

func TestWrongCommandsAreFound(t *testing.T) {
	r := realTools(t)
	const sh, end = "```sh\n", "\n```"
	for source, want := range map[string]string{
		sh + "relay members --role worker -o json | jq .x # all" + end:                 "",
		sh + "bin/relay run --cluster shop \\\n    --environment dev 2> r.log &" + end: "",
		sh + "docker exec NAME /relay plan SERVICE" + end:                              "",
		sh + "relay check && relay health --ready" + end:                               "",
		sh + "make fuzz FUZZTIME=10s" + end:                                            "",
		sh + "go run ./sims capacity --relays 3" + end:                                 "",
		sh + "go build -o bin/ ./deploy/echo" + end:                                    "",
		"`relay keys use`, `make test`, `relay drain --admin-addr`":                    "",
		"`relay`":                                         "",
		"the relay serves it":                             "",
		"```\nrelay  relay-1, affine\n```":                "",
		sh + "relay memebers" + end:                       `docs/x.md:2: relay memebers: relay has no verb "memebers"`,
		sh + "x && relay keys rotate" + end:               `docs/x.md:2: relay keys rotate: relay keys has no verb "rotate"`,
		sh + "bin/worker drain --al" + end:                "docs/x.md:2: bin/worker drain --al: unknown flag: --al",
		sh + "worker plan x" + end:                        `docs/x.md:2: worker plan x: worker has no verb "plan"`,
		sh + "relay plan" + end:                           "docs/x.md:2: relay plan: want SERVICE, got no argument: relay plan SERVICE",
		sh + "relay run \\\n --nothing" + end:             "docs/x.md:2: relay run --nothing: unknown flag: --nothing",
		sh + "kubectl exec r -- /relay membership" + end:  `docs/x.md:2: kubectl exec r -- /relay membership: relay has no verb "membership"`,
		sh + "make everything" + end:                      "docs/x.md:2: make everything: the Makefile has no target everything",
		sh + "make fuzz TIME=1s" + end:                    "docs/x.md:2: make fuzz TIME=1s: the Makefile has no variable TIME",
		sh + "go run ./nowhere" + end:                     "docs/x.md:2: go run ./nowhere: ./nowhere is no program",
		"```\ngo run ./sims astrology   what is not\n```": "docs/x.md:2: go run ./sims astrology what is not: sims has no astrology",
		"say `make everything`":                           "docs/x.md:1: make everything: the Makefile has no target everything",
		"say `relay members --rolle`":                     "docs/x.md:1: relay members --rolle: relay members has no flag --rolle",
	} {
		if got := strings.Join(r.wrongCommands(parse("docs/x.md", source)), "; "); got != want {
			t.Errorf("%q:\n got %q\nwant %q", source, got, want)
		}
	}
}
