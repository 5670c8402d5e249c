package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// linked is what the binaries of one platform consist of.
type linked struct {
	programs []program
	modules  []module // sorted; the standard library is one of them
}

type program struct {
	name, sha256 string
	modules      []string // keys of modules
}

type module struct {
	path, version string
	licences      []licence
}

func (m module) key() string { return m.path + "@" + m.version }

// standard is the module of Go itself: buildinfo does not list it.
const standard = "stdlib"

// modules reads the modules of the binaries in the stage, and the licences of the packages
// that they link.
func (r *release) modules(p platform, stage string) (*linked, error) {
	texts, err := licencesOfPackages(p)
	if err != nil {
		return nil, err
	}
	all := map[string]module{}
	l := &linked{}
	for _, b := range binaries {
		file := filepath.Join(stage, installed(b))
		info, err := buildinfo.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read the modules of %s: %w", file, err)
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(content)
		one := program{name: installed(b), sha256: hex.EncodeToString(sum[:])}
		found := []module{{path: standard, version: strings.TrimPrefix(info.GoVersion, "go")}}
		for _, d := range info.Deps {
			if d.Replace != nil {
				return nil, fmt.Errorf("%s links %s in place of %s: a release has no replaced module", installed(b), d.Replace.Path, d.Path)
			}
			found = append(found, module{path: d.Path, version: d.Version})
		}
		for _, m := range found {
			m.licences = texts[m.key()]
			if m.path == standard {
				m.licences = texts[standard]
			}
			if len(m.licences) == 0 {
				return nil, fmt.Errorf("%s: no file with a licence found: a module without one cannot be redistributed", m.key())
			}
			all[m.key()] = m
			one.modules = append(one.modules, m.key())
		}
		l.programs = append(l.programs, one)
	}
	for _, m := range all {
		l.modules = append(l.modules, m)
	}
	slices.SortFunc(l.modules, func(a, b module) int { return strings.Compare(a.key(), b.key()) })
	return l, nil
}

// licencesOfPackages reads the licences of all packages that the binaries link, by module:
// those in the directory of a package and in all above it, up to the module.
func licencesOfPackages(p platform) (map[string][]licence, error) {
	args := []string{"list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}}@{{.Version}}\t{{.Dir}}\t{{$.Dir}}{{end}}{{end}}"}
	for _, b := range binaries {
		args = append(args, "./cmd/"+b)
	}
	list := exec.Command("go", args...)
	list.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0", "GOOS="+p.os, "GOARCH="+p.arch)
	out, err := output(list)
	if err != nil {
		return nil, err
	}
	goroot, err := output(exec.Command("go", "env", "GOROOT"))
	if err != nil {
		return nil, err
	}
	found := map[string][]licence{}
	add := func(key, root, dir string) error {
		texts, err := licencesIn(root, dir)
		for _, t := range texts {
			if !slices.Contains(found[key], t) {
				found[key] = append(found[key], t)
			}
		}
		return err
	}
	root := strings.TrimSpace(string(goroot))
	if err := add(standard, root, root); err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(out)) {
		if fields := strings.Split(strings.TrimSpace(line), "\t"); len(fields) == 3 {
			if err := add(fields[0], fields[1], fields[2]); err != nil {
				return nil, fmt.Errorf("%s: %w", fields[0], err)
			}
		}
	}
	return found, nil
}

// writeNotices writes the licences and notices of all modules.
func (l *linked) writeNotices(file string) error {
	var b strings.Builder
	b.WriteString("Ringway contains the following modules. Their source is available as Go modules of these names and versions.\n")
	for _, m := range l.modules {
		fmt.Fprintf(&b, "\n%s\n%s\n", strings.Repeat("=", 80), m.key())
		for _, t := range m.licences {
			fmt.Fprintf(&b, "%s\n%s: %s\n\n%s\n", strings.Repeat("-", 80), t.file, t.id, strings.TrimSpace(t.text))
		}
	}
	return os.WriteFile(file, []byte(b.String()), 0o644)
}

