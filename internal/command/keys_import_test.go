package command_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ringway/ringway/internal/command"
	"github.com/ringway/ringway/membership"
)

func TestImportedKeysAreTheMembersOwnAndRotationsOfThemAreKept(t *testing.T) {
	dir := t.TempDir()
	secret, file := filepath.Join(dir, "secret"), filepath.Join(dir, "gossip.keys")
	if err := os.WriteFile(secret, []byte(membership.GenerateKey()+"\n"), 0o444); err != nil {
		t.Fatal(err)
	}
	if _, err := membership.OpenKeyring(secret); err == nil {
		t.Fatal("a secret that others can read serves as it is: import has no purpose")
	}
	if _, _, err := execute(t, command.KeysCommand(), "import", secret, file); err != nil {
		t.Fatal(err)
	}
	imported, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	rotated := append(imported, membership.GenerateKey()+"\n"...) // as a member writes it back
	if err := os.WriteFile(file, rotated, 0o600); err != nil {
		t.Fatal(err)
	}
	out, _, err := execute(t, command.KeysCommand(), "import", secret, file)
	if err != nil || !strings.Contains(out, "left alone") {
		t.Errorf("%q, %v", out, err)
	}
	if keys, err := membership.OpenKeyring(file); err != nil || len(keys.Fingerprints()) != 2 {
		t.Errorf("the rotation is lost: %v, %v", keys.Fingerprints(), err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, ".keys-*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

func TestWhatIsNoKeyIsNotImported(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "gossip.keys")
	write(t, filepath.Join(dir, "secret"), "no key\n")
	for name, args := range map[string][]string{
		"no key":       {filepath.Join(dir, "secret"), file},
		"no such file": {filepath.Join(dir, "absent"), file},
		"writable":     {filepath.Join(dir, "secret"), filepath.Join(dir, "absent", "gossip.keys")},
	} {
		if _, _, err := execute(t, command.KeysCommand(), "import", args[0], args[1]); err == nil {
			t.Errorf("%s: imported", name)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v %v", entries, err)
	}
}
