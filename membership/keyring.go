package membership

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/ringway/ringway/internal/keyfile"
)

const (
	// keySize is the key size of AES-256, the only cipher used.
	keySize = 32
	// maxKeys limits a keyring: a rotation needs two keys.
	maxKeys = 8
	// fingerprintSize, in hex digits, is enough to distinguish keys and useless for finding
	// one.
	fingerprintSize = 8
)

// Keyring holds the gossip keys of a node. Outgoing packets are encrypted with the primary
// key; incoming packets may use any installed key. This allows a rotation without a restart:
// install the new key on every member, use it on every member, remove the old one from every
// member.
//
// It is safe for concurrent use.
type Keyring struct {
	// file stores the keys over restarts; empty keeps them in memory only.
	file string

	mu   sync.Mutex
	keys [][]byte // primary first
	ring *memberlist.Keyring
	// since is when the primary key was put to use, by the clock of the member that started
	// its use in the fleet; zero if it always was.
	since time.Time
	// unsaved is true while the file differs from the keys: the last save failed.
	unsaved bool
}

// usedSince begins the line of the file that stores since.
const usedSince = "# in use since "

// GenerateKey returns a new random key in its text form.
func GenerateKey() string {
	key := make([]byte, keySize)
	_, _ = rand.Read(key) // never fails
	return base64.StdEncoding.EncodeToString(key)
}

// ParseKey reads a key of 32 bytes in base64 or hex.
func ParseKey(text string) ([]byte, error) {
	text = strings.TrimSpace(text)
	if key, err := hex.DecodeString(text); err == nil && len(key) == keySize {
		return key, nil
	}
	key, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, errors.New("a gossip key is 32 bytes in base64 or hex; this is neither: make one with `relay keys generate`")
	}
	if len(key) != keySize {
		return nil, fmt.Errorf("a gossip key is %d bytes, this is %d: make one with `relay keys generate`", keySize, len(key))
	}
	return key, nil
}

// fingerprintOf returns a name for a key that can be logged without revealing the key.
func fingerprintOf(key []byte) string {
	sum := sha256.Sum256(key)
	return hex.EncodeToString(sum[:])[:fingerprintSize]
}

// NewKeyring holds keys in memory only; the first is the primary key.
func NewKeyring(keys ...[]byte) (*Keyring, error) { return newKeyring("", keys) }

// OpenKeyring reads a file with one key per line, the primary key first; blank lines and lines
// that begin with # are skipped. Changes are written back, so a rotation survives a restart.
func OpenKeyring(file string) (*Keyring, error) {
	warning, err := keyfile.CheckAccess(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("gossip keys: %w: write a key of `relay keys generate` into it", err)
	case err != nil:
		return nil, fmt.Errorf("gossip keys: %w", err)
	case warning != "": // the file belongs to the member and is never a mounted secret, so lax permissions are an error
		return nil, fmt.Errorf("gossip keys %s; it must be the member's own: `relay keys import` copies it", warning)
	}
	text, err := keyfile.Read(file)
	if err != nil {
		return nil, fmt.Errorf("gossip keys: %w", err)
	}
	keys, since, err := parseKeyring(string(text))
	if err != nil {
		return nil, fmt.Errorf("gossip keys %s%w", file, err)
	}
	k, err := newKeyring(file, keys)
	if err != nil {
		return nil, fmt.Errorf("gossip keys %s: %w", file, err)
	}
	k.since = since
	return k, nil
}

// parseKeyring reads the lines of a key file, and since when the first key is in use. Its errors
// continue a text that begins with the name of the file.
func parseKeyring(text string) (keys [][]byte, since time.Time, err error) {
	number := 0
	for line := range strings.SplitSeq(text, "\n") {
		number++
		line = strings.TrimSpace(line)
		if stamp, found := strings.CutPrefix(line, usedSince); found {
			since, _ = time.Parse(time.RFC3339Nano, stamp) // an unreadable time counts as always
		}
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, err := ParseKey(line)
		if err != nil {
			return nil, since, fmt.Errorf(":%d: %w", number, err)
		}
		keys = append(keys, key)
	}
	return keys, since, nil
}

func newKeyring(file string, keys [][]byte) (*Keyring, error) {
	if len(keys) == 0 {
		return nil, errors.New("there is no key: make one with `relay keys generate`")
	}
	k := &Keyring{file: file}
	for _, key := range keys {
		if len(key) != keySize {
			return nil, fmt.Errorf("a gossip key is %d bytes, this is %d", keySize, len(key))
		}
		if !slices.ContainsFunc(k.keys, func(known []byte) bool { return bytes.Equal(known, key) }) {
			k.keys = append(k.keys, slices.Clone(key))
		}
	}
	if len(k.keys) > maxKeys {
		return nil, fmt.Errorf("%d keys, at most %d are allowed", len(k.keys), maxKeys)
	}
	ring, err := memberlist.NewKeyring(k.keys, k.keys[0])
	k.ring = ring
	return k, err
}