// The parts of SPDX 2.3 that the SBOM has.
type (
	sbom struct {
		Version       string         `json:"spdxVersion"`
		DataLicense   string         `json:"dataLicense"`
		ID            string         `json:"SPDXID"`
		Name          string         `json:"name"`
		Namespace     string         `json:"documentNamespace"`
		Creation      creation       `json:"creationInfo"`
		Packages      []spdxPackage  `json:"packages"`
		Relationships []relationship `json:"relationships"`
	}
	creation struct {
		Created  string   `json:"created"`
		Creators []string `json:"creators"`
	}
	spdxPackage struct {
		ID        string      `json:"SPDXID"`
		Name      string      `json:"name"`
		Version   string      `json:"versionInfo"`
		Purpose   string      `json:"primaryPackagePurpose"`
		Download  string      `json:"downloadLocation"`
		Analyzed  bool        `json:"filesAnalyzed"`
		Concluded string      `json:"licenseConcluded"`
		Declared  string      `json:"licenseDeclared"`
		Copyright string      `json:"copyrightText"`
		Checksums []checksum  `json:"checksums,omitempty"`
		Refs      []reference `json:"externalRefs"`
	}
	checksum struct {
		Algorithm string `json:"algorithm"`
		Value     string `json:"checksumValue"`
	}
	reference struct {
		Category string `json:"referenceCategory"`
		Type     string `json:"referenceType"`
		Locator  string `json:"referenceLocator"`
	}
	relationship struct {
		Element string `json:"spdxElementId"`
		Type    string `json:"relationshipType"`
		Related string `json:"relatedSpdxElement"`
	}
)

const source = "github.com/ringway/ringway"

// notInID are the characters that an SPDX id cannot have.
var notInID = regexp.MustCompile(`[^A-Za-z0-9.-]+`)

// writeSBOM lists both binaries and their modules as an SPDX document.
func (r *release) writeSBOM(file string, p platform, l *linked) error {
	name := strings.TrimSuffix(filepath.Base(file), ".spdx.json")
	doc := sbom{
		Version: "SPDX-2.3", DataLicense: "CC0-1.0", ID: "SPDXRef-DOCUMENT", Name: name,
		// Unique for the content: the checksums of the binaries decide it.
		Namespace: "https://" + source + "/spdx/" + url.PathEscape(name) + "/" + l.programs[0].sha256[:16] + l.programs[1].sha256[:16],
		Creation:  creation{r.date.Format(time.RFC3339), []string{"Tool: ringway-release", "Organization: The Ringway authors"}},
	}
	id := func(key string) string { return "SPDXRef-" + strings.Trim(notInID.ReplaceAllString(key, "-"), "-") }
	for _, program := range l.programs {
		doc.Packages = append(doc.Packages, spdxPackage{
			ID: id(program.name), Name: program.name, Version: r.version, Purpose: "APPLICATION", Download: "https://" + source,
			Concluded: "Apache-2.0", Declared: "Apache-2.0", Copyright: "NOASSERTION",
			Checksums: []checksum{{"SHA256", program.sha256}},
			Refs:      []reference{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + source + "@" + url.PathEscape(r.version) + "?goarch=" + p.arch + "&goos=" + p.os}},
		})
		doc.Relationships = append(doc.Relationships, relationship{doc.ID, "DESCRIBES", id(program.name)})
		for _, key := range program.modules {
			doc.Relationships = append(doc.Relationships, relationship{id(program.name), "DEPENDS_ON", id(key)})
		}
	}
	for _, m := range l.modules {
		download := "NOASSERTION" // the purl identifies the module
		if m.path == standard {
			download = "https://go.dev/dl/go" + m.version + ".src.tar.gz"
		}
		doc.Packages = append(doc.Packages, spdxPackage{
			ID: id(m.key()), Name: m.path, Version: m.version, Purpose: "LIBRARY", Download: download,
			Concluded: m.expression(), Declared: m.expression(), Copyright: "NOASSERTION",
			Refs: []reference{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + m.path + "@" + url.PathEscape(m.version)}},
		})
	}
	text, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}
