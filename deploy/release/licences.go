package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// licence is one file with a licence or a notice.
type licence struct {
	file string // in the module
	id   string // of SPDX, or "NOTICE"
	text string
}

// accepted are the licences that the release may contain, by a sentence of each. A text
// that has none of them needs a decision, and the release fails.
var accepted = []struct {
	id     string
	phrase string
	not    string // a sentence that only a longer licence has
}{
	{"Apache-2.0", "Apache License Version 2.0", ""},
	{"MPL-2.0", "Mozilla Public License, version 2.0", ""},
	{"MPL-2.0", "Mozilla Public License Version 2.0", ""},
	{"BSD-3-Clause", "may be used to endorse or promote products", ""},
	{"BSD-2-Clause", "Redistributions in binary form must reproduce", "endorse or promote products"},
	{"MIT", "Permission is hereby granted, free of charge", ""},
	{"ISC", "Permission to use, copy, modify, and distribute this software for any purpose", ""},
}

var (
	licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|unlicense)([.-].*)?$`)
	noticeFile  = regexp.MustCompile(`(?i)^(notice|patents)([.-].*)?$`)
	spaces      = regexp.MustCompile(`\s+`)
)

// identify returns the ids of the licences in a text; a file may have two.
func identify(text string) (ids []string) {
	text = strings.ToLower(spaces.ReplaceAllString(text, " "))
	for _, a := range accepted {
		if strings.Contains(text, strings.ToLower(a.phrase)) && (a.not == "" || !strings.Contains(text, a.not)) && !slices.Contains(ids, a.id) {
			ids = append(ids, a.id)
		}
	}
	return ids
}

// licencesIn reads the licences and notices of a package: in its directory and in all above
// it, up to the root of its module.
func licencesIn(root, dir string) (found []licence, err error) {
	for {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			isLicence := licenceFile.MatchString(e.Name())
			if e.IsDir() || filepath.Ext(e.Name()) == ".go" || !isLicence && !noticeFile.MatchString(e.Name()) {
				continue
			}
			text, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				return nil, err
			}
			name, err := filepath.Rel(root, filepath.Join(dir, e.Name()))
			if err != nil {
				return nil, err
			}
			one := licence{file: filepath.ToSlash(name), id: "NOTICE", text: string(text)}
			if isLicence {
				ids := identify(one.text)
				if len(ids) == 0 {
					return nil, fmt.Errorf("%s: the licence is not one of those in deploy/release/licences.go: decide whether a release may contain it", name)
				}
				one.id = strings.Join(ids, " AND ")
			}
			found = append(found, one)
		}
		if dir == root || len(dir) <= len(root) {
			return found, nil
		}
		dir = filepath.Dir(dir)
	}
}

// expression is the licence of a module for SPDX.
func (m module) expression() string {
	var ids []string
	for _, t := range m.licences {
		for id := range strings.SplitSeq(t.id, " AND ") {
			if id != "NOTICE" && !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
	}
	slices.Sort(ids)
	return strings.Join(ids, " AND ")
}
