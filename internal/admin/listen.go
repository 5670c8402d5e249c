package admin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/ringway/ringway/internal/settings"
)

// maxSocketPath is what the shortest sockaddr_un of the systems that we know holds (104
// bytes on macOS and BSD, 108 on Linux), with the zero byte at its end.
const maxSocketPath = 103

// Listen binds addr: host:port, or unix:PATH.
//
// A socket is for the user of this process alone from its first moment. One that a dead
// process left behind is replaced; that of a living one is an error. It goes when the
// listener is closed.
func Listen(addr string) (net.Listener, error) {
	if path, ok := strings.CutPrefix(addr, settings.SocketPrefix); ok {
		return listenSocket(path)
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("%w: is another process on this port?", err)
	}
	return ln, nil
}

// Dial connects to addr, which is host:port for any network but that of unix:PATH.
func Dial(ctx context.Context, addr string) (net.Conn, error) {
	if path, ok := strings.CutPrefix(addr, settings.SocketPrefix); ok {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
}

// listenSocket makes the socket in a directory that only this user enters, takes its
// mode down and links it to its place. Binding it there at once would leave it open to
// others until chmod, and the umask belongs to the whole process.
func listenSocket(path string) (_ net.Listener, err error) {
	dir, err := os.MkdirTemp(filepath.Dir(path), ".rw") // mode 0700
	if err != nil {
		return nil, fmt.Errorf("%w: the directory must be there and writable", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	made := filepath.Join(dir, "s")
	if longest := max(len(made), len(path)); longest > maxSocketPath {
		return nil, fmt.Errorf("the path of a socket has at most %d characters, this needs %d: choose a shorter path", maxSocketPath, longest)
	}
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: made, Net: "unix"})
	if err != nil {
		return nil, err
	}
	ln.SetUnlinkOnClose(false) // that would be its first name
	if err := errors.Join(os.Chmod(made, 0o600), publish(made, path)); err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	stat, err := os.Lstat(path)
	if err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	return &socket{UnixListener: ln, path: path, stat: stat}, nil
}

// publish links made to path. Unlike a rename, a link never replaces.
func publish(made, path string) error {
	stale := made + ".stale"
	for range 3 { // another process may do the same
		if err := os.Link(made, path); !errors.Is(err, fs.ErrExist) {
			return err
		}
		stat, err := os.Lstat(path)
		if err == nil && stat.Mode().Type() != fs.ModeSocket {
			return fmt.Errorf("%s is there and is no socket: move it away, or choose another path", path)
		}
		if alive(path) {
			break
		}
		// What is moved may have become another process's since.
		if err := os.Rename(path, stale); errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return err
		}
		if alive(stale) {
			_ = os.Link(stale, path) // fails where a third process has taken the place
			break
		}
		if err := os.Remove(stale); err != nil {
			return err
		}
	}
	return fmt.Errorf("another process serves %s: stop it, or choose another path", path)
}

// alive reports whether a process may serve the socket: only a refused connection says
// that none does.
func alive(path string) bool {
	conn, err := net.Dial("unix", path)
	if err == nil {
		_ = conn.Close()
	}
	return !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, fs.ErrNotExist)
}

// socket removes its file when it is closed.
type socket struct {
	*net.UnixListener
	path string
	stat fs.FileInfo
}

// Addr is as in the settings, with the prefix.
func (s *socket) Addr() net.Addr {
	return &net.UnixAddr{Name: settings.SocketPrefix + s.path, Net: "unix"}
}

func (s *socket) Close() error {
	if stat, err := os.Lstat(s.path); err == nil && os.SameFile(stat, s.stat) {
		_ = os.Remove(s.path) // the next start replaces what is left
	}
	return s.UnixListener.Close()
}