// Fingerprints returns the fingerprints of the installed keys, the primary key first.
func (k *Keyring) Fingerprints() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.fingerprints()
}

// fingerprints is Fingerprints; mu is held.
func (k *Keyring) fingerprints() []string {
	out := make([]string, len(k.keys))
	for i, key := range k.keys {
		out[i] = fingerprintOf(key)
	}
	return out
}

// primary returns the primary key.
func (k *Keyring) primary() []byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.keys[0])
}

// Keys returns the installed keys, the primary key first.
func (k *Keyring) Keys() [][]byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := make([][]byte, len(k.keys))
	for i, key := range k.keys {
		out[i] = slices.Clone(key)
	}
	return out
}

// texts returns the keys in text form, the primary key first.
func (k *Keyring) texts() []string {
	keys := k.Keys()
	out := make([]string, len(keys))
	for i, key := range keys {
		out[i] = base64.StdEncoding.EncodeToString(key)
	}
	return out
}

// adopt replaces the keyring with that of another member, whose first key is in use since the
// given time. Keys that were removed from the fleet while this node was away are removed here.
//
// The order of the steps keeps the node able to read gossip if one of them fails: the new key is
// installed and used before the former primary key is removed. All steps are saved together.
func (k *Keyring) adopt(texts []string, since time.Time) error {
	if len(texts) == 0 || len(texts) > maxKeys {
		return fmt.Errorf("a keyring of %d keys: allowed are 1 to %d", len(texts), maxKeys)
	}
	keys := make([][]byte, len(texts))
	theirs := make([]string, len(texts))
	for i, text := range texts {
		key, err := ParseKey(text)
		if err != nil {
			return err
		}
		keys[i], theirs[i] = key, fingerprintOf(key)
	}
	drop := func() error {
		for _, fingerprint := range k.fingerprints()[1:] {
			if !slices.Contains(theirs, fingerprint) {
				if err := k.dropKey(fingerprint); err != nil {
					return err
				}
			}
		}
		return nil
	}
	return k.change(func() error {
		// Make room first: both keyrings together may have more keys than allowed.
		if err := drop(); err != nil {
			return err
		}
		if err := k.addKey(keys[0], maxKeys+1); err != nil { // the current primary key is removed next
			return err
		}
		if err := k.useKey(theirs[0], since); err != nil {
			return err
		}
		if err := drop(); err != nil { // the former primary key
			return err
		}
		for _, key := range keys[1:] {
			if err := k.addKey(key, maxKeys); err != nil {
				return err
			}
		}
		return nil
	})
}

// change makes a change with mu held and saves it. What an earlier change could not save is saved
// as well, even if this one changes nothing: an operator who has freed the disk repeats the step.
func (k *Keyring) change(do func() error) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	err := do()
	return cmp.Or(err, k.save())
}

// find returns the index of the key with a fingerprint; mu is held.
func (k *Keyring) find(fingerprint string) int {
	return slices.IndexFunc(k.keys, func(key []byte) bool { return fingerprintOf(key) == fingerprint })
}

func (k *Keyring) key(fingerprint string) ([]byte, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	i := k.find(fingerprint)
	if i < 0 {
		return nil, false
	}
	return slices.Clone(k.keys[i]), true
}

// install adds a key: from now on it decrypts packets, but does not encrypt them yet. A key that
// is already installed is not an error.
func (k *Keyring) install(key []byte) error {
	return k.change(func() error { return k.addKey(key, maxKeys) })
}

// addKey is install; mu is held.
func (k *Keyring) addKey(key []byte, most int) error {
	switch {
	case len(key) != keySize:
		return fmt.Errorf("a gossip key is %d bytes, this is %d", keySize, len(key))
	case k.find(fingerprintOf(key)) >= 0:
		return nil
	case len(k.keys) >= most:
		return fmt.Errorf("there are %d keys already, as many as are allowed: remove one", len(k.keys))
	}
	if err := k.ring.AddKey(key); err != nil {
		return fmt.Errorf("install key %s: %w", fingerprintOf(key), err)
	}
	k.keys = append(k.keys, slices.Clone(key))
	k.unsaved = true
	return nil
}

// next returns the time of a use that begins now, later than the last one whatever the clock shows.
// Members compare these times to find out which of them missed the last use.
func (k *Keyring) next() time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now().UTC().Round(0)
	if !now.After(k.since) {
		now = k.since.Add(time.Millisecond)
	}
	return now
}

// inUseSince returns when the primary key was put to use.
func (k *Keyring) inUseSince() time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.since
}

