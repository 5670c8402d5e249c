package membership

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func testKey(n int) []byte {
	sum := sha256.Sum256([]byte{byte(n)})
	return sum[:]
}

func prints(keys ...int) []string {
	var out []string
	for _, n := range keys {
		out = append(out, fingerprintOf(testKey(n)))
	}
	return out
}

func TestAKeyIsReadInBase64AndInHex(t *testing.T) {
	key, err := ParseKey(GenerateKey())
	if err != nil || len(key) != keySize {
		t.Fatalf("%d bytes, %v", len(key), err)
	}
	if again, err := ParseKey(" " + hex.EncodeToString(key) + "\n"); err != nil || !bytes.Equal(again, key) {
		t.Fatalf("hex: %v", err)
	}
	for _, bad := range []string{"", "hello", "aGVsbG8="} {
		_, err := ParseKey(bad)
		if err == nil || !strings.Contains(err.Error(), "relay keys generate") {
			t.Errorf("%q: %v", bad, err)
		}
		if bad != "" && strings.Contains(err.Error(), bad) {
			t.Errorf("the error shows the key: %v", err)
		}
	}
}

func TestARotationInstallsThenUsesThenRemoves(t *testing.T) {
	k, err := NewKeyring(testKey(1))
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Use(prints(2)[0]); err == nil || !strings.Contains(err.Error(), "install it first") {
		t.Errorf("a key that is not there was used: %v", err)
	}
	for _, step := range []struct {
		do   func() error
		want []string
	}{
		{func() error { return k.install(testKey(2)) }, prints(1, 2)},
		{func() error { return k.install(testKey(2)) }, prints(1, 2)},
		{func() error { return k.Use(prints(2)[0]) }, prints(2, 1)},
		{func() error { return k.remove(prints(1)[0]) }, prints(2)},
		{func() error { return k.remove(prints(1)[0]) }, prints(2)},
	} {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		if got := k.Fingerprints(); !slices.Equal(got, step.want) {
			t.Fatalf("keys %v, want %v", got, step.want)
		}
	}
	if err := k.remove(prints(2)[0]); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("the key in use was removed: %v", err)
	}
	if err := k.install([]byte("short")); err == nil {
		t.Error("a short key was installed")
	}
}

func TestTheKeyringAndMemberlistAlwaysHoldTheSameKeys(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		k, err := NewKeyring(testKey(0))
		if err != nil {
			rt.Fatal(err)
		}
		for range rapid.IntRange(1, 30).Draw(rt, "steps") {
			n := rapid.IntRange(0, 9).Draw(rt, "key")
			switch rapid.SampledFrom([]string{"install", "use", "remove", "adopt"}).Draw(rt, "op") {
			case "adopt":
				from := keyring(t, rapid.SliceOfNDistinct(rapid.IntRange(0, 9), 1, maxKeys, rapid.ID[int]).Draw(rt, "theirs")...)
				if err := k.adopt(from.texts(), time.Now()); err != nil {
					rt.Fatal(err)
				}
				got, want := k.Fingerprints(), from.Fingerprints()
				inUse := got[0] == want[0]
				slices.Sort(got) // the order of the others decides nothing
				slices.Sort(want)
				if !inUse || !slices.Equal(got, want) {
					rt.Fatalf("adopted %v as %v", want, got)
				}
			case "install":
				_ = k.install(testKey(n))
			case "use":
				_ = k.Use(prints(n)[0])
			case "remove":
				_ = k.remove(prints(n)[0])
			}
			theirs := k.ring.GetKeys()
			if len(theirs) != len(k.keys) || len(theirs) == 0 || len(theirs) > maxKeys {
				rt.Fatalf("%d keys, memberlist has %d", len(k.keys), len(theirs))
			}
			for i := range theirs {
				if !bytes.Equal(theirs[i], k.keys[i]) {
					rt.Fatalf("key %d differs", i)
				}
			}
		}
	})
}

