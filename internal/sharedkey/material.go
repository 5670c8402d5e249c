package sharedkey

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"unicode"
	"unicode/utf8"

	"github.com/ringway/ringway/internal/keyfile"
)

// parseMaterial reads a key that an operator set: hex digits, or raw bytes. A line end
// after text, which editors and echo add, is not part of the key; binary content is used
// completely. The error states the problem and never contains the content.
func parseMaterial(content []byte) ([]byte, error) {
	const remedy = "make one with: openssl rand -hex 32"
	if isText(content) {
		content = bytes.TrimRight(content, "\r\n")
	}
	if trimmed := bytes.TrimSpace(content); len(trimmed) > 0 && len(trimmed) < len(content) && isHex(trimmed) {
		return nil, errors.New("blanks around hex digits, which would make another key: remove them")
	}
	material := bytes.Clone(content)
	form := "raw bytes"
	if isHex(content) {
		if len(content)%2 != 0 {
			return nil, fmt.Errorf("%d hex digits, an odd number: one is missing or too many; %s", len(content), remedy)
		}
		material, form = make([]byte, len(content)/2), "bytes from hex digits"
		if _, err := hex.Decode(material, content); err != nil {
			return nil, errors.New("not hex digits") // cannot happen: isHex has checked
		}
	}
	switch n := len(material); {
	case n == 0:
		return nil, fmt.Errorf("empty; %s", remedy)
	case n < minSecret:
		return nil, fmt.Errorf("%d %s, at least %d are needed; %s", n, form, minSecret, remedy)
	case n > maxSecret:
		return nil, fmt.Errorf("%d or more %s, at most %d are allowed; %s", n, form, maxSecret, remedy)
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

// isText reports whether b is printable text with line ends at most at its end. 32 random
// bytes are text only once in many billions.
func isText(b []byte) bool {
	b = bytes.TrimRight(b, "\r\n")
	for _, r := range string(b) {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return utf8.Valid(b)
}

// errNoFile: the file does not exist. This is not a fault, because a secret may be mounted later.
var errNoFile = errors.New("there is no such file")

// readKeyFile reads the key, with a warning if others can read the file as well.
func readKeyFile(path string) (material []byte, warning string, err error) {
	warning, err = keyfile.CheckAccess(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", errNoFile
	}
	if err != nil {
		return nil, "", err
	}
	content, err := keyfile.Read(path)
	if err != nil {
		return nil, "", err
	}
	material, err = parseMaterial(content)
	return material, warning, err
}

// fileState is the state of Config.File. Run's goroutine owns it.
type fileState struct {
	inUse   Key
	problem string // the problem that was last logged
}

// checkFile uses the key of the file if it is new. With Config.Value it does nothing,
// because the value takes precedence. If the file is missing or invalid, nothing changes.
func (k *Keeper) checkFile() {
	if k.cfg.File == "" || len(k.cfg.Value) > 0 {
		return
	}
	material, warning, err := readKeyFile(k.cfg.File)
	if errors.Is(err, errNoFile) {
		k.file.problem = ""
		return
	}
	if err != nil {
		if text := err.Error(); text != k.file.problem {
			k.file.problem = text
			k.cfg.Logger.Warn("shared key file not taken, everything stays as it is", "file", k.cfg.File, "error", err)
		}
		return
	}
	k.file.problem = ""
	key := newKey(material, "", 0)
	if key.Equal(k.file.inUse) {
		return
	}
	k.file.inUse = key
	if warning != "" {
		k.cfg.Logger.Warn("shared key file " + warning)
	}
	now := k.now()
	k.publish(k.ring.Load().expire(now).use(key, sourceFile, now, now.Add(k.cfg.Retire)))
}

const (
	nonceBytes = 32
	saltBytes  = 32
	// minSeal is the length of an AES-256 gossip key.
	minSeal = 32
	// sealInfo separates keys derived here from all others derived from the gossip key.
	sealInfo = "ringway shared key, sealed answer, format 1: "
)

// sealed is an answer that only holders of the gossip key can open.
type sealed struct {
	Salt []byte `json:"salt"`
	Box  []byte `json:"box"` // GCM nonce, ciphertext, tag
}

// answerAEAD returns the cipher for one answer. HKDF (RFC 5869) with a fresh salt gives
// each answer a separate key: any host that can reach the listener can ask any number of
// times without approaching the usage limit of a GCM key. The label separates two clusters
// with the same gossip key.
func answerAEAD(secret Secret, label string, salt []byte) (cipher.AEAD, error) {
	key, err := hkdf.Key(sha256.New, secret, salt, sealInfo+label, 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// seal seals plain for the asker that sent nonce.
func seal(secret Secret, label string, nonce, plain []byte) ([]byte, error) {
	salt := make([]byte, saltBytes)
	_, _ = rand.Read(salt) // never fails
	aead, err := answerAEAD(secret, label, salt)
	if err != nil {
		return nil, fmt.Errorf("seal: %w", err)
	}
	return json.Marshal(sealed{Salt: salt, Box: aead.Seal(nil, nil, plain, nonce)})
}

// unseal opens the result of seal for the same nonce.
func unseal(secret Secret, label string, nonce, data []byte) ([]byte, error) {
	var s sealed
	if err := json.Unmarshal(data, &s); err != nil || len(s.Salt) != saltBytes || len(s.Box) == 0 {
		return nil, fmt.Errorf("%w: it is not sealed, and ours are: give all relays the same gossip key", ErrMalformed)
	}
	aead, err := answerAEAD(secret, label, s.Salt)
	if err != nil {
		return nil, fmt.Errorf("unseal: %w", err)
	}
	plain, err := aead.Open(nil, nil, s.Box, nonce)
	if err != nil {
		return nil, fmt.Errorf("%w: the seal does not open: another gossip key, another cluster, or a replayed answer", ErrMalformed)
	}
	return plain, nil
}

// unsealAny opens data with any of the secrets. If none fits, it returns the error of the first.
func unsealAny(secrets []Secret, label string, nonce, data []byte) ([]byte, error) {
	var first error
	for _, secret := range secrets {
		plain, err := unseal(secret, label, nonce, data)
		if err == nil {
			return plain, nil
		}
		if first == nil {
			first = err
		}
	}
	return nil, first
}
