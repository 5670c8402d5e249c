//go:build unix

package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/ringway/ringway/internal/procs"
)

// TestABundleHasWhatHelpsAndNoSecret gathers from a relay and a worker that know every
// secret that there is.
func TestABundleHasWhatHelpsAndNoSecret(t *testing.T) {
	t.Parallel()
	const token, shared, credential = "token-0123456789-token-0123456789", "shared-0123456789-shared-0123456789", "Bearer credential-0123456789"
	dir := t.TempDir()
	tokenFile := filepath.Join(dir, "token")
	if err := os.WriteFile(tokenFile, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newSecurity(t, dir)
	f := procs.NewFleet(procs.FleetConfig{T: t, Cluster: cluster, Environment: environment, Binaries: binaries})
	f.Security = s
	r, w := f.Relay("r1"), f.Worker("w1")
	admins := []string{r.Admin, w.Admin}
	f.Start(r, processConfig{Args: []string{"--admin-token-file", tokenFile}, Env: []string{"RINGWAY_SHARED_KEY=" + shared}})
	f.Start(w, processConfig{Args: []string{"--admin-token-file", tokenFile, "--service", "echo=127.0.0.1:1", "--service", "probed=127.0.0.1:1;check=http:/;header=Authorization:" + credential + ";grace=1h"}})
	ask := func(binary, admin string, args ...string) ran {
		return commandOf(t, binary, append(args, "--admin-addr", admin, "--admin-token-file", tokenFile)...)
	}
	procs.Await(t, "the relay knows the service", func() bool { return strings.Contains(ask("relay", admins[0], "services").Stdout, "echo") })
	procs.Await(t, "the worker answers", func() bool { return ask("worker", admins[1], "members").Code == 0 })

	// Whatever a secret is written as.
	var secrets [][]byte
	secret := func(b []byte) {
		b = bytes.TrimSpace(b)
		secrets = append(secrets, b, []byte(hex.EncodeToString(b)), []byte(base64.StdEncoding.EncodeToString(b)))
	}
	secret([]byte(token))
	secret([]byte(shared))
	secret([]byte(credential))
	for _, name := range []string{"r1.keys", "w1.keys", "r1.key", "w1.key"} {
		text, err := os.ReadFile(s.Path(name))
		if err != nil {
			t.Fatal(err)
		}
		secret(text)
		if raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text))); err == nil {
			secret(raw)
		}
		for line := range strings.Lines(string(text)) { // of a PEM file
			if line = strings.TrimSpace(line); len(line) > 20 && !strings.HasPrefix(line, "-----") {
				secret([]byte(line))
			}
		}
	}

	for _, c := range []struct {
		binary, admin string
		want          []string
	}{
		{"relay", admins[0], []string{"MANIFEST.json", "version.json", "config.json", "readyz.json", "members.json", "departures.json", "checksum.json", "services.json",
			"check.json", "shared-key.json", "services/echo.json", "services/echo.plan.json", "metrics.txt", "goroutines.txt", "log.ndjson"}},
		{"worker", admins[1], []string{"MANIFEST.json", "version.json", "config.json", "readyz.json", "members.json", "departures.json", "checksum.json", "services.json", "metrics.txt", "goroutines.txt", "log.ndjson"}},
	} {
		t.Run(c.binary, func(t *testing.T) {
			file := filepath.Join(dir, c.binary+".tar.gz")
			if r := ask(c.binary, c.admin, "debug", "bundle", "-o", file); r.Code != 0 || strings.Contains(r.Stderr, "not in it") {
				t.Fatalf("%v", r)
			}
			if stat, err := os.Stat(file); err != nil || stat.Mode().Perm() != 0o600 {
				t.Errorf("%v %v", stat, err)
			}
			files := unpack(t, file)
			for _, name := range c.want {
				if len(files[name]) == 0 && name != "log.ndjson" {
					t.Errorf("%s is not in it, or is empty", name)
				}
			}
			if len(files) != len(c.want) {
				t.Errorf("%d files, want %d", len(files), len(c.want))
			}
			for name, text := range files {
				for _, secret := range secrets {
					if bytes.Contains(text, secret) {
						t.Errorf("%s has a secret in it", name)
					}
				}
			}
			for name, part := range map[string]string{"config.json": tokenFile, "goroutines.txt": "goroutine profile", "metrics.txt": "ringway_build_info", "members.json": `"w1"`} {
				if !bytes.Contains(files[name], []byte(part)) {
					t.Errorf("%s lacks %q", name, part)
				}
			}
			var manifest struct {
				Process string
				Files   []struct {
					Name string
					Size int
				}
			}
			if err := json.Unmarshal(files["MANIFEST.json"], &manifest); err != nil || manifest.Process != c.binary || len(manifest.Files) != len(files)-1 {
				t.Errorf("%v %+v", err, manifest)
			}
			for _, f := range manifest.Files {
				if f.Size != len(files[f.Name]) {
					t.Errorf("%s has %d bytes, the manifest says %d", f.Name, len(files[f.Name]), f.Size)
				}
			}
			if r := ask(c.binary, c.admin, "debug", "bundle", "-o", file); r.Code != 1 || !strings.Contains(r.Stderr, "exists") {
				t.Errorf("a file was written over: %v", r)
			}
		})
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"debug", "bundle"}, "--output: required"},
		{[]string{"debug", "bundle", "-o", filepath.Join(dir, "x"), "--log-for", "-1s"}, "--log-for"},
		{[]string{"monitor", "--level", "loud"}, "debug, info, warn, error"},
	} {
		if r := ask("relay", admins[0], c.args...); r.Code != 1 || !strings.Contains(r.Stderr, c.want) {
			t.Errorf("%v", r)
		}
	}
	if r := commandOf(t, "relay", "debug", "bundle", "-o", filepath.Join(dir, "none.tar.gz"), "--admin-addr", freeAddr(t)); r.Code != 1 || !strings.Contains(r.Stderr, "is it running") {
		t.Errorf("%v", r)
	}
	if _, err := os.Stat(filepath.Join(dir, "none.tar.gz")); err == nil {
		t.Error("a bundle of nothing was written")
	}

	t.Run("monitor", func(t *testing.T) {
		for n, binary := range []string{"relay", "worker"} {
			m := start(t, processConfig{Name: binary + " monitor", Binary: binary, Args: []string{"monitor", "--level", "debug", "-o", "json", "--admin-addr", admins[n], "--admin-token-file", tokenFile}})
			procs.Await(t, "a line at level debug", func() bool {
				commandOf(t, binary, "reload", "--admin-addr", admins[n], "--admin-token-file", tokenFile) // which the process logs
				return strings.Contains(m.Output(), `"message":"reload`) || strings.Contains(m.Output(), `"level":"debug"`)
			})
			m.Signal(t, syscall.SIGINT)
			if code := m.Exit(t); code != 0 {
				t.Errorf("Ctrl-C is no failure: %d\n%s", code, m.Output())
			}
			for _, secret := range secrets {
				if strings.Contains(m.Output(), string(secret)) {
					t.Error("a secret was streamed")
				}
			}
		}
	})
	for _, p := range []*procs.Member{w, r} {
		p.Signal(t, syscall.SIGTERM)
		p.Exit(t)
		if strings.Contains(p.Output(), `"level":"debug"`) {
			t.Errorf("the log of %s has another level since it was read", p.Name())
		}
	}
}

// unpack returns the files of a bundle by name.
func unpack(t *testing.T, path string) map[string][]byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	zip, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for r := tar.NewReader(zip); ; {
		head, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		name, ours := strings.CutPrefix(head.Name, "ringway/")
		if !ours || slices.Contains(strings.Split(name, "/"), "..") {
			t.Errorf("a file %q", head.Name)
		}
		if files[name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}