func TestRemovingAKeyWritesNothingThatAReaderMayBeReading(t *testing.T) {
	k, err := NewKeyring(testKey(0), testKey(1), testKey(2), testKey(3))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { // reads like memberlist's receivers; the race detector is the judge
		defer close(done)
		for range 2000 {
			for _, key := range k.ring.GetKeys() {
				_ = key[0]
			}
		}
	}()
	for n := range 3 {
		if err := k.remove(prints(n + 1)[0]); err != nil {
			t.Fatal(err)
		}
	}
	<-done
}

func TestAFileKeepsTheKeysOverARestart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(file, []byte("# ours\n\n"+hex.EncodeToString(testKey(1))+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	k, err := OpenKeyring(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := k.install(testKey(2)); err != nil {
		t.Fatal(err)
	}
	if err := k.Use(prints(2)[0]); err != nil {
		t.Fatal(err)
	}
	again, err := OpenKeyring(file)
	if err != nil || !slices.Equal(again.Fingerprints(), prints(2, 1)) {
		t.Fatalf("%v, %v", again.Fingerprints(), err)
	}
	if since := again.inUseSince(); since.IsZero() || !since.Equal(k.inUseSince()) {
		t.Errorf("in use since %v, was %v: a member that missed the rotation would undo it", since, k.inUseSince())
	}
	if info, _ := os.Stat(file); info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
}

// The disk is full at one step. The operator frees it and repeats the step, which changes no key
// in memory any more.
func TestAStepThatWasNotSavedIsSavedWhenItIsRepeated(t *testing.T) {
	for name, step := range map[string]struct {
		do   func(*Keyring) error
		want []string
	}{
		"install": {func(k *Keyring) error { return k.install(testKey(3)) }, prints(1, 2, 3)},
		"use":     {func(k *Keyring) error { return k.Use(prints(2)[0]) }, prints(2, 1)},
		"remove":  {func(k *Keyring) error { return k.remove(prints(2)[0]) }, prints(1)},
		"adopt":   {func(k *Keyring) error { return k.adopt(keyring(t, 3, 4).texts(), time.Now()) }, prints(3, 4)},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "etc")
			file := filepath.Join(dir, "keys")
			text := hex.EncodeToString(testKey(1)) + "\n" + hex.EncodeToString(testKey(2)) + "\n"
			if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(file, []byte(text), 0o600)); err != nil {
				t.Fatal(err)
			}
			k, err := OpenKeyring(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(dir, dir+".full"); err != nil { // root writes in any directory that is there
				t.Fatal(err)
			}
			for range 2 { // a repetition that fails again reports it again
				if err := step.do(k); err == nil || !strings.Contains(err.Error(), "a restart loses it") {
					t.Errorf("not saved, and reported as %v", err)
				}
				if got := k.Fingerprints(); !slices.Equal(got, step.want) {
					t.Errorf("in effect are %v, want %v", got, step.want)
				}
			}
			if err := errors.Join(os.Rename(dir+".full", dir), step.do(k)); err != nil {
				t.Fatal(err)
			}
			again, err := OpenKeyring(file)
			if err != nil || !slices.Equal(again.Fingerprints(), step.want) {
				t.Errorf("a restart finds %v, want %v: %v", again.Fingerprints(), step.want, err)
			}
		})
	}
}

