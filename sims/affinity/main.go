package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
)

func main() {
	check := flag.Bool("check", false, "exit with 1 if something promised does not hold")
	update := flag.String("update", "", "write the tables between their markers in this `file` instead of printing them")
	only := flag.String("only", "", "the `name` of one section, instead of all")
	flag.Parse()
	if err := run(*check, *update, *only); err != nil {
		fmt.Fprintln(os.Stderr, "affinity:", err)
		os.Exit(1)
	}
}

func run(check bool, update, only string) error {
	var violations []string
	known := only == ""
	for _, section := range sections {
		if only != "" && only != section.name {
			continue
		}
		known = true
		var r report
		if err := section.run(&r, sizes); err != nil {
			return fmt.Errorf("section %s: %w", section.name, err)
		}
		violations = append(violations, r.violations...)
		if update == "" {
			fmt.Printf("## %s\n%s\n", section.name, r.String())
			continue
		}
		page, err := os.ReadFile(update)
		if err != nil {
			return err
		}
		changed, err := replaceSection(string(page), section.name, r.String())
		if err != nil {
			return fmt.Errorf("%s: %w", update, err)
		}
		if err := os.WriteFile(update, []byte(changed), 0o644); err != nil {
			return err
		}
	}
	if !known {
		return fmt.Errorf("there is no section %q", only)
	}
	if check && len(violations) > 0 {
		return fmt.Errorf("does not hold:\n  %s", strings.Join(violations, "\n  "))
	}
	return nil
}