// useSince is Use with the time at which the fleet started to use the key. A repeated use of the
// primary key never makes its time earlier: of two members with different keyrings, the one with
// the earlier time gives up its own.
func (k *Keyring) useSince(fingerprint string, since time.Time) error {
	return k.change(func() error { return k.useKey(fingerprint, since) })
}

// useKey is useSince; mu is held.
func (k *Keyring) useKey(fingerprint string, since time.Time) error {
	i := k.find(fingerprint)
	if i < 0 {
		return fmt.Errorf("use key %s: it is not installed here: install it first", fingerprint)
	}
	if err := k.ring.UseKey(k.keys[i]); err != nil {
		return fmt.Errorf("use key %s: %w", fingerprint, err)
	}
	if i > 0 || since.After(k.since) {
		k.since = since
	}
	k.toFront(i)
	return nil
}

// remove removes a key. The primary key cannot be removed; removing a key that is not installed
// is not an error.
func (k *Keyring) remove(fingerprint string) error {
	return k.change(func() error { return k.dropKey(fingerprint) })
}

// keyInUse is why a member does not remove its primary key.
func keyInUse(fingerprint string) error {
	return fmt.Errorf("remove key %s: it is in use: use another one first", fingerprint)
}

// dropKey is remove; mu is held.
func (k *Keyring) dropKey(fingerprint string) error {
	i := k.find(fingerprint)
	switch {
	case i < 0:
		return nil
	case i == 0:
		return keyInUse(fingerprint)
	}
	inUse := k.keys[0]
	// memberlist removes a key by shifting the slice that its receivers read without a
	// lock. Removing the last key shifts nothing, and using every other key once, the
	// primary key last, makes it the last.
	for len(k.keys)-1 > i {
		if err := k.ring.UseKey(k.keys[len(k.keys)-1]); err != nil {
			return fmt.Errorf("remove key %s: %w", fingerprint, err)
		}
		k.toFront(len(k.keys) - 1)
		i++
	}
	primary := slices.IndexFunc(k.keys, func(key []byte) bool { return bytes.Equal(key, inUse) })
	if err := k.ring.UseKey(inUse); err != nil {
		return fmt.Errorf("remove key %s: %w", fingerprint, err)
	}
	k.toFront(primary)
	if err := k.ring.RemoveKey(k.keys[i]); err != nil {
		return fmt.Errorf("remove key %s: %w", fingerprint, err)
	}
	k.keys = k.keys[:i]
	k.unsaved = true
	return nil
}

// toFront moves a key to the front and keeps the order of the others, like memberlist does when
// a key is used.
func (k *Keyring) toFront(i int) {
	key := k.keys[i]
	k.keys = slices.Insert(slices.Delete(slices.Clone(k.keys), i, i+1), 0, key)
	k.unsaved = true
}

// save replaces the whole file if it differs from the keys; mu is held. A key that could not be saved
// still works until the next restart, so save returns an error but the change stays in effect.
func (k *Keyring) save() error {
	if k.file == "" || !k.unsaved {
		return nil
	}
	var text strings.Builder
	text.WriteString("# Gossip keys of this node, the one in use first. Written by ringway.\n")
	if !k.since.IsZero() {
		text.WriteString(usedSince + k.since.Format(time.RFC3339Nano) + "\n")
	}
	for _, key := range k.keys {
		text.WriteString(base64.StdEncoding.EncodeToString(key) + "\n")
	}
	target, err := followLinks(k.file)
	var temp *os.File
	if err == nil {
		temp, err = os.CreateTemp(filepath.Dir(target), ".keys-*") // mode 0600
	}
	if err == nil {
		_, err = temp.WriteString(text.String())
		err = errors.Join(err, temp.Sync(), temp.Close())
		if err == nil {
			err = os.Rename(temp.Name(), target)
		}
		if err != nil {
			err = errors.Join(err, os.Remove(temp.Name()))
		}
	}
	if err != nil {
		return fmt.Errorf("the change is in effect, but it was not saved and a restart loses it: %w", err)
	}
	k.unsaved = false
	return nil
}

// followLinks returns the real path of a file that may not exist yet. A rename onto the given
// path would replace a symbolic link and leave the file behind the link unchanged.
func followLinks(path string) (string, error) {
	const most = 40 // the limit of Linux
	at := path
	for range most {
		next, err := os.Readlink(at)
		if err != nil { // not a link, or nothing exists there yet
			return at, nil
		}
		if !filepath.IsAbs(next) {
			dir, err := filepath.EvalSymlinks(filepath.Dir(at)) // ".." refers to the real directory of the link
			if err != nil {
				return "", err
			}
			next = filepath.Join(dir, next)
		}
		at = next
	}
	return "", fmt.Errorf("%s leads through more than %d symbolic links: name the file itself", path, most)
}