func TestARotationThroughASymlinkKeepsTheLinkAndWritesItsTarget(t *testing.T) {
	dir := t.TempDir()
	store, etc := filepath.Join(dir, "store"), filepath.Join(dir, "etc")
	target, link := filepath.Join(store, "r1.keys"), filepath.Join(etc, "gossip.keys")
	first := filepath.Join(etc, "first") // a link to a link
	for _, err := range []error{
		os.Mkdir(store, 0o700), os.Mkdir(etc, 0o700),
		os.WriteFile(target, []byte(hex.EncodeToString(testKey(1))+"\n"), 0o600),
		os.Symlink(filepath.Join("..", "store", "r1.keys"), link), os.Symlink("gossip.keys", first),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	k, err := OpenKeyring(first)
	if err != nil {
		t.Fatal(err)
	}
	if err := k.install(testKey(2)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{link, first} {
		if info, err := os.Lstat(name); err != nil || info.Mode()&os.ModeSymlink == 0 {
			t.Errorf("%s is no link any more: %v", name, err)
		}
	}
	again, err := OpenKeyring(target)
	if err != nil || !slices.Equal(again.Fingerprints(), prints(1, 2)) {
		t.Errorf("the target has %v, %v", again.Fingerprints(), err)
	}
	// The target appears whole or not at all: it was renamed from a file next to it.
	for d, want := range map[string]int{store: 1, etc: 2} {
		if entries, err := os.ReadDir(d); err != nil || len(entries) != want {
			t.Errorf("%s: %v, %v", d, entries, err)
		}
	}
	if err := errors.Join(os.Chmod(etc, 0o500), k.Use(prints(2)[0]), os.Chmod(etc, 0o700)); err != nil {
		t.Errorf("the directory of the link need not be writable: %v", err)
	}
	for _, gone := range []string{target, first} { // what was removed is written again
		if err := errors.Join(os.Remove(gone), k.Use(k.Fingerprints()[1])); err != nil {
			t.Errorf("%s: %v", gone, err)
		}
		if saved, err := OpenKeyring(gone); err != nil || !slices.Equal(saved.Fingerprints(), k.Fingerprints()) {
			t.Errorf("%s: %v, %v", gone, saved.Fingerprints(), err)
		}
	}
	if err := errors.Join(os.Remove(first), os.Symlink("first", first)); err != nil {
		t.Fatal(err)
	}
	if err := k.Use(k.Fingerprints()[1]); err == nil || !strings.Contains(err.Error(), first) {
		t.Errorf("a link to itself: %v", err)
	}
}

func TestAKeyFileThatIsNoGoodIsRefusedWithItsLine(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return file
	}
	for _, c := range []struct{ file, want string }{
		{filepath.Join(dir, "none"), "relay keys generate"},
		{write("empty", "# nothing\n", 0o600), "there is no key"},
		{write("bad", "# one\nsecret\n", 0o600), "bad:2: a gossip key is 32 bytes"},
		{write("open", GenerateKey(), 0o644), "chmod 600"},
		{write("many", strings.Repeat(GenerateKey()+"\n", 1)+many(9), 0o600), "at most 8"},
	} {
		_, err := OpenKeyring(c.file)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", filepath.Base(c.file), err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("the error shows what is in the file: %v", err)
		}
	}
	if _, err := OpenKeyring(write("marked", "\ufeff"+GenerateKey(), 0o600)); err != nil {
		t.Errorf("with a byte-order mark: %v", err)
	}
}

func many(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(hex.EncodeToString(testKey(i)) + "\n")
	}
	return b.String()
}

// FuzzKeyring: a key file gives a keyring, or an error that shows no
// key.
func FuzzKeyring(f *testing.F) {
	f.Add("# ours\n\n" + hex.EncodeToString(testKey(1)) + "\n" + GenerateKey() + "\n")
	f.Add("# in use since 2026-01-02T03:04:05.678Z\r\n" + GenerateKey() + "\r\n")
	f.Add("# in use since yesterday\n secret \n\x00")
	f.Fuzz(func(t *testing.T, text string) {
		keys, _, err := parseKeyring(text)
		if err != nil {
			for line := range strings.Lines(text) {
				if line = strings.TrimSpace(line); len(line) > 16 && strings.Contains(err.Error(), line) {
					t.Errorf("the error shows %q: %v", line, err)
				}
			}
			return
		}
		if n := strings.Count(text, "\n") + 1; len(keys) > n {
			t.Errorf("%d keys in %d lines", len(keys), n)
		}
		k, err := newKeyring("", keys)
		if err == nil && (len(k.Fingerprints()) == 0 || len(k.Fingerprints()) > maxKeys) {
			t.Errorf("a keyring of %d keys", len(k.Fingerprints()))
		}
	})
}
