package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// chart packs the chart deploy/helm/NAME with the version of the release.
func (r *release) chart(name, stage string) error {
	source := "deploy/helm/" + name
	if err := copyFiles(stage, source+"/*.yaml", source+"/*.json", source+"/*.md", "LICENSE"); err != nil {
		return err
	}
	if err := copyFiles(filepath.Join(stage, "templates"), source+"/templates/*"); err != nil {
		return err
	}
	file := filepath.Join(stage, "Chart.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	version := chartVersion(r.version, r.date)
	for key, value := range map[string]string{"version": version, "appVersion": r.version} {
		line := regexp.MustCompile("(?m)^" + key + ": .*$")
		if len(line.FindAll(text, -1)) != 1 {
			return fmt.Errorf("%s/Chart.yaml: want one line with %s", source, key)
		}
		quoted, err := json.Marshal(value) // JSON is YAML
		if err != nil {
			return err
		}
		text = line.ReplaceAllLiteral(text, append([]byte(key+": "), quoted...))
	}
	if err := os.WriteFile(file, text, 0o644); err != nil {
		return err
	}
	return r.archive(filepath.Join(r.out, name+"-"+version+".tgz"), name, stage)
}

// chartVersion is the version of the chart. Helm wants semantic versions, in which no number
// begins with 0: commits and dates are parts with letters.
func chartVersion(version string, date time.Time) string {
	m := described.FindStringSubmatch(version)
	if m == nil { // no tag: before every release, by date
		return "0.0.0-" + date.UTC().Format("20060102t150405") + "-" + regexp.MustCompile(`[^0-9A-Za-z]+`).ReplaceAllString(version, "-")
	}
	out := m[1]
	if m[2] != "" {
		out += "-" + m[2]
	}
	var build []string
	if m[3] != "" {
		build = append(build, m[3], m[4])
	}
	if m[5] != "" {
		build = append(build, "dirty")
	}
	if len(build) > 0 {
		out += "+" + strings.Join(build, ".")
	}
	return out
}
