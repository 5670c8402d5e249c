package sharedkey

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestAKeyIsHexOrRawBytes(t *testing.T) {
	raw := append(material(1), '\n') // binary: the line end is part of it
	for name, c := range map[string]struct {
		content []byte
		want    []byte
		err     string
	}{
		"hex":                 {[]byte(hex.EncodeToString(material(1))), material(1), ""},
		"hex, upper case":     {[]byte(strings.ToUpper(hex.EncodeToString(material(1)))), material(1), ""},
		"hex with a line end": {[]byte(hex.EncodeToString(material(1)) + "\r\n"), material(1), ""},
		"a byte-order mark":   {[]byte("\ufeff" + hex.EncodeToString(material(1)) + "\r\n"), material(1), ""},
		"a blank before hex":  {[]byte(" " + hex.EncodeToString(material(1))), nil, "blanks around hex digits"},
		"a tab after hex":     {[]byte(hex.EncodeToString(material(1)) + "\t\n"), nil, "blanks around hex digits"},
		"raw":                 {raw, raw, ""},
		"text":                {[]byte("correct horse battery staple, again\n"), []byte("correct horse battery staple, again"), ""},
		"longest hex":         {[]byte(strings.Repeat("ab", 511) + "cd\r\n"), append(bytes.Repeat([]byte{0xab}, 511), 0xcd), ""},
		"short hex":           {[]byte(strings.Repeat("ab", 31)), nil, "31 bytes from hex digits, at least 32"},
		"32 hex digits":       {[]byte(strings.Repeat("a1", 16)), nil, "16 bytes from hex digits, at least 32"},
		"short raw":           {material(1)[:31], nil, "31 raw bytes, at least 32"},
		"odd hex":             {[]byte(strings.Repeat("a", 65)), nil, "65 hex digits, an odd number"},
		"empty":               {nil, nil, "empty"},
		"a line end":          {[]byte("\n"), nil, "empty"},
		"too long":            {bytes.Repeat(material(1), 17), nil, "at most 512"},
		"placeholder":         {make([]byte, 32), nil, "placeholder"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "key")
			if err := os.WriteFile(path, c.content, 0o600); err != nil {
				t.Fatal(err)
			}
			got, _, err := readKeyFile(path)
			if c.err == "" && (err != nil || !bytes.Equal(got, c.want)) {
				t.Fatalf("%x, %v", got, err)
			}
			if c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err) ||
				len(c.content) > 3 && strings.Contains(err.Error(), string(c.content[:4]))) {
				t.Fatalf("error %v, want %q and nothing of the content", err, c.err)
			}
		})
	}
}

