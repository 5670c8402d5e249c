package strategy

import (
	"cmp"
	"strings"
)

// CompareVersions orders versions by their numbers, read from left to right:
// 1.10 after 1.9, 2024-05-10 after 2024-05-9. A leading v and everything from a
// plus sign on do not count; a pre-release (1.0-rc1) comes before its release.
// Anything is a version.
func CompareVersions(a, b string) int {
	a, _, _ = strings.Cut(strings.TrimPrefix(a, "v"), "+")
	b, _, _ = strings.Cut(strings.TrimPrefix(b, "v"), "+")
	for {
		if a != "" && b != "" && isDigit(a[0]) && isDigit(b[0]) {
			var x, y string
			x, a = cutNumber(a)
			y, b = cutNumber(b)
			if c := cmp.Or(cmp.Compare(len(x), len(y)), strings.Compare(x, y)); c != 0 {
				return c
			}
			continue
		}
		if c := cmp.Compare(rank(a), rank(b)); c != 0 || a == "" {
			return c
		}
		a, b = a[1:], b[1:]
	}
}

// rank orders what follows a common beginning: a pre-release, then the end, then
// anything else by its first byte.
func rank(rest string) int {
	switch {
	case rest == "":
		return 1
	case rest[0] == '-':
		return 0
	}
	return 2 + int(rest[0])
}

// cutNumber cuts the digits off the front, without leading zeros.
func cutNumber(s string) (digits, rest string) {
	end := 0
	for end < len(s) && isDigit(s[end]) {
		end++
	}
	return strings.TrimLeft(s[:end], "0"), s[end:]
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
