package process_test

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/process"
)

// socketPath is short: the path of a socket has room for some hundred characters only.
func socketPath(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ringway")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "admin.sock")
}

func listen(t *testing.T, path string) net.Listener {
	t.Helper()
	ln, err := process.Listen("unix:" + path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	return ln
}

// reaches reports whether a connection to path arrives at ln.
func reaches(t *testing.T, ln net.Listener, path string) bool {
	t.Helper()
	out, err := net.Dial("unix", path)
	if err != nil {
		return false
	}
	defer out.Close()
	if err := ln.(interface{ SetDeadline(time.Time) error }).SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	in, err := ln.Accept()
	if err == nil {
		_ = in.Close()
	}
	return err == nil
}

// stale leaves a socket behind as a process does that dies.
func stale(t *testing.T, path string) {
	t.Helper()
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	ln.SetUnlinkOnClose(false)
	_ = ln.Close()
}

func TestASocketIsForItsUserAloneAndGoesWithTheListener(t *testing.T) {
	path := socketPath(t)
	ln := listen(t, path)
	if ln.Addr().String() != "unix:"+path || ln.Addr().Network() != "unix" {
		t.Errorf("the address is %s %s", ln.Addr().Network(), ln.Addr())
	}
	stat, err := os.Lstat(path)
	if err != nil || stat.Mode() != fs.ModeSocket|0o600 {
		t.Errorf("%v, %v", stat.Mode(), err)
	}
	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 1 {
		t.Errorf("next to the socket there is %v", left)
	}
	if !reaches(t, ln, path) {
		t.Error("a connection does not arrive")
	}
	if err := ln.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after the end: %v", err)
	}
}

func TestAStaleSocketIsReplacedAndALiveOneIsNot(t *testing.T) {
	path := socketPath(t)
	stale(t, path)
	ln := listen(t, path)
	if !reaches(t, ln, path) {
		t.Error("the stale socket is still there")
	}
	if _, err := process.Listen("unix:" + path); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("a second process: %v", err)
	}
	if !reaches(t, ln, path) {
		t.Error("the second process took the socket from the first")
	}
	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 1 {
		t.Errorf("next to the socket there is %v", left)
	}
}

func TestOfTwoProcessesThatFindAStaleSocketOneServes(t *testing.T) {
	path := socketPath(t)
	for range 30 {
		stale(t, path)
		var listeners [2]net.Listener
		var group sync.WaitGroup
		for i := range listeners {
			group.Go(func() { listeners[i], _ = process.Listen("unix:" + path) })
		}
		group.Wait()
		serving := 0
		for _, ln := range listeners {
			if ln != nil {
				serving++
				if !reaches(t, ln, path) {
					t.Error("a process that was told it serves cannot be reached")
				}
			}
		}
		if serving != 1 {
			t.Fatalf("%d of two serve", serving)
		}
		for _, ln := range listeners {
			if ln != nil {
				_ = ln.Close()
			}
		}
	}
}

func TestASocketIsRemovedByItsOwnerOnly(t *testing.T) {
	path := socketPath(t)
	first := listen(t, path)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	second := listen(t, path)
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	if !reaches(t, second, path) {
		t.Error("the end of the first process removed the socket of the second")
	}
}

func TestAnAddressThatCannotBeServedIsRefusedWithARemedy(t *testing.T) {
	path := socketPath(t)
	write(t, path, "notes")
	taken, err := process.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for address, want := range map[string]string{
		"unix:" + path: "no socket",
		"unix:" + filepath.Join(filepath.Dir(path), "none", "admin.sock"):     "the directory must be there and writable",
		"unix:" + filepath.Join(filepath.Dir(path), strings.Repeat("x", 120)): "choose a shorter path",
		taken.Addr().String(): "another process",
		"192.0.2.1:0":         "no interface of this host has this address",
	} {
		if ln, err := process.Listen(address); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v, want %q", address, ln, err, want)
		}
	}
	if text, _ := os.ReadFile(path); string(text) != "notes" {
		t.Error("the file was replaced")
	}
}
