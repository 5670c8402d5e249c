package settings

import "strings"

// Suggest returns the setting that was most probably meant by a mistyped flag,
// key or environment variable, without dashes; empty when nothing is near.
func (s *Set) Suggest(name string) string {
	name = strings.TrimPrefix(name, s.prefix)
	return nearest(name, s.Names())
}

// Nearest returns the candidate that was most probably meant by a mistyped name,
// such as a flag; empty when nothing is near.
func Nearest(name string, candidates []string) string { return nearest(name, candidates) }

// nearest returns the candidate nearest to name: equal but for case and
// separators, else few typing mistakes away, else the shortest one that contains
// all words of name. Ties go to the first candidate.
func nearest(name string, candidates []string) string {
	plain := plainName(name)
	if plain == "" || len(plain) > 128 { // a name this long is no typing mistake
		return ""
	}
	best, bestDistance := "", len(plain)/3+1
	for _, candidate := range candidates {
		if distance := editDistance(plain, plainName(candidate)); distance < bestDistance {
			best, bestDistance = candidate, distance
		}
	}
	if best != "" {
		return best
	}
	words := strings.FieldsFunc(strings.ToLower(name), isSeparator)
	for _, candidate := range candidates {
		if containsWords(candidate, words) && (best == "" || len(candidate) < len(best)) {
			best = candidate
		}
	}
	return best
}

func isSeparator(r rune) bool { return r == '-' || r == '_' || r == '.' || r == ' ' }

func plainName(name string) string {
	return strings.Join(strings.FieldsFunc(strings.ToLower(name), isSeparator), "")
}

func containsWords(candidate string, words []string) bool {
	parts := "-" + candidate + "-"
	for _, word := range words {
		if !strings.Contains(parts, "-"+word+"-") {
			return false
		}
	}
	return len(words) > 0
}

// editDistance counts insertions, deletions, replacements and swaps of
// neighbours (optimal string alignment).
func editDistance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