func TestABadOrUnreadableFileStopsNewAndIsNamed(t *testing.T) { // NG-2
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad")
	if err := os.WriteFile(bad, []byte("hush"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{bad, dir} {
		cfg := valid()
		cfg.File = path
		_, err := New(cfg)
		if err == nil || !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestAFileOfTheKeyIsJudgedLikeTheKeyOfACertificate(t *testing.T) {
	for mode, want := range map[os.FileMode]struct {
		taken bool
		said  string // in the log
	}{
		0o600: {true, ""}, 0o400: {true, ""},
		0o644: {false, ""}, 0o604: {false, ""}, 0o640: {true, "can be read by others (mode 0640)"}, 0o440: {true, "can be read by others (mode 0440)"},
		0o620: {false, ""}, 0o602: {false, ""},
	} {
		path, log := filepath.Join(t.TempDir(), "key"), &strings.Builder{}
		if err := os.WriteFile(path, material(1), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		cfg := valid()
		cfg.File, cfg.Logger = path, slog.New(slog.NewTextHandler(log, nil))
		_, err := New(cfg)
		if (err == nil) != want.taken || want.said == "" && strings.Contains(log.String(), "mode") || !strings.Contains(log.String(), want.said) {
			t.Errorf("mode %04o: %v, and the log says %q, want %q", mode, err, log, want.said)
		}
	}
}

func TestAFileMayAppearChangeAndGoWhileTheRelayRuns(t *testing.T) { // NG-2: missing is no fault
	keys := []byte{1, 2}
	for range 2 { // of the two keys one is older by its digest
		slices.Reverse(keys)
		inFleet(t, func(t *testing.T, f *fleet) {
			path := filepath.Join(t.TempDir(), "key")
			r := f.boot("relay-1", func(c *Config) { c.File = path })
			write := func(content string) {
				t.Helper()
				if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
				// One look of relay-1 at the file and then one of each other relay at relay-1, each after a
				// quarter more than the interval at most.
				time.Sleep(2*r.keeper.cfg.LookInterval*5/4 + time.Second)
			}
			for i := range sample { // each asks all others in each look
				f.boot(fmt.Sprint("relay-", i+2))
			}
			time.Sleep(time.Minute)
			if s := r.keeper.Status(); s.Source != sourceGenerated {
				t.Fatalf("without the file: %+v", s)
			}
			generated := r.keeper.Sign([]byte("m"))

			write(hex.EncodeToString(material(keys[0])))
			if s := r.keeper.Status(); s.Source != sourceFile || !s.Key.Equal(newKey(material(keys[0]), "", 0)) {
				t.Fatalf("with the file: %+v", s)
			}
			f.oneKey() // the others have no file and follow
			leaked := r.keeper.Sign([]byte("m"))
			write(hex.EncodeToString(material(keys[1])))
			if s := r.keeper.Status(); !s.Key.Equal(newKey(material(keys[1]), "", 0)) {
				t.Fatalf("with another file: %+v", s)
			}
			f.oneKey()
			f.allVerify("m", generated)
			f.allVerify("m", leaked)
			time.Sleep(2 * r.keeper.cfg.Retire)
			f.oneKey()
			for _, other := range f.all() {
				if other.keeper.Verify([]byte("m"), leaked) {
					t.Errorf("%s accepts the key that was replaced long ago", other.member.ID)
				}
			}

			for range 2 {
				write("too short")
			}
			if s := r.keeper.Status(); !s.Key.Equal(newKey(material(keys[1]), "", 0)) {
				t.Fatalf("with a bad file: %+v", s)
			}
			if n := strings.Count(r.log.String(), "shared key file not taken"); n != 1 {
				t.Fatalf("a bad file was reported %d times", n)
			}
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			if s := r.keeper.Status(); !s.Key.Equal(newKey(material(keys[1]), "", 0)) {
				t.Fatalf("without a file again: %+v", s)
			}
		})
	}
}

func TestAFileThatAppearsDuringTheAttemptsEndsThem(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		path := filepath.Join(t.TempDir(), "key")
		r := f.boot("relay-1", func(c *Config) { c.File, c.Joined = path, func() bool { return false } })
		time.Sleep(time.Second)
		if err := os.WriteFile(path, material(1), 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if s := r.keeper.Status(); s.Source != sourceFile {
			t.Fatalf("status %+v, %v", s, r.keeper.Ready())
		}
	})
}

// A key is replaced on all relays that have one, of which one does not answer, and there are more than are
// asked in each look.
func TestAKeyThatIsReplacedOnManyRelaysIsGivenUpSoonAlsoWhileOneIsSilent(t *testing.T) {
	for _, keys := range [][2]byte{{1, 2}, {2, 1}} { // of the two one is older by its digest
		inFleet(t, func(t *testing.T, f *fleet) {
			path := filepath.Join(t.TempDir(), "key")
			write := func(key byte) {
				t.Helper()
				if err := os.WriteFile(path, material(key), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			write(keys[0])
			var silent *relay
			for i := range 12 {
				silent = f.boot(fmt.Sprintf("set-%d", i), func(c *Config) { c.File = path })
			}
			follower := f.boot("relay-1")
			time.Sleep(10 * time.Minute)
			f.oneKey()
			f.change(func() { silent.mute = true })
			write(keys[1])
			// It reads the file, then asks a few relays that have it, then all of them.
			time.Sleep(4 * follower.keeper.cfg.LookInterval * 5 / 4)
			if key, _ := follower.keeper.Key(); !key.Equal(newKey(material(keys[1]), "", 0)) {
				t.Errorf("it signs with %s", key)
			}
		})
	}
}
