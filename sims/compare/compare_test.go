package main

import (
	"fmt"
	"testing"
)

func BenchmarkSelect(b *testing.B) {
	for _, side := range []struct {
		name    string
		prepare func(n int) (operation, error)
	}{{"ringway", ringway}, {"kratos", kratos}} {
		for _, n := range sizes {
			b.Run(fmt.Sprintf("%s/%d", side.name, n), func(b *testing.B) {
				op, err := side.prepare(n)
				if err != nil {
					b.Fatal(err)
				}
				b.ReportAllocs()
				for b.Loop() {
					if err := op(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
