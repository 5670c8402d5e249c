package sharedkey

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"unicode"
	"unicode/utf8"

	"github.com/ringway/ringway/membership/identity"
)

// parseMaterial reads a key that an operator gave: hex digits, or bytes as they
// are. A line end after text is not part of the key, as editors and echo add
// it; binary content is taken whole. The error says what is wrong and never
// shows the content.
func parseMaterial(content []byte) ([]byte, error) {
	const remedy = "make one with: openssl rand -hex 32"
	if isText(content) {
		content = bytes.TrimRight(content, "\r\n")
	}
	material := bytes.Clone(content)
	form := "raw bytes"
	if isHex(content) {
		if len(content)%2 != 0 {
			return nil, fmt.Errorf("%d hex digits, an odd number: one is missing or too many; %s", len(content), remedy)
		}
		material, form = make([]byte, len(content)/2), "bytes from hex digits"
		if _, err := hex.Decode(material, content); err != nil {
			return nil, errors.New("not hex digits") // unreachable: isHex
		}
	}
	switch n := len(material); {
	case n == 0:
		return nil, fmt.Errorf("empty; %s", remedy)
	case n < MinSecret:
		return nil, fmt.Errorf("%d %s, at least %d are needed; %s", n, form, MinSecret, remedy)
	case n > MaxSecret:
		return nil, fmt.Errorf("%d or more %s, at most %d are allowed; %s", n, form, MaxSecret, remedy)
	case bytes.Count(material, material[:1]) == n:
		return nil, fmt.Errorf("all %d bytes are the same: this is a placeholder, not a key; %s", n, remedy)
	}
	return material, nil
}

func isHex(b []byte) bool {
	for _, c := range b {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') && (c < 'A' || c > 'F') {
			return false
		}
	}
	return len(b) > 0
}

// isText reports that b is printable text with line ends at most at its end. 32
// random bytes are not, but for one key in many billions.
func isText(b []byte) bool {
	b = bytes.TrimRight(b, "\r\n")
	for _, r := range string(b) {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return utf8.Valid(b)
}

// errNoFile says that the file is not there, which is no fault: a secret may be
// mounted later.
var errNoFile = errors.New("there is no such file")

// readKeyFile reads the key, with a warning when others can read it, too.
func readKeyFile(path string) (material []byte, warning string, err error) {
	warning, err = identity.JudgeSecretFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", errNoFile
	}
	if err != nil {
		return nil, "", err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = f.Close() }() // only read
	// Enough for the longest key in hex with its line end, and one byte to see
	// that there is more.
	content, err := io.ReadAll(io.LimitReader(f, 2*MaxSecret+3))
	if err != nil {
		return nil, "", err
	}
	material, err = parseMaterial(content)
	return material, warning, err
}
