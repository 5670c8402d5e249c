package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestPackagesOfLaterCommitsReplaceThoseOfEarlierOnes(t *testing.T) {
	date := time.Date(2026, 11, 23, 20, 48, 43, 0, time.UTC)
	for version, want := range map[string]string{
		"v0.1.0":                      "0.1.0",
		"v0.1.0-dirty":                "0.1.0+dirty",
		"v0.1.0-3-gc702374":           "0.1.0+3.gc702374",
		"v0.1.0-3-gc702374-dirty":     "0.1.0+3.gc702374+dirty",
		"v0.2.0-rc.1":                 "0.2.0~rc.1",
		"v0.2.0-rc.1-12-gc702374":     "0.2.0~rc.1+12.gc702374",
		"c702374":                     "0.0.0~20261123.204843.c702374",
		"c702374-dirty":               "0.0.0~20261123.204843.c702374.dirty",
		"devel":                       "0.0.0~20261123.204843.devel",
		"v1":                          "0.0.0~20261123.204843.v1",
		"../../etc v0.1.0; rm -rf ~/": "0.0.0~20261123.204843...........etc.v0.1.0.rm.rf.",
	} {
		got := packageVersion(version, date)
		if strings.HasPrefix(version, "..") { // only that it is a file name and a version
			if strings.ContainsAny(got, "/ ;-") {
				t.Errorf("%q: got %q", version, got)
			}
			continue
		}
		if got != want {
			t.Errorf("%q: got %q, want %q", version, got, want)
		}
	}
}

func TestVersionsOfTheChartAreThoseOfHelm(t *testing.T) {
	date := time.Date(2026, 11, 23, 0, 8, 43, 0, time.UTC)
	// The syntax of semver.org, without numbers that begin with 0.
	const part = `(0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*)`
	valid := regexp.MustCompile(`^\d+\.\d+\.\d+(-` + part + `(\.` + part + `)*)?(\+[0-9A-Za-z.-]+)?$`)
	for version, want := range map[string]string{
		"v0.1.0":                  "0.1.0",
		"v0.1.0-3-gc702374-dirty": "0.1.0+3.gc702374.dirty",
		"v0.2.0-rc.1-12-gc702374": "0.2.0-rc.1+12.gc702374",
		"0123456":                 "0.0.0-20261123t000843-0123456",
		"../../etc v0.1.0":        "0.0.0-20261123t000843--etc-v0-1-0",
	} {
		if got := chartVersion(version, date); got != want || !valid.MatchString(got) {
			t.Errorf("%q: got %q, want %q", version, got, want)
		}
	}
}

func TestLicencesAreIdentifiedOrRefused(t *testing.T) {
	for text, want := range map[string][]string{
		"Apache License\n   Version 2.0, January 2004":                                               {"Apache-2.0"},
		"Mozilla Public License, version 2.0":                                                        {"MPL-2.0"},
		"Permission is hereby granted,\nfree of charge, to any":                                      {"MIT"},
		"Redistributions in binary form must reproduce":                                              {"BSD-2-Clause"},
		"Redistributions in binary form must reproduce … may be used to endorse or promote products": {"BSD-3-Clause"},
		"GNU AFFERO GENERAL PUBLIC LICENSE Version 3":                                                nil,
		"": nil,
	} {
		if got := identify(text); !slices.Equal(got, want) {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	}
	root := t.TempDir()
	dir := filepath.Join(root, "inner")
	for file, text := range map[string]string{
		"LICENSE": "Apache License Version 2.0", "NOTICE.txt": "made by", "license.go": "package x", "inner/COPYING": "Permission is hereby granted, free of charge",
	} {
		write(t, filepath.Join(root, file), text)
	}
	found, err := licencesIn(root, dir)
	var files []string
	for _, f := range found {
		files = append(files, f.file+" "+f.id)
	}
	slices.Sort(files)
	if want := []string{"LICENSE Apache-2.0", "NOTICE.txt NOTICE", "inner/COPYING MIT"}; err != nil || !slices.Equal(files, want) {
		t.Errorf("got %v, %v, want %v", files, err, want)
	}
	if got := (module{licences: found}).expression(); got != "Apache-2.0 AND MIT" {
		t.Errorf("the licence of the module is %q", got)
	}
	write(t, filepath.Join(dir, "LICENSE"), "all rights reserved")
	if _, err := licencesIn(root, dir); err == nil || !strings.Contains(err.Error(), "inner/LICENSE") {
		t.Errorf("a licence that is not in the list is accepted: %v", err)
	}
}

func TestArchivesOfTheSameFilesHaveTheSameBytes(t *testing.T) {
	date := time.Unix(1_790_000_000, 0)
	build := func(mode os.FileMode) []byte {
		t.Helper()
		stage := t.TempDir()
		write(t, filepath.Join(stage, "man", "b.1"), "b")
		write(t, filepath.Join(stage, "ringway-relay"), "binary")
		// Umask and checkout differ.
		if err := os.Chmod(filepath.Join(stage, "man", "b.1"), mode); err != nil {
			t.Fatal(err)
		}
		r := release{date: date}
		if err := normalise(stage, date); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "x.tar.gz")
		if err := r.archive(file, "x", stage); err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return content
	}
	if a, b := build(0o600), build(0o664); !bytes.Equal(a, b) {
		t.Error("the archives differ")
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
