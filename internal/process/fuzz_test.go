package process

import (
	"crypto/sha256"
	"slices"
	"strings"
	"testing"
)

// FuzzTokens: every line that is long enough and no comment is a token, one that is too
// short makes the whole file an error, and the error shows no token.
func FuzzTokens(f *testing.F) {
	f.Add("# of the fleet\n0123456789abcdefghij-token\r\n\n0123456789abcdefghij-other")
	f.Add("0123456789abcdefghij-token\nshort\n")
	f.Add("\x00\xff#\n\v\f\u00a0\u2028")
	f.Fuzz(func(t *testing.T, text string) {
		tokens, err := parseTokens([]byte(text))
		var want [][sha256.Size]byte
		for line := range strings.SplitSeq(text, "\n") {
			line = strings.TrimSpace(line)
			if len(line) >= minToken && line[0] != '#' {
				want = append(want, sha256.Sum256([]byte(line)))
			}
			if err != nil && len(line) >= minToken && strings.Contains(err.Error(), line) {
				t.Errorf("the error shows %q: %v", line, err)
			}
		}
		if err == nil && (len(tokens) == 0 || !slices.Equal(tokens, want)) || err != nil && len(tokens) > 0 {
			t.Errorf("%d tokens of %d, %v", len(tokens), len(want), err)
		}
	})
}
