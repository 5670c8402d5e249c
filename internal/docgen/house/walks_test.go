package main

import (
	"strings"
	"testing"
)

func TestAWalkCountsItsFilesPackagesAndReturns(t *testing.T) {
	page := `# Architecture

## A request

1. [conn.go](../proxy/conn.go): reads, and [pick.go](../selection/pick.go) picks.
2. [handler.go](../proxy/handler.go): returns, to [conn.go](../proxy/conn.go#serve) and [conn.go](../proxy/conn.go).

**Otherwise.** [other.go](../other/other.go) is a variant.

## Packages

- [ring.go](../ring/ring.go)

## A setting

1. [load.go](../settings/load.go)
`
	var out strings.Builder
	writeWalks(&out, walks(page))
	want := "\nwalks of the architecture page: files, packages, returns to a package\n" +
		"     3    2    1  A request\n" +
		"     1    1    0  A setting\n"
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}
